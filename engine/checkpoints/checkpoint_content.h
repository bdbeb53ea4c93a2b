// The content of a checkpoint in host memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/checkpoints/run_state.h"
#include "engine/config/train_spec.h"
#include "kernels/base/types.h"

namespace dpt {

/// Names of the states that are averages of the weights (train.ema, train.swa). Unlike the
/// optimizer's states, they also contain running statistics.
inline constexpr const char* kEma = "ema";
inline constexpr const char* kSwa = "swa";
bool is_average(const std::string& state);

/// A whole checkpoint in host memory, in buffer layout.
struct Checkpoint {
  RunState state;
  std::vector<float> params;                                          ///< Plan::param_floats values
  std::vector<std::pair<std::string, std::vector<float>>> optimizer;  ///< state name -> values
  std::string config;                                                 ///< resolved config, YAML
  std::vector<std::string> classes;
  /// Kind of the data's targets; unset in files of older releases.
  std::optional<TargetKind> targets;
  std::vector<std::string> features;  ///< DataSource::features
  std::optional<DType> sample_type;   ///< DataSource::type; unset in files of older releases
  std::string dataset_fingerprint;    ///< fingerprint of the training data
  std::int64_t train_samples = 0;     ///< size of the train split; 0 in files of older releases
  std::string test_fingerprint;       ///< fingerprint of the test data; empty without any
  std::string val_fingerprint;        ///< validation samples; empty if none or in older files
  std::int64_t shards = 0;            ///< 0 = fast mode
  std::vector<std::string> devices;
  std::string made_by;   ///< library versions and instruction set
  std::string checksum;  ///< checksum of the file from which it was loaded
};

/// Returns the average of the weights: its name, and its values in the layout of `params`. Null if
/// no average is kept, or if the average contains no epoch yet.
const std::pair<std::string, std::vector<float>>* average_of(const Checkpoint& checkpoint);

/// Content of a checkpoint other than its tensors.
struct CheckpointHeader {
  std::string config;
  std::vector<std::string> classes;
  std::optional<TargetKind> targets;  ///< unset in files from before 1.6
  std::vector<std::string> features;  ///< a table's column names; none in files before 1.7
  std::optional<DType> sample_type;   ///< unset in files from before 1.7
  std::int64_t train_samples = 0;     ///< 0 in files from before 1.8
  RunState state;
  std::int64_t shards = 0;
  std::vector<std::string> devices;
  std::string made_by, dataset_fingerprint, test_fingerprint, val_fingerprint;
  std::string checksum;  ///< SafetensorsFile::stored_checksum()
};

}  // namespace dpt
