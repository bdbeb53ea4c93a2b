// The sections of a report that are tables: results, differences, time, events, configs.
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "app/base/markup_text.h"
#include "app/report/html.h"
#include "app/report/page.h"
#include "app/report/run_event.h"
#include "engine/run/progress.h"

namespace dpt {
namespace {

/// Returns the name of a result with line breaks allowed after '/' and '_'.
std::string name_of_measure(const std::string& name) {
  std::string html;
  for (const char c : html_text(name)) {
    html += c;
    if (c == '/' || c == '_') html += "<wbr>";
  }
  return html;
}

constexpr const char* kNone = "-";

std::string count_text(std::int64_t count) {
  return count > 0 ? std::to_string(count) : kNone;
}

/// Returns the labels of the runs, with the colours of their curves; empty for a single run.
std::vector<std::string> run_headings(const std::vector<ReportedRun>& runs) {
  if (runs.size() == 1) return {};
  std::vector<std::string> cells = {""};
  for (std::size_t i = 0; i < runs.size(); ++i) {
    cells.push_back(
        fmt::format("<i class=\"swatch\" data-run=\"{}\"></i>{}", i, html_text(runs[i].label)));
  }
  return cells;
}

/// Formats a time as on the terminal, "1:02:03"; short times have three digits.
std::string time_text(double seconds) {
  if (seconds >= 60) return format_duration(seconds);
  return seconds >= 1 ? fmt::format("{:.3g} s", seconds) : fmt::format("{:.3g} ms", 1e3 * seconds);
}

std::string status_html(const std::string& status) {
  const bool is_bad = status == "failed" || status == "diverged" || status == "interrupted";
  return fmt::format("<span class=\"{}\">{}</span>", is_bad ? "bad" : "", html_text(status));
}

std::string best_html(const RunHistory& history) {
  const RunFacts& facts = history.facts;
  if (facts.best_name.empty()) return kNone;
  return html_text(fmt::format("{} {} ({}step {})", facts.best_name,
                               facts.best ? fmt::format("{:.6g}", *facts.best) : "non-finite",
                               history.best ? fmt::format("epoch {}, ", history.best->epoch) : "",
                               facts.best_step));
}

/// Returns a note about the weights that the results belong to.
std::string weights_note(const std::vector<ReportedRun>& runs) {
  const bool has_best = std::any_of(runs.begin(), runs.end(), [](const ReportedRun& run) {
    return !run.history.facts.best_name.empty();
  });
  if (!has_best) return {};
  return "<p class=\"note\">val and test are results of the best epoch's weights, which are in "
         "best.safetensors; train and last/val are of the last epoch.</p>\n";
}

/// Lists devices, with equal ones merged: "8 x cuda:0".
std::string devices_html(const std::vector<std::string>& devices) {
  std::vector<std::pair<std::string, int>> groups;
  for (const std::string& device : devices) {
    if (groups.empty() || groups.back().first != device) groups.emplace_back(device, 0);
    ++groups.back().second;
  }
  std::vector<std::string> texts;
  for (const auto& [device, count] : groups) {
    texts.push_back(count > 1 ? fmt::format("{} x {}", count, device) : device);
  }
  return texts.empty() ? kNone : html_text(fmt::format("{}", fmt::join(texts, ", ")));
}

std::string samples_html(const RunHistory& history) {
  if (history.train_samples == 0) return kNone;
  return fmt::format("{} / {} / {}", history.train_samples, history.val_samples,
                     history.test_samples);
}

/// Returns notes about missing parts of the logs.
std::string log_notes(const std::vector<ReportedRun>& runs) {
  std::string out;
  for (const ReportedRun& run : runs) {
    if (run.history.unreadable_lines > 0) {
      out += fmt::format(
          "<p class=\"note\">{}: {} of metrics.jsonl {} not a complete JSON object, and {} left "
          "out (a process that was killed or is still writing leaves incomplete lines).</p>\n",
          html_text(run.label),
          run.history.unreadable_lines == 1 ? "1 line"
                                            : fmt::format("{} lines", run.history.unreadable_lines),
          run.history.unreadable_lines == 1 ? "is" : "are",
          run.history.unreadable_lines == 1 ? "is" : "are");
    }
    if (run.history.starts == 0) {
      out += fmt::format("<p class=\"note\">{}: the log does not contain the start of a run.</p>\n",
                         html_text(run.label));
    }
  }
  return out;
}

/// Returns the parts of the ledger that are not negligible in at least one run.
std::vector<std::string> parts_in(const std::vector<ReportedRun>& runs) {
  std::vector<std::vector<std::pair<std::string, double>>> lists;
  for (const ReportedRun& run : runs) {
    lists.emplace_back();
    for (const auto& part : run.history.ledger.parts) {
      if (part.second >= 0.0005 * run.history.ledger.seconds) lists.back().push_back(part);
    }
  }
  return names_in(lists);
}

double seconds_in(const TimeLedger& ledger, const std::string& part) {
  for (const auto& [name, seconds] : ledger.parts) {
    if (name == part) return seconds;
  }
  return 0;
}

std::string percent_text(double share) {
  return fmt::format("{:.{}f} %", 100 * share, share < 0.0995 ? 1 : 0);
}

/// Returns one bar of all parts, as wide as the page.
std::string ledger_bar(const TimeLedger& ledger) {
  std::string out = "<div class=\"bar\" aria-hidden=\"true\">";
  for (const auto& [name, seconds] : ledger.parts) {
    const double percent = 100 * seconds / ledger.seconds;
    if (percent < 0.05) continue;
    out += fmt::format(
        "<i class=\"part part-{0}\" title=\"{0}: {1:.1f} %\" "
        "style=\"width:{1:.2f}%\"></i>",
        html_text(name), percent);
  }
  return out + "</div>\n";
}

/// Returns the advice as HTML. Prevents line breaks after the hyphens of its first option.
std::string advice_html(const std::string& advice) {
  std::string out = html_text(advice);
  const std::size_t begin = out.find(" --");
  if (begin == std::string::npos) return out;
  const std::size_t end = std::min(out.find(' ', begin + 1), out.size());
  return out.substr(0, begin + 1) + "<span class=\"word\">" +
         out.substr(begin + 1, end - begin - 1) + "</span>" + out.substr(end);
}

std::string ledger_verdict(const ReportedRun& run, bool is_only) {
  const TimeLedger& ledger = run.history.ledger;
  std::string out = "<p>";
  if (!is_only) out += "<b>" + html_text(run.label) + "</b>: ";
  out += fmt::format("{} by <b>{}</b>: {:.0f} % of {}", is_only ? "Bound" : "bound",
                     html_text(ledger.bound_by), 100 * ledger.share, time_text(ledger.seconds));
  if (!ledger.advice.empty()) out += "; " + advice_html(ledger.advice);
  out += ".";
  if (ledger.is_of_log) {
    out += run.history.starts > 1 ? " Added up over the processes of the run."
                                  : " Added up from the log: the run has no summary.";
  }
  return out + "</p>\n";
}

}  // namespace

std::string runs_section(const std::vector<ReportedRun>& runs) {
  HtmlTable table{"Results of the runs", "runs", run_headings(runs), {}};
  const auto row = [&](const std::string& name, const auto& cell) {
    std::vector<std::string> cells = {name};
    for (const ReportedRun& run : runs) cells.push_back(cell(run));
    const bool is_empty = std::all_of(cells.begin() + 1, cells.end(),
                                      [](const std::string& text) { return text == kNone; });
    if (!is_empty) table.rows.push_back(std::move(cells));
  };
  row("status", [](const ReportedRun& run) { return status_html(run.history.facts.status); });
  row("best", [](const ReportedRun& run) { return best_html(run.history); });
  RunNumbers numbers;
  for (const ReportedRun& run : runs) {
    numbers.push_back(run.history.facts.results);
  }
  for (const std::string& name : measures_in(numbers)) {
    std::vector<std::string> cells = {name_of_measure(name)};
    for (std::size_t i = 0; i < runs.size(); ++i) {
      const auto value = number_at(numbers, i, name);
      cells.push_back(value ? fmt::format("{:.6g}", *value) : kNone);
    }
    table.rows.push_back(std::move(cells));
  }
  row("epochs", [](const ReportedRun& run) {
    const RunHistory& of = run.history;
    return of.epochs_planned > 0 ? fmt::format("{} of {}", of.epochs, of.epochs_planned)
                                 : count_text(of.epochs);
  });
  row("steps", [](const ReportedRun& run) { return std::to_string(run.history.facts.steps); });
  row("time", [](const ReportedRun& run) {
    const double seconds = run.history.seconds;
    return seconds > 0 ? time_text(seconds) : std::string(kNone);
  });
  row("samples/s", [](const ReportedRun& run) {
    return run.history.rate > 0 ? format_rate(run.history.rate) : std::string(kNone);
  });
  row("devices", [](const ReportedRun& run) { return devices_html(run.history.devices); });
  row("batch size", [](const ReportedRun& run) { return count_text(run.history.batch_size); });
  row("parameters", [](const ReportedRun& run) { return count_text(run.history.parameters); });
  row("train / val / test samples",
      [](const ReportedRun& run) { return samples_html(run.history); });
  row("name", [](const ReportedRun& run) {
    return run.history.name.empty() ? std::string(kNone) : html_text(run.history.name);
  });
  row("folder", [](const ReportedRun& run) {
    return "<code>" + html_text(run.history.facts.folder) + "</code>";
  });
  return section("runs", "Results", table.text() + weights_note(runs) + log_notes(runs));
}

std::string differences_section(const std::vector<ReportedRun>& runs) {
  if (runs.size() < 2) return {};
  std::string notes;
  for (const ReportedRun& run : runs) {
    if (!run.config) {
      notes += fmt::format(
          "<p class=\"note\">{} is left out: this dpt cannot read its config: "
          "{}</p>\n",
          html_text(run.label), html_text(run.config_problem));
    }
  }
  std::vector<RunConfig> configs;
  std::vector<std::string> headings = run_headings(runs), kept = {""};
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (!runs[i].config) continue;
    configs.push_back(*runs[i].config);
    kept.push_back(headings[i + 1]);
  }
  HtmlTable table{"Differences of the configs", "differences", kept, {}};
  if (configs.size() > 1) {
    for (const auto& [path, values] : differences_of(configs)) {
      auto& row = table.rows.emplace_back(std::vector{"<code>" + html_text(path) + "</code>"});
      for (const auto& value : values) row.push_back(html_text(text_of(value)));
    }
  }
  std::string body = notes;
  if (!table.rows.empty()) {
    body = table.text() + notes;
  } else if (configs.size() > 1) {
    body = "<p>The configs are the same.</p>\n" + notes;
  }
  return section("differences", "Where the configs differ", body);
}

