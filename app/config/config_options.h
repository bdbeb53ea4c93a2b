#pragma once

#include <string>
#include <vector>

namespace dpt {

struct ConfigOptions {
  std::string config;
  std::vector<std::string> overrides;
  bool origins = false;
  bool expand = false;  ///< show: the layers that blocks stand for
};

}  // namespace dpt
