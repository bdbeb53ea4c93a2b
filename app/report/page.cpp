#include "app/report/page.h"

#include <fmt/format.h>

#include "app/base/markup_text.h"
#include "app/report/assets.h"
#include "app/report/html.h"

namespace dpt {
namespace {

std::string title_of(const std::vector<ReportedRun>& runs) {
  if (runs.size() == 1) return "Run " + runs[0].label;
  std::string names;
  constexpr std::size_t kMax = 4;
  for (std::size_t i = 0; i < std::min(kMax, runs.size()); ++i) {
    names += (i == 0 ? "" : ", ") + runs[i].label;
  }
  return fmt::format("{} runs: {}{}", runs.size(), names, runs.size() > kMax ? ", ..." : "");
}

}  // namespace

std::string section(const std::string& id, const std::string& heading, const std::string& body) {
  return fmt::format("<section id=\"{}\">\n<h2>{}</h2>\n{}</section>\n", id, heading, body);
}

std::string report_page(const std::vector<ReportedRun>& runs) {
  const CurvesSection curves = curves_section(runs);
  struct Part {
    const char *id, *name;
    std::string text;
  };
  const std::vector<Part> parts = {{"runs", "Results", runs_section(runs)},
                                   {"curves", "Curves", curves.html},
                                   {"differences", "Differences", differences_section(runs)},
                                   {"evaluation", "Mistakes", evaluation_section(runs)},
                                   {"time", "Time", ledger_section(runs)},
                                   {"events", "Events", events_section(runs)},
                                   {"configs", "Config", configs_section(runs)}};
  std::string nav, sections;
  for (const Part& part : parts) {
    if (part.text.empty()) continue;
    nav += fmt::format("<a href=\"#{}\">{}</a> ", part.id, part.name);
    sections += part.text;
  }
  const ReportAssets assets = report_assets();
  const std::string title = html_text(title_of(runs)), json = json_for_script(curves.json),
                    licence = html_text(std::string(assets.charts_licence));
  return filled(assets.page, {{"title", title},
                              {"heading", title},
                              {"style", assets.style},
                              {"nav", nav},
                              {"sections", sections},
                              {"version", DPT_VERSION},
                              {"charts_licence", licence},
                              {"json", json},
                              {"charts", assets.charts},
                              {"script", assets.script}});
}

}  // namespace dpt
