// The curves of a report: their headings, and their points for report.js.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "app/base/markup_text.h"
#include "app/report/html.h"
#include "app/report/page.h"
#include "kernels/base/json_text.h"

namespace dpt {
namespace {

using CurvesJson = nlohmann::ordered_json;

/// Maximum number of points of a curve, about the width of a chart in pixels. Longer curves are
/// shortened by averaging neighbours.
constexpr std::size_t kMaxPoints = 1000;

struct Chart {
  std::string name;       ///< field of the log
  bool of_steps = false;  ///< true for logged steps, false for epochs and evaluations
};

std::string chart_title(const Chart& chart) {
  if (chart.name == "lr") return "learning rate";
  if (chart.name == "images_per_s") return "samples/s";
  if (chart.name == "grad_norm") return "gradient norm";
  if (chart.name == "data_wait") return "waiting for data, fraction of the time";
  if (chart.name == "noise_scale") return "gradient noise scale";
  return chart.of_steps ? chart.name + " of the logged steps" : chart.name;
}

/// Returns true for speeds, whose curves are drawn from logged steps only.
bool is_speed(const std::string& name) {
  return name == "images_per_s" || name == "data_wait";
}

bool is_worth_a_chart(const Curve& curve) {
  return curve.name != "data_wait" ||
         std::any_of(curve.points.begin(), curve.points.end(),
                     [](const CurvePoint& point) { return point.value >= 0.01; });
}

/// Returns the charts for which the runs have curves, beginning with loss and metrics.
std::vector<Chart> charts_of(const std::vector<ReportedRun>& runs) {
  std::vector<Chart> charts;
  const auto add = [&](const std::string& name, bool of_steps) {
    const bool is_known = std::any_of(charts.begin(), charts.end(), [&](const Chart& chart) {
      return chart.name == name && chart.of_steps == of_steps;
    });
    if (!is_known) charts.push_back({name, of_steps});
  };
  for (const ReportedRun& run : runs) {
    for (const Curve& curve : run.history.curves) {
      if (curve.of != "step" && !is_speed(curve.name)) add(curve.name, false);
    }
  }
  for (const char* name : {"loss", "lr", "images_per_s", "data_wait", "grad_norm", "noise_scale"}) {
    for (const ReportedRun& run : runs) {
      for (const Curve& curve : run.history.curves) {
        if (curve.of == "step" && curve.name == name && is_worth_a_chart(curve)) add(name, true);
      }
    }
  }
  // Put the loss first, whatever its position in the log.
  std::stable_partition(charts.begin(), charts.end(),
                        [](const Chart& chart) { return !chart.of_steps && chart.name == "loss"; });
  return charts;
}

bool belongs_to(const Curve& curve, const Chart& chart) {
  return curve.name == chart.name && (curve.of == "step") == chart.of_steps;
}

/// Returns the number rounded to six digits, as the program prints it.
CurvesJson rounded_number(double value) {
  return std::isfinite(value) ? CurvesJson(std::stod(fmt::format("{:.6g}", value))) : CurvesJson();
}

/// Returns [step, epoch, value] for each point, with null for a non-finite value. Merges each group
/// of `together` neighbours into one point, which is non-finite if one of them is.
CurvesJson points_json(const std::vector<CurvePoint>& points, std::size_t together) {
  CurvesJson out = CurvesJson::array();
  for (std::size_t at = 0; at < points.size(); at += together) {
    const std::size_t count = std::min(together, points.size() - at);
    double sum = 0;
    for (std::size_t i = at; i < at + count; ++i) sum += points[i].value;
    const CurvePoint& last = points[at + count - 1];
    out.push_back(
        {last.step, rounded_number(last.epoch), rounded_number(sum / static_cast<double>(count))});
  }
  return out;
}

/// Returns the index of the drawn point for the best epoch, or null.
CurvesJson best_point(const Curve& curve, const std::optional<EpochEnd>& best,
                      std::size_t together) {
  if (!best || curve.of == "test") return {};
  const auto found =
      std::find_if(curve.points.begin(), curve.points.end(),
                   [&](const CurvePoint& point) { return point.step >= best->step; });
  if (found == curve.points.end()) return {};
  // A logged step of a later epoch does not represent the best epoch.
  if (found->epoch > best->epoch + 1e-9) return {};
  return static_cast<std::size_t>(found - curve.points.begin()) / together;
}

/// Returns the legend: colours of runs and styles of lines.
std::string legend(const std::vector<ReportedRun>& runs) {
  std::string out = "<div class=\"legend\">";
  for (std::size_t i = 0; runs.size() > 1 && i < runs.size(); ++i) {
    out += fmt::format(
        "<label><input type=\"checkbox\" data-shows=\"{0}\" checked>"
        "<i class=\"swatch\" data-run=\"{0}\"></i>{1}</label>",
        i, html_text(runs[i].label));
  }
  out +=
      "</div>\n<div class=\"legend\">"
      "<span><i class=\"line dashed\"></i>train</span>"
      "<span><i class=\"line\"></i>val</span>"
      "<span><i class=\"line diamond\"></i>test (the weights of the best epoch, if one is "
      "kept)</span>"
      "<span><i class=\"line ring\"></i>best epoch</span>"
      "<label class=\"control\"><input type=\"radio\" name=\"axis\" value=\"epoch\">by "
      "epoch</label>"
      "<label class=\"control\"><input type=\"radio\" name=\"axis\" value=\"step\">by step</label>"
      "<label class=\"control\"><input type=\"checkbox\" id=\"log\">logarithmic loss, rate, "
      "norm</label>"
      "<label class=\"control\">smooth steps<input type=\"range\" id=\"smooth\" min=\"0\" "
      "max=\"0.98\" step=\"0.02\" value=\"0\"></label>";
  return out +
         "</div>\n<noscript><p class=\"note\">The curves are drawn by a script; this browser "
         "runs none.</p></noscript>\n";
}

}  // namespace

CurvesSection curves_section(const std::vector<ReportedRun>& runs) {
  CurvesJson json = {{"runs", CurvesJson::array()}, {"charts", CurvesJson::array()}};
  for (const ReportedRun& run : runs) json["runs"].push_back(run.label);
  std::string figures;
  bool is_shortened = false;
  for (const Chart& chart : charts_of(runs)) {
    CurvesJson series = CurvesJson::array();
    for (std::size_t i = 0; i < runs.size(); ++i) {
      for (const Curve& curve : runs[i].history.curves) {
        if (!belongs_to(curve, chart)) continue;
        const std::size_t together = (curve.points.size() + kMaxPoints - 1) / kMaxPoints;
        is_shortened = is_shortened || together > 1;
        series.push_back({{"run", i},
                          {"of", curve.of},
                          {"points", points_json(curve.points, together)},
                          {"best", best_point(curve, runs[i].history.best, together)}});
      }
    }
    const std::string title = chart_title(chart);
    const std::string id = fmt::format("curve-{}", json["charts"].size());
    json["charts"].push_back(
        {{"id", id},
         {"title", title},
         {"log", chart.name == "loss" || chart.name == "lr" || chart.name == "grad_norm"},
         {"zero", chart.of_steps && chart.name != "loss"},
         {"large", chart.name == "images_per_s"},
         {"series", series}});
    figures += fmt::format(
        "<figure><figcaption>{0}</figcaption><div class=\"plot\"><canvas id=\"{1}\" role=\"img\" "
        "aria-label=\"{0} over the run\"></canvas></div></figure>\n",
        html_text(title), id);
  }
  if (figures.empty()) {
    return {section("curves", "Curves", "<p>The logs have no numbers yet.</p>\n"), json_text(json)};
  }
  std::string body = legend(runs) + "<div class=\"figures\">\n" + figures + "</div>\n";
  if (is_shortened) {
    body += fmt::format(
        "<p class=\"note\">Curves of more than {} points are drawn as means of "
        "neighbouring ones.</p>\n",
        kMaxPoints);
  }
  return {section("curves", "Curves", body), json_text(json)};
}

}  // namespace dpt
