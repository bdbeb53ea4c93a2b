#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dpt {

/// A tensor to write; `data` is borrowed.
struct TensorView {
  std::string name;
  std::string dtype;  ///< "F32", "I64", "U8", ...
  std::vector<std::int64_t> shape;
  const void* data = nullptr;
};

}  // namespace dpt
