#pragma once

#include <string>
#include <vector>

namespace dpt {

struct ConfigOptions {
  std::string config;
  std::vector<std::string> overrides;
  bool origins = false;
  bool expand = false;  ///< show: expand blocks into their layers
};

}  // namespace dpt
