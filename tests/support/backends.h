// The backends that kernel tests run on: one test body, this list.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/devices.h"

namespace dpt::testing {

/// Names for make_backend: one thread, several, and a card where there is one.
inline std::vector<std::string> backend_names() {
  std::vector<std::string> names = {"cpu", "cpu:2"};
  if (cuda_info().unavailable.empty()) names.push_back("cuda:0");
  return names;
}

}  // namespace dpt::testing
