#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/base/process_options.h"

namespace dpt {

struct BenchOptions {
  std::string config, devices, weights;
  std::vector<std::string> overrides;
  std::int64_t steps = 200, rounds = 9;
  bool serve = false, losses = false, calls = false, data = false, json = false;
  ProcessOptions processes;
  std::vector<std::string> command;  ///< see TrainOptions
};

}  // namespace dpt
