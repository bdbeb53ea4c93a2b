#include "app/evaluate/class_tables.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "app/base/command_support.h"
#include "app/evaluate/predictions.h"
#include "engine/data/split.h"
#include "engine/data/target_rows.h"
#include "kernels/base/terminal.h"

namespace dpt {

std::string shown_name(const std::string& name) {
  constexpr std::size_t kMaxColumns = 24;
  const std::string text = printable(name);
  if (display_columns(text) <= kMaxColumns) return isolated(text);
  return isolated(std::string(first_columns(text, kMaxColumns - 3)) + "...");
}

namespace {

/// Maximum number of rows of a table. If there are more classes, it shows only the kWorst worst.
constexpr std::size_t kMaxRows = 20, kWorst = 10;
/// Maximum number of classes of a matrix that fits on a terminal.
constexpr std::size_t kMaxMatrixColumns = 12;
/// Maximum number of classes for which the complete matrix is written. A larger matrix is mostly
/// empty, so its nonzero counts are listed instead.
constexpr std::size_t kMaxDense = 1000;

using Confusion = std::pair<std::pair<std::int32_t, std::int32_t>, std::int64_t>;

std::string scores_line(const std::string& name, std::size_t width, const ClassScores& scores) {
  return fmt::format("  {}  {:>9.4f}  {:>6.4f}  {:>6.4f}  {:>7}\n", padded(name, width),
                     scores.precision, scores.recall, scores.f1, scores.support);
}

std::string scores_table(const EvaluatedClasses& of) {
  const std::vector<ClassScores>& classes = of.report.classes;
  std::vector<std::size_t> rows(classes.size());
  std::iota(rows.begin(), rows.end(), std::size_t{0});
  const bool shortened = rows.size() > kMaxRows;
  if (shortened) {
    // Leave out classes that neither occur nor were predicted.
    std::erase_if(rows, [&](std::size_t c) {
      return classes[c].support == 0 && classes[c].predictions == 0;
    });
    std::stable_sort(rows.begin(), rows.end(),
                     [&](std::size_t a, std::size_t b) { return classes[a].f1 < classes[b].f1; });
    rows.resize(std::min(rows.size(), kWorst));
  }
  const std::string mean = "macro average";
  std::size_t width = mean.size();
  for (const std::size_t c : rows)
    width = std::max(width, display_columns(shown_name(of.names[c])));
  std::string text = fmt::format("  {:<{}}  {:>9}  {:>6}  {:>6}  {:>7}\n", "class", width,
                                 "precision", "recall", "f1", "support");
  for (const std::size_t c : rows) {
    text += scores_line(shown_name(of.names[c]), width, classes[c]);
  }
  text += scores_line(mean, width, of.report.macro);
  if (shortened) {
    text += fmt::format("  (the {} worst of {} classes, by f1; --json has all)\n", rows.size(),
                        classes.size());
  }
  return text;
}

/// Makes correct predictions green and wrong ones red if `colours` is set.
std::string confusion_matrix(const EvaluatedClasses& of, bool colours) {
  const std::size_t classes = of.names.size();
  std::size_t width = 5, cell = std::to_string(classes - 1).size();
  for (const auto& [of_pair, count] : of.report.confusion) {
    cell = std::max(cell, std::to_string(count).size());
  }
  for (std::size_t c = 0; c < classes; ++c) {
    width = std::max(width, display_columns(fmt::format("{} {}", c, shown_name(of.names[c]))));
  }
  std::string text =
      fmt::format("confusion matrix (rows: labels, columns: predictions)\n  {:<{}}", "", width);
  for (std::size_t c = 0; c < classes; ++c) text += fmt::format("  {:>{}}", c, cell);
  text += "\n";
  for (std::size_t label = 0; label < classes; ++label) {
    text += "  " + padded(fmt::format("{} {}", label, shown_name(of.names[label])), width);
    for (std::size_t c = 0; c < classes; ++c) {
      const auto at = of.report.confusion.find(
          {static_cast<std::int32_t>(label), static_cast<std::int32_t>(c)});
      const std::int64_t count = at == of.report.confusion.end() ? 0 : at->second;
      const TextColour colour = c == label ? TextColour::green : TextColour::red;
      text += "  " + coloured(fmt::format("{:>{}}", count, cell), colour, colours && count > 0);
    }
    text += "\n";
  }
  return text;
}

std::string most_confused(const EvaluatedClasses& of) {
  std::vector<Confusion> wrong;
  for (const auto& [pair, count] : of.report.confusion) {
    if (pair.first != pair.second) wrong.emplace_back(pair, count);
  }
  if (wrong.empty()) return {};
  std::stable_sort(wrong.begin(), wrong.end(),
                   [](const Confusion& a, const Confusion& b) { return a.second > b.second; });
  wrong.resize(std::min(wrong.size(), kWorst));
  std::string text = "most frequent confusions (label -> prediction: samples; --json has all)\n";
  for (const auto& [pair, count] : wrong) {
    text += fmt::format("  {} -> {}: {}\n", shown_name(of.names[pair.first]),
                        shown_name(of.names[pair.second]), count);
  }
  return text;
}

}  // namespace

std::optional<EvaluatedClasses> evaluate_classes(const Job& job, const Split& split,
                                                 const EvalResult& result) {
  if (!has_labels(job.model.loss.targets.kind)) return std::nullopt;
  const SampleResults& samples = result.samples;
  TargetRows rows(split);
  std::vector<std::int32_t> labels, predictions;
  std::vector<float> confidence;
  for (std::size_t i = 0; i < samples.label.size(); ++i) {
    if (samples.left_out[i] || !job.model.loss.counts(samples.label[i], rows.weight(i))) continue;
    labels.push_back(samples.label[i]);
    predictions.push_back(samples.prediction[i]);
    confidence.push_back(samples.confidence[i]);
  }
  EvaluatedClasses evaluated;
  evaluated.report = make_class_report(labels, predictions, job.model.plan.classes);
  if (std::string(name_of_outputs(job.spec.loss.type)) == "probability") {
    evaluated.calibration_error = calibration_error(labels, predictions, confidence);
    evaluated.calibration = calibration_bins(labels, predictions, confidence);
  }
  for (std::size_t c = 0; c < evaluated.report.classes.size(); ++c) {
    evaluated.names.push_back(name_of(split.source->classes(), c));
  }
  return evaluated;
}

void add_classes(Json& out, const EvaluatedClasses& of) {
  const auto add_scores = [](Json& to, const ClassScores& scores) {
    to["precision"] = scores.precision;
    to["recall"] = scores.recall;
    to["f1"] = scores.f1;
  };
  if (of.calibration_error) out["calibration_error"] = *of.calibration_error;
  add_scores(out["macro"], of.report.macro);
  Json& classes = out["classes"] = Json::array();
  for (std::size_t c = 0; c < of.names.size(); ++c) {
    Json line = {{"name", of.names[c]}};
    add_scores(line, of.report.classes[c]);
    line["support"] = of.report.classes[c].support;
    classes.push_back(std::move(line));
  }
  if (of.names.size() > kMaxDense) {
    Json& pairs = out["confusion_pairs"] = Json::array();
    for (const auto& [pair, count] : of.report.confusion) {
      pairs.push_back({pair.first, pair.second, count});
    }
    return;
  }
  std::vector<std::vector<std::int64_t>> matrix(of.names.size(),
                                                std::vector<std::int64_t>(of.names.size(), 0));
  for (const auto& [pair, count] : of.report.confusion) {
    matrix[pair.first][pair.second] = count;
  }
  out["confusion"] = matrix;
}

std::string text_of_classes(const EvaluatedClasses& of, bool colours) {
  std::string text = scores_table(of);
  text += of.names.size() <= kMaxMatrixColumns ? confusion_matrix(of, colours) : most_confused(of);
  if (of.calibration_error) {
    text += fmt::format("expected calibration error ({} bins): {:.4f}\n", kCalibrationBins,
                        *of.calibration_error);
  }
  return text;
}

}  // namespace dpt