std::string ledger_section(const std::vector<ReportedRun>& runs) {
  std::string bars;
  for (const ReportedRun& run : runs) {
    if (run.history.ledger.seconds <= 0) continue;
    bars += ledger_verdict(run, runs.size() == 1) + ledger_bar(run.history.ledger);
  }
  if (bars.empty()) {
    return section(
        "time", "Where the time went",
        "<p>The logs have no times by part: dpt logs them from the end of the first epoch on, "
        "and older releases did not log them at all.</p>\n");
  }
  HtmlTable table{"Time by part", "time", run_headings(runs), {}};
  for (const std::string& part : parts_in(runs)) {
    std::vector<std::string> row = {
        fmt::format("<i class=\"key part-{0}\"></i>{0}", html_text(part))};
    for (const ReportedRun& run : runs) {
      const TimeLedger& ledger = run.history.ledger;
      const double seconds = seconds_in(ledger, part);
      row.push_back(ledger.seconds > 0 ? fmt::format("{} <small>{}</small>", time_text(seconds),
                                                     percent_text(seconds / ledger.seconds))
                                       : std::string(kNone));
    }
    table.rows.push_back(std::move(row));
  }
  return section("time", "Where the time went", bars + table.text());
}

std::string events_section(const std::vector<ReportedRun>& runs) {
  HtmlTable table{"Events", "events", {"run", "step", "event"}, {}};
  if (runs.size() == 1) table.heading.erase(table.heading.begin());
  for (const ReportedRun& run : runs) {
    for (const RunEvent& event : run.history.events) {
      const char* style = event.weight == RunEvent::Weight::failure   ? "bad"
                          : event.weight == RunEvent::Weight::warning ? "warning"
                                                                      : "";
      std::vector<std::string> row;
      if (runs.size() > 1) row.push_back(html_text(run.label));
      row.push_back(event.step >= 0 ? std::to_string(event.step) : std::string());
      row.push_back(fmt::format("<span class=\"{}\">{}</span>", style, html_text(event.words)));
      table.rows.push_back(std::move(row));
    }
  }
  if (table.rows.empty()) return {};
  return section("events", "What happened", table.text());
}

std::string configs_section(const std::vector<ReportedRun>& runs) {
  std::string body;
  for (const ReportedRun& run : runs) {
    body += fmt::format("<details><summary>{}</summary>\n<pre tabindex=\"0\">{}</pre></details>\n",
                        html_text(run.label + "/config.yaml"), html_text(run.config_text));
  }
  return section("configs", runs.size() == 1 ? "Config" : "Configs", body);
}

}  // namespace dpt
