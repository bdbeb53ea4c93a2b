#include "app/evaluate/prediction_lines.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "app/base/csv_field.h"
#include "app/evaluate/predict_options.h"
#include "app/evaluate/predictions.h"
#include "engine/config/secrets.h"
#include "kernels/base/json_text.h"

namespace dpt {

PredictionLines::PredictionLines(const PredictOptions& options, const Job& job,
                                 const DataSource& samples, bool are_data, LabelText labels)
    : has_index_(are_data),
      has_path_(samples.resizes()),
      names_(samples.classes()),
      labels_(std::move(labels)),
      output_(name_of_outputs(job.spec.loss.type)),
      width_(static_cast<std::size_t>(job.model.plan.classes)),
      top_(static_cast<std::size_t>(options.top)),
      labelled_(has_labels(job.model.loss.targets.kind)),
      json_(options.format == "jsonl") {}

std::string PredictionLines::first() const {
  if (json_) return {};
  std::string text = has_index_ ? "index" : "";
  if (has_path_) text += has_index_ ? ",path" : "path";
  for (std::size_t k = 1; labelled_ && k <= top_; ++k) {
    const std::string number = k > 1 ? fmt::format("_{}", k) : std::string();
    text += fmt::format(",prediction{0},prediction_name{0},{1}{0}", number, output_);
  }
  if (labels_) text += ",predicted_labels";
  for (std::size_t c = 0; !labelled_ && c < width_; ++c) {
    text += "," + csv_field("prediction_" + name_of(names_, c));
  }
  return text + "\n";
}

/// Returns the line of sample `index` of a part. Its results are at `position` in `samples`.
/// `problem`, if not null, is the reason why the sample could not be read.
std::string PredictionLines::line(const PredictedPart& part, std::int64_t index,
                                  const SampleResults& samples, std::size_t position,
                                  const std::string* problem) const {
  const Name name{part.first_index + index,
                  has_path_ ? hide_secrets(part.source->describe(index)) : std::string()};
  const std::span<const float> outputs =
      std::span(samples.outputs).subspan(position * width_, width_);
  std::vector<std::size_t> classes;
  if (labelled_ && !problem) {
    classes =
        largest_outputs(outputs, static_cast<std::size_t>(samples.prediction[position]), top_);
  }
  return json_ ? json_line(name, outputs, classes, problem)
               : csv_line(name, outputs, classes, problem);
}

std::string PredictionLines::csv_line(const Name& name, std::span<const float> outputs,
                                      const std::vector<std::size_t>& classes,
                                      const std::string* problem) const {
  std::string text = has_index_ ? std::to_string(name.index) : std::string();
  if (has_path_) text += (has_index_ ? "," : "") + csv_field(name.path);
  const std::size_t fields = (labelled_ ? 3 * top_ : width_) + (labels_ ? 1 : 0);
  if (problem) return text + std::string(fields, ',') + "\n";
  for (const std::size_t c : classes) {
    text += fmt::format(",{},{},{:.9g}", c, csv_field(name_of(names_, c)), outputs[c]);
  }
  if (labels_) text += "," + csv_field(labels_.predicted(outputs));
  for (std::size_t c = 0; !labelled_ && c < width_; ++c) {
    text += fmt::format(",{:.9g}", outputs[c]);
  }
  return text + "\n";
}

std::string PredictionLines::json_line(const Name& name, std::span<const float> outputs,
                                       const std::vector<std::size_t>& classes,
                                       const std::string* problem) const {
  Json line = Json::object();
  if (has_index_) line["index"] = name.index;
  if (has_path_) line["path"] = name.path;
  const auto add = [&](Json& to, std::size_t c) {
    to["prediction"] = c;
    to["prediction_name"] = name_of(names_, c);
    to[output_] = outputs[c];
  };
  if (problem) {
    line["error"] = hide_secrets(*problem);
    return json_text(line) + "\n";
  }
  if (labelled_) add(line, classes[0]);
  if (labelled_ && top_ > 1) {
    Json& top = line["top"] = Json::array();
    for (const std::size_t c : classes) {
      top.push_back(Json::object());
      add(top.back(), c);
    }
  }
  if (labels_) line["predicted_labels"] = labels_.names_above(outputs);
  for (std::size_t c = 0; !labelled_ && c < width_; ++c) {
    line["prediction_" + name_of(names_, c)] = outputs[c];
  }
  return json_text(line) + "\n";
}

}  // namespace dpt
