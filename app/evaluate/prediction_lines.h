// The lines that dpt predict prints.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "app/evaluate/predict_options.h"
#include "app/evaluate/predicted_samples.h"
#include "app/evaluate/predictions.h"
#include "engine/training/evaluator.h"

namespace dpt {

/// Formats the line of each sample.
class PredictionLines {
 public:
  /// `samples` is the source of the first part. `labels`: see LabelText.
  PredictionLines(const PredictOptions& options, const Job& job, const DataSource& samples,
                  bool are_data, LabelText labels);

  /// Returns the first line, the header; empty for formats without one.
  std::string first() const;

  /// Returns the line of sample `index` of a part. Its results are at `position` in `samples`.
  /// `problem`, if not null, is the reason why the sample could not be read.
  std::string line(const PredictedPart& part, std::int64_t index, const SampleResults& samples,
                   std::size_t position, const std::string* problem) const;

 private:
  /// Identification of a sample for scripts.
  struct Name {
    std::int64_t index = 0;
    std::string path;
  };
  std::string csv_line(const Name& name, std::span<const float> outputs,
                       const std::vector<std::size_t>& classes, const std::string* problem) const;
  std::string json_line(const Name& name, std::span<const float> outputs,
                        const std::vector<std::size_t>& classes, const std::string* problem) const;

  bool has_index_, has_path_;
  std::vector<std::string> names_;
  LabelText labels_;
  std::string output_;
  std::size_t width_, top_;
  bool labelled_, json_;
};

}  // namespace dpt
