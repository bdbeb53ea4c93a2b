#include "app/evaluate/predictions.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include <fmt/ranges.h>

#include "app/base/csv_field.h"
#include "datasets/dataset.h"
#include "engine/config/secrets.h"
#include "engine/data/split.h"
#include "engine/data/target_rows.h"
#include "engine/data/wrapped_source.h"
#include "engine/metrics/label_counts.h"

namespace dpt {
namespace {

/// Returns the last column names: loss, and weight if samples have weights.
std::string last_names(const TargetRows& targets) {
  return targets.weighted() ? ",loss,weight" : ",loss";
}
std::string last(TargetRows& targets, std::size_t position, float loss) {
  return targets.weighted() ? fmt::format(",{:.9g},{:.9g}", loss, targets.weight(position))
                            : fmt::format(",{:.9g}", loss);
}

/// Returns true if the samples are image files, whose paths describe() returns.
bool are_images(const DataSource& source) {
  const auto* wrapper = dynamic_cast<const WrappedSource*>(&source);
  return source.resizes() || (wrapper && are_images(wrapper->wrapped()));
}

/// Returns the names of the first columns, which identify a sample by its index and, if it is an
/// image file, its path.
std::string first_names(const Split& split) {
  return are_images(*split.source) ? "index,path" : "index";
}
std::string first_fields(const Split& split, std::size_t position) {
  const std::int64_t index = split.indices[position];
  std::string text = std::to_string(index);
  if (are_images(*split.source)) {
    text += "," + csv_field(hide_secrets(split.source->describe(index)));
  }
  return text;
}

std::string labels_table(const Job& job, const Split& split, const SampleResults& samples,
                         bool all_outputs) {
  const auto width = static_cast<std::size_t>(job.model.plan.classes);
  const std::vector<std::string>& names = split.source->classes();
  const std::string output = name_of_outputs(job.spec.loss.type);
  TargetRows targets(split);
  const auto name = [&](std::int32_t label) {
    return csv_field(name_of(names, static_cast<std::size_t>(label)));
  };
  std::string text = first_names(split) + ",label,prediction,label_name,prediction_name" +
                     last_names(targets) + "," + output;
  for (std::size_t c = 0; all_outputs && c < width; ++c) {
    text += "," + csv_field(output + "_" + name_of(names, c));
  }
  text += "\n";
  for (std::size_t i = 0; i < samples.loss.size(); ++i) {
    text += first_fields(split, i);
    if (samples.left_out[i]) {
      // Unknown fields are empty: prediction, its name, loss, output and all outputs.
      text += fmt::format(",{},,{},,,", samples.label[i], name(samples.label[i]));
      text += std::string(all_outputs ? width : 0, ',') + "\n";
      continue;
    }
    text += fmt::format(",{},{},{},{}", samples.label[i], samples.prediction[i],
                        name(samples.label[i]), name(samples.prediction[i]));
    text += last(targets, i, samples.loss[i]);
    text += fmt::format(",{:.9g}", samples.confidence[i]);
    for (std::size_t c = 0; all_outputs && c < width; ++c) {
      text += fmt::format(",{:.9g}", samples.outputs[i * width + c]);
    }
    text += "\n";
  }
  return text;
}

/// Returns the table of samples whose targets are rows of numbers: the target and the prediction of
/// each output.
std::string outputs_table(const Split& split, const SampleResults& samples,
                          const LabelText& labels) {
  const auto width = static_cast<std::size_t>(split.source->targets().values);
  TargetRows targets(split);
  std::string text = first_names(split);
  if (labels) text += ",labels,predicted_labels";
  for (const char* what : {"target", "prediction"}) {
    for (std::size_t c = 0; c < width; ++c) {
      text += "," + csv_field(fmt::format("{}_{}", what, name_of(split.source->classes(), c)));
    }
  }
  text += last_names(targets) + "\n";
  for (std::size_t i = 0; i < samples.loss.size(); ++i) {
    const std::span<const float> row = targets.values(i);
    text += first_fields(split, i);
    if (labels) {
      const std::span<const float> outputs = std::span(samples.outputs).subspan(i * width, width);
      text += "," + csv_field(labels.of_targets(row)) + "," + csv_field(labels.predicted(outputs));
    }
    for (std::size_t c = 0; c < width; ++c) text += fmt::format(",{:.9g}", row[c]);
    for (std::size_t c = 0; c < width; ++c) {
      text += fmt::format(",{:.9g}", samples.outputs[i * width + c]);
    }
    text += last(targets, i, samples.loss[i]) + "\n";
  }
  return text;
}

}  // namespace

const char* name_of_outputs(const std::string& loss) {
  return loss == "cross_entropy" || loss == "bce_with_logits" ? "probability" : "output";
}

std::string name_of(const std::vector<std::string>& names, std::size_t index) {
  return index < names.size() ? names[index] : std::to_string(index);
}

std::string predictions_table(const Job& job, const Split& split, const SampleResults& samples,
                              bool all_outputs, const LabelText& labels) {
  return has_labels(split.source->targets().kind) ? labels_table(job, split, samples, all_outputs)
                                                  : outputs_table(split, samples, labels);
}

std::vector<std::string> LabelText::names_above(std::span<const float> outputs) const {
  std::vector<std::string> above;
  for (std::size_t c = 0; c < outputs.size(); ++c) {
    if (outputs[c] > threshold_of(thresholds, c)) above.push_back(name_of(names, c));
  }
  return above;
}

std::string LabelText::predicted(std::span<const float> outputs) const {
  return fmt::format("{}", fmt::join(names_above(outputs), std::string_view(&separator, 1)));
}

std::string LabelText::of_targets(std::span<const float> targets) const {
  return LabelText{names, {}, separator}.predicted(targets);
}

LabelText label_text(const TrainSpec& spec, std::vector<std::string> names) {
  const DatasetKind& kind = dataset_kind(spec.data.dataset);
  const char separator = kind.declares ? kind.declares(spec.data.dataset).label_separator : '\0';
  return {std::move(names), thresholds_of(spec.metrics), separator};
}

std::vector<std::size_t> largest_outputs(std::span<const float> outputs, std::size_t prediction,
                                         std::size_t most) {
  std::vector<std::size_t> order(outputs.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto value = [&](std::size_t c) {
    return std::isnan(outputs[c]) ? -std::numeric_limits<float>::infinity() : outputs[c];
  };
  // Put the prediction first. It is chosen by the logits, which may differ even if the outputs are
  // equal in fp32.
  const auto comes_before = [&](std::size_t a, std::size_t b) {
    if ((a == prediction) != (b == prediction)) return a == prediction;
    const float of_a = value(a), of_b = value(b);
    return of_a != of_b ? of_a > of_b : a < b;
  };
  const auto end = order.begin() + static_cast<std::ptrdiff_t>(std::min(most, order.size()));
  std::partial_sort(order.begin(), end, order.end(), comes_before);
  order.erase(end, order.end());
  return order;
}

}  // namespace dpt
