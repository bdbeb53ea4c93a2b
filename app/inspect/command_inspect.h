#pragma once

#include <string>

namespace dpt {

struct InspectOptions {
  std::string file;
  bool json = false;
};

int run_inspect(const InspectOptions& options);

}  // namespace dpt
