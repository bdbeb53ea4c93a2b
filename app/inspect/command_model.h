#pragma once

#include <string>
#include <vector>

namespace dpt {

struct ModelOptions {
  std::string config;
  std::vector<std::string> overrides;
  bool json = false;
};

int run_model_summary(const ModelOptions& options);

}  // namespace dpt
