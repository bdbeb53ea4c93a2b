#include "app/evaluate/label_tables.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "app/evaluate/class_tables.h"
#include "app/evaluate/predictions.h"
#include "engine/data/split.h"
#include "engine/data/target_rows.h"
#include "kernels/base/terminal.h"

namespace dpt {
namespace {

/// Maximum number of labels in a table. If there are more, only the kWorstLabels worst are shown.
constexpr std::size_t kMaxLabelRows = 20, kWorstLabels = 10;

/// Returns the number with four decimals for a table, or "-" for NaN.
std::string table_number(double value) {
  return std::isnan(value) ? "-" : fmt::format("{:.4f}", value);
}

struct LabelColumns {
  std::size_t width;  ///< width of names
  bool best;

  std::string line(const std::string& name, const std::vector<std::string>& cells) const {
    std::string text = "  " + padded(name, width);
    const std::vector<std::size_t> widths = {9, 6, 6, 6, 7, 9, 14, 7};
    for (std::size_t i = 0; i < cells.size(); ++i) {
      text += fmt::format("  {:>{}}", cells[i], widths[i]);
    }
    return text + "\n";
  }
  std::string line_of(const std::string& name, const LabelScores& scores) const {
    std::vector<std::string> cells = {
        table_number(scores.counts.precision()), table_number(scores.counts.recall()),
        table_number(scores.counts.f1()),        table_number(scores.average_precision),
        std::to_string(scores.counts.support),   fmt::format("{:.4g}", scores.threshold)};
    if (best) {
      cells.push_back(table_number(scores.best.threshold));
      cells.push_back(table_number(scores.best.f1));
    }
    return line(name, cells);
  }
  std::string line_of(const std::string& name, const LabelMeans& means) const {
    return line(name, {table_number(means.precision), table_number(means.recall),
                       table_number(means.f1), table_number(means.average_precision)});
  }
};

/// Returns the labels that a table shows: all, or those with the smallest F1.
std::vector<std::size_t> rows_to_show(const std::vector<LabelScores>& labels) {
  std::vector<std::size_t> rows(labels.size());
  std::iota(rows.begin(), rows.end(), std::size_t{0});
  if (rows.size() <= kMaxLabelRows) return rows;
  std::stable_sort(rows.begin(), rows.end(), [&](std::size_t a, std::size_t b) {
    return labels[a].counts.f1() < labels[b].counts.f1();
  });
  rows.resize(kWorstLabels);
  return rows;
}

/// Returns the best thresholds as a line for a config. A label without positive samples keeps its
/// current threshold.
std::string line_for_config(const LabelReport& report) {
  std::vector<std::string> thresholds;
  for (const LabelScores& label : report.labels) {
    const double value =
        std::isnan(label.best.f1) ? static_cast<double>(label.threshold) : label.best.threshold;
    thresholds.push_back(fmt::format("{:.9g}", value));
  }
  return fmt::format("metrics: [{{type: f1, threshold: [{}]}}]\n", fmt::join(thresholds, ", "));
}

void add_means(Json& to, const LabelMeans& means) {
  to["precision"] = means.precision;
  to["recall"] = means.recall;
  to["f1"] = means.f1;
  to["average_precision"] = means.average_precision;
}

}  // namespace

std::optional<EvaluatedLabels> evaluate_labels(const Job& job, const Split& split,
                                               const EvalResult& result) {
  if (job.model.loss.targets.kind != TargetKind::multi_hot) return std::nullopt;
  TargetRows rows(split);
  std::vector<std::size_t> counting;
  for (std::size_t i = 0; i < result.samples.label.size(); ++i) {
    if (job.model.loss.counts(result.samples.label[i], rows.weight(i))) counting.push_back(i);
  }
  const auto width = static_cast<std::size_t>(job.model.plan.classes);
  const std::vector<float> outputs = rows_of(result.samples.outputs, counting, width);
  const std::vector<std::uint8_t> hot = hot_targets(split, counting);
  const std::vector<std::int32_t> labels(counting.size());
  Measured measured;
  measured.labels = labels;
  measured.classes = job.model.plan.classes;
  measured.outputs = outputs;
  measured.hot = hot;
  EvaluatedLabels evaluated;
  evaluated.report = make_label_report(measured, thresholds_of(job.spec.metrics));
  for (std::size_t c = 0; c < width; ++c) {
    evaluated.names.push_back(name_of(split.source->classes(), c));
  }
  return evaluated;
}

void add_labels(Json& out, const EvaluatedLabels& of, bool with_best_thresholds) {
  add_means(out["macro"], of.report.macro);
  add_means(out["micro"], of.report.micro);
  Json& labels = out["labels"] = Json::array();
  for (std::size_t c = 0; c < of.names.size(); ++c) {
    const LabelScores& scores = of.report.labels[c];
    Json line = {{"name", of.names[c]},
                 {"precision", scores.counts.precision()},
                 {"recall", scores.counts.recall()},
                 {"f1", scores.counts.f1()},
                 {"average_precision", scores.average_precision},
                 {"auroc", scores.auroc ? Json(*scores.auroc) : Json()},
                 {"support", scores.counts.support},
                 {"threshold", scores.threshold}};
    if (with_best_thresholds) {
      const bool is_known = !std::isnan(scores.best.f1);
      line["best_threshold"] = is_known ? Json(scores.best.threshold) : Json();
      line["best_f1"] = is_known ? Json(scores.best.f1) : Json();
    }
    labels.push_back(std::move(line));
  }
}

std::string text_of_labels(const EvaluatedLabels& of, bool with_best_thresholds) {
  const std::vector<std::size_t> rows = rows_to_show(of.report.labels);
  LabelColumns columns{std::string("macro average").size(), with_best_thresholds};
  for (const std::size_t c : rows) {
    columns.width = std::max(columns.width, display_columns(shown_name(of.names[c])));
  }
  std::vector<std::string> heading = {"precision", "recall", "f1", "AP", "support", "threshold"};
  if (with_best_thresholds) {
    heading.emplace_back("best threshold");
    heading.emplace_back("best f1");
  }
  std::string text = columns.line("label", heading);
  for (const std::size_t c : rows) {
    text += columns.line_of(shown_name(of.names[c]), of.report.labels[c]);
  }
  text += columns.line_of("macro average", of.report.macro);
  text += columns.line_of("micro average", of.report.micro);
  if (rows.size() < of.names.size()) {
    text += fmt::format("  (the {} worst of {} labels, by f1; --json has all)\n", rows.size(),
                        of.names.size());
  }
  if (with_best_thresholds) {
    text += "the best thresholds, for a config:\n  " + line_for_config(of.report);
  }
  return text;
}

}  // namespace dpt
