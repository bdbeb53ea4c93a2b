// Strict reading of YAML text into a TrainSpec: reports every error of a file in one run.
#pragma once

#include <string>
#include <vector>

#include "engine/config/issue.h"
#include "engine/config/train_spec.h"

namespace dpt {

struct ReadResult {
  TrainSpec spec;                   ///< valid only when issues is empty
  std::vector<ConfigIssue> issues;  ///< in order of position
};

/// Reads `file` with everything it extends, then applies `overrides` ("a.b=v", the value is YAML;
/// list items by index or name). Never throws for a bad config; throws ErrorKind::usage when the
/// file cannot be read at all. `catalog` must outlive the result.
ReadResult read_spec(const Catalog& catalog, const std::string& file,
                     const std::vector<std::string>& overrides = {});

/// Reads a config from text; `file` is used in messages and to resolve relative paths.
ReadResult read_spec_text(const Catalog& catalog, const std::string& text, const std::string& file,
                          const std::vector<std::string>& overrides = {});

/// Reads a config. If it has issues, throws one Error with a line for each: ErrorKind::data if all
/// concern the data, else ErrorKind::usage.
TrainSpec load_spec(const Catalog& catalog, const std::string& file,
                    const std::vector<std::string>& overrides = {});
TrainSpec load_spec_text(const Catalog& catalog, const std::string& text, const std::string& file,
                         const std::vector<std::string>& overrides = {});

/// Reads a config that dpt stored (show_spec). Former names in a config of an older release are
/// replaced, and fields that it lacks have their defaults. Throws ErrorKind::data when it cannot be
/// read, ErrorKind::usage for a bad override.
TrainSpec load_stored_spec(const Catalog& catalog, const std::string& text, const std::string& file,
                           const std::vector<std::string>& overrides = {});

/// The samples that the model of a checkpoint is to predict.
struct DataToPredict {
  /// Config whose data section and seed are used; empty = those of the stored config.
  std::string config;
  std::vector<std::string> overrides;  ///< overrides of the data section
  bool needs_labels = false;           ///< samples are evaluated, not only predicted
};

/// Reads the config stored in `file` like load_stored_spec, but with other data. The data section
/// may lack batch_size and, unless needs_labels, the fields that locate labels. Transforms and
/// batch_size are always the stored ones.
TrainSpec load_spec_to_predict(const Catalog& catalog, const std::string& text,
                               const std::string& file, const std::vector<std::string>& overrides,
                               const DataToPredict& samples);

}  // namespace dpt
