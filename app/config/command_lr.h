#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dpt {

struct LrOptions {
  std::string config;
  std::vector<std::string> overrides;
  std::int64_t samples = 0;  ///< number of training samples; 0: that of the data set
  std::int64_t rows = 20;
  bool plot = false, json = false;
};

int run_config_lr(const LrOptions& options);

}  // namespace dpt
