#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/base/process_options.h"

namespace dpt {

struct PredictOptions {
  std::string target, split, out, devices, use, format = "csv";
  /// Images and folders of images. For a data set: overrides of the data section and, optionally, a
  /// config whose data section replaces the run's.
  std::vector<std::string> inputs;
  std::int64_t top = 1;
  ProcessOptions processes;
  std::vector<std::string> command;  ///< see TrainOptions
};

}  // namespace dpt
