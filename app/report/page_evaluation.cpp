// The section of a report about the evaluation: scores of classes, confusions, and worst mistakes.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>

#include "app/base/markup_text.h"
#include "app/report/html.h"
#include "app/report/page.h"
#include "app/report/plots.h"

namespace dpt {
namespace {

/// Maximum number of classes of a readable confusion matrix.
constexpr std::size_t kMaxInMatrix = 40;
/// Maximum number of rows of a table. If there are more classes, it shows only the worst.
constexpr std::size_t kMaxInTable = 100;
constexpr std::size_t kMaxPairs = 20;
/// Maximum number of runs whose sections are open at first, to keep the rest of the page in reach.
constexpr std::size_t kMaxOpen = 4;
/// Text that occurs in the summary of every evaluation, and in no other part of a page.
constexpr std::string_view kSummaryMark = " samples: loss ";

std::string scores_html(const EvaluatedClasses& of) {
  const std::vector<ClassScores>& classes = of.report.classes;
  std::vector<std::size_t> rows(classes.size());
  std::iota(rows.begin(), rows.end(), std::size_t{0});
  const bool is_shortened = rows.size() > kMaxInTable;
  if (is_shortened) {
    std::erase_if(rows, [&](std::size_t c) {
      return classes[c].support == 0 && classes[c].predictions == 0;
    });
    std::stable_sort(rows.begin(), rows.end(),
                     [&](std::size_t a, std::size_t b) { return classes[a].f1 < classes[b].f1; });
    rows.resize(std::min(rows.size(), kMaxInTable));
  }
  HtmlTable table{
      "Scores of the classes", "scores", {"class", "precision", "recall", "F1", "samples"}, {}};
  const auto add = [&](const std::string& name, const ClassScores& scores) {
    table.rows.push_back({name, fmt::format("{:.4f}", scores.precision),
                          fmt::format("{:.4f}", scores.recall), fmt::format("{:.4f}", scores.f1),
                          std::to_string(scores.support)});
  };
  for (const std::size_t c : rows) add(html_name(of.names[c]), classes[c]);
  add("macro average", of.report.macro);
  std::string out = "<h4>Classes</h4>\n" + table.text();
  if (is_shortened) {
    out += fmt::format(
        "<p class=\"note\">The {} worst of {} classes, by F1; <code>dpt eval --json"
        "</code> has all.</p>\n",
        rows.size(), classes.size());
  }
  return out;
}

std::string number_html(double value) {
  return std::isnan(value) ? "&#8211;" : fmt::format("{:.4f}", value);
}

std::string labels_html(const EvaluatedLabels& of) {
  const std::vector<LabelScores>& labels = of.report.labels;
  std::vector<std::size_t> rows(labels.size());
  std::iota(rows.begin(), rows.end(), std::size_t{0});
  const bool is_shortened = rows.size() > kMaxInTable;
  if (is_shortened) {
    std::stable_sort(rows.begin(), rows.end(), [&](std::size_t a, std::size_t b) {
      return labels[a].counts.f1() < labels[b].counts.f1();
    });
    rows.resize(kMaxInTable);
  }
  HtmlTable table{"Scores of the labels",
                  "scores",
                  {"label", "precision", "recall", "F1", "AP", "samples", "threshold",
                   "best threshold", "best F1"},
                  {}};
  for (const std::size_t c : rows) {
    const LabelScores& scores = labels[c];
    table.rows.push_back({html_name(of.names[c]), number_html(scores.counts.precision()),
                          number_html(scores.counts.recall()), number_html(scores.counts.f1()),
                          number_html(scores.average_precision),
                          std::to_string(scores.counts.support),
                          fmt::format("{:.4g}", scores.threshold),
                          number_html(scores.best.threshold), number_html(scores.best.f1)});
  }
  const auto add = [&](const char* name, const LabelMeans& means) {
    table.rows.push_back({name, number_html(means.precision), number_html(means.recall),
                          number_html(means.f1), number_html(means.average_precision), "", "", "",
                          ""});
  };
  add("macro average", of.report.macro);
  add("micro average", of.report.micro);
  std::string out = "<h4>Labels</h4>\n" + table.text() +
                    "<p class=\"note\">An output above the threshold is a prediction of its label. "
                    "The best threshold has the largest F1 on these samples: choose it on "
                    "validation samples, not on test samples.</p>\n";
  if (is_shortened) {
    out += fmt::format(
        "<p class=\"note\">The {} worst of {} labels, by F1; <code>dpt eval --json"
        "</code> has all.</p>\n",
        rows.size(), labels.size());
  }
  return out;
}

std::int64_t confusions(const EvaluatedClasses& of, std::size_t label, std::size_t prediction) {
  const auto at = of.report.confusion.find(
      {static_cast<std::int32_t>(label), static_cast<std::int32_t>(prediction)});
  return at == of.report.confusion.end() ? 0 : at->second;
}

/// Returns a cell that is darker for a larger fraction of the label's samples; even small fractions
/// are visible. `with_rate` adds the fraction.
std::string confusion_cell(std::int64_t count, std::int64_t support, bool is_right,
                           bool with_rate) {
  if (count == 0) return "<td></td>";
  const double part = support > 0 ? static_cast<double>(count) / static_cast<double>(support) : 0.0;
  const double ink = is_right ? part : std::sqrt(part);
  const std::string rate =
      with_rate ? fmt::format("<br><small>{:.3g} %</small>", 100 * part) : std::string();
  return fmt::format("<td class=\"{}{}\" style=\"--ink:{:.2f}\">{}{}</td>",
                     is_right ? "right" : "wrong", ink > 0.6 ? " deep" : "", ink, count, rate);
}

/// Style of the column headings of a matrix.
enum class ColumnHeads : std::uint8_t { names, turned_names, numbers };

ColumnHeads column_heads(const std::vector<std::string>& names) {
  constexpr std::size_t kMaxTurned = 12;
  const bool is_short = std::all_of(names.begin(), names.end(),
                                    [](const std::string& name) { return name.size() <= 3; });
  if (is_short) return ColumnHeads::names;
  return names.size() <= kMaxTurned ? ColumnHeads::turned_names : ColumnHeads::numbers;
}

std::string column_head(const std::string& name, std::size_t c, ColumnHeads heads) {
  const std::string text = heads == ColumnHeads::numbers ? std::to_string(c) : html_name(name);
  const bool is_turned = heads == ColumnHeads::turned_names;
  return fmt::format("<th scope=\"col\"{} title=\"{}\">{}{}{}</th>",
                     is_turned ? " class=\"turned\"" : "", html_text(name),
                     is_turned ? "<span>" : "", text, is_turned ? "</span>" : "");
}

std::string confusion_matrix_html(const EvaluatedClasses& of) {
  constexpr std::size_t kMaxWithRates = 12;
  const std::size_t classes = of.names.size();
  const ColumnHeads heads = column_heads(of.names);
  const bool with_rates = classes <= kMaxWithRates;
  std::string out = fmt::format(
      "<h4>Confusion matrix</h4>\n<p class=\"note\">Rows: labels. Columns: predictions.{}</p>\n"
      "<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"Confusion matrix\">"
      "<table class=\"confusion\">\n<thead><tr><td></td>",
      with_rates ? " Percentages are fractions of the label's samples." : "");
  for (std::size_t c = 0; c < classes; ++c) out += column_head(of.names[c], c, heads);
  out += "</tr></thead>\n<tbody>\n";
  for (std::size_t label = 0; label < classes; ++label) {
    out += fmt::format(
        "<tr><th scope=\"row\">{}{}</th>",
        heads == ColumnHeads::numbers ? fmt::format("<small>{}</small> ", label) : std::string(),
        html_name(of.names[label]));
    for (std::size_t c = 0; c < classes; ++c) {
      out += confusion_cell(confusions(of, label, c), of.report.classes[label].support, label == c,
                            with_rates);
    }
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>\n";
}

std::string confused_pairs_html(const EvaluatedClasses& of) {
  std::vector<std::pair<std::pair<std::int32_t, std::int32_t>, std::int64_t>> pairs;
  for (const auto& each : of.report.confusion) {
    if (each.first.first != each.first.second) pairs.emplace_back(each);
  }
  if (pairs.empty()) return {};
  std::stable_sort(pairs.begin(), pairs.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  const std::size_t all = pairs.size();
  pairs.resize(std::min(all, kMaxPairs));
  HtmlTable table{"Most frequent confusions", "pairs", {"label", "prediction", "samples"}, {}};
  for (const auto& [pair, count] : pairs) {
    table.rows.push_back(
        {html_name(of.names[pair.first]), html_name(of.names[pair.second]), std::to_string(count)});
  }
  return fmt::format(
      "<h4>Most frequent confusions</h4>\n{}<p class=\"note\">The first {} of {} "
      "pairs; <code>dpt eval --json</code> has all.</p>\n",
      table.text(), pairs.size(), all);
}

/// Returns one sample: its image or its name, with truth and prediction.
std::string sample_html(const ReportedSample& sample, const std::string& outputs) {
  const std::string what = fmt::format("sample {} ({}): {}, predicted {}", sample.index,
                                       sample.file, sample.truth, sample.prediction);
  std::string out = fmt::format("<figure class=\"sample\" title=\"{}\">", html_text(what));
  if (sample.png.empty()) {
    out += "<code>" + html_text(sample.file) + "</code>";
  } else {
    // Enlarge small images without smoothing, to show the pixels that the model sees.
    constexpr std::int64_t kSmall = 64;
    out += fmt::format("<img{} alt=\"{}\" src=\"data:image/png;base64,{}\">",
                       sample.side <= kSmall ? " class=\"small\"" : "", html_text(what),
                       base64(sample.png));
  }
  const bool is_right = sample.confidence && sample.truth == sample.prediction;
  out += fmt::format("<figcaption><b>{}</b>", html_name(sample.truth));
  if (!is_right) out += fmt::format(" &#8594; {}", html_name(sample.prediction));
  out += "<br><small>";
  if (sample.confidence) out += fmt::format("{} {:.4f}<br>", outputs, *sample.confidence);
  out += fmt::format("loss {:.4f}<br>#{}", sample.loss, sample.index);
  // Print the path, because paper and touch screens have no tooltips.
  if (!sample.png.empty()) out += "<br><span class=\"path\">" + html_path(sample.file) + "</span>";
  return out + "</small></figcaption></figure>\n";
}

std::string samples_html(const std::string& heading, const std::vector<ReportedSample>& samples,
                         const std::string& outputs) {
  if (samples.empty()) return {};
  std::string out = "<h4>" + heading + "</h4>\n<div class=\"samples\">\n";
  for (const ReportedSample& sample : samples) out += sample_html(sample, outputs);
  return out + "</div>\n";
}

std::string evaluation_summary(const ReportedEvaluation& of) {
  std::string out =
      fmt::format("<p><code>{}</code>{} (step {}), {} split, {}{}{:.4f}", html_text(of.checkpoint),
                  html_text(of.weights), of.step, of.split, of.n, kSummaryMark, of.loss);
  if (of.accuracy) out += fmt::format(", accuracy {:.4f}", *of.accuracy);
  for (const auto& [name, value] : of.metrics) {
    out += fmt::format(", {} {:.4f}", html_text(name), value);
  }
  if (of.classes && of.classes->calibration_error) {
    out += fmt::format(", calibration error {:.4f}", *of.classes->calibration_error);
  }
  if (of.classes) out += fmt::format("; {} wrong", of.wrong);
  return out + ".</p>\n";
}

std::string plots_html(const ReportedEvaluation& of) {
  std::string plots;
  if (of.classes && !of.classes->calibration.empty()) {
    plots += reliability_plot(of.classes->calibration);
  }
  for (const ReportedScatter& scatter : of.scatters) {
    if (!scatter.points.empty()) plots += scatter_plot(scatter, of.scatters.size() > 1);
  }
  return plots.empty() ? plots : "<div class=\"squares\">\n" + plots + "</div>\n";
}

std::string evaluation_html(const ReportedEvaluation& of) {
  std::string out = evaluation_summary(of);
  out += samples_html("Most confident mistakes", of.most_certain, of.outputs);
  out += samples_html("Largest losses", of.worst, of.outputs);
  if (of.classes) {
    out += "<div class=\"beside\"><div>\n" +
           (of.classes->names.size() <= kMaxInMatrix ? confusion_matrix_html(*of.classes)
                                                     : confused_pairs_html(*of.classes)) +
           "</div><div>\n" + scores_html(*of.classes) + "</div></div>\n";
  }
  if (of.labels) out += labels_html(*of.labels);
  out += plots_html(of);
  return out;
}

}  // namespace

std::size_t evaluations_in(const std::string& page) {
  std::size_t count = 0;
  for (std::size_t at = page.find(kSummaryMark); at != page.npos;
       at = page.find(kSummaryMark, at + 1)) {
    ++count;
  }
  return count;
}

std::string evaluation_section(const std::vector<ReportedRun>& runs) {
  std::string body;
  for (const ReportedRun& run : runs) {
    if (!run.evaluation && run.evaluation_problem.empty()) continue;
    if (runs.size() > 1) {
      body += fmt::format("<details{}><summary><h3>{}</h3></summary>\n",
                          runs.size() <= kMaxOpen ? " open" : "", html_text(run.label));
    }
    if (run.evaluation) {
      body += evaluation_html(*run.evaluation);
    } else {
      body += fmt::format("<p class=\"warning\">Not evaluated: {}</p>\n",
                          html_text(run.evaluation_problem));
    }
    if (runs.size() > 1) body += "</details>\n";
  }
  if (body.empty()) return {};
  return section("evaluation", "Classes and mistakes", body);
}

}  // namespace dpt
