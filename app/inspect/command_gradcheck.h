#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dpt {

struct GradcheckOptions {
  std::string config, device = "cpu";
  std::vector<std::string> overrides;
  std::int64_t samples = 0;  ///< 0: 8, or all samples if there are fewer
  bool random = false, json = false;
};

int run_model_gradcheck(const GradcheckOptions& options);

}  // namespace dpt
