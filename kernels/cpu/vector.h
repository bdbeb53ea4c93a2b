// Vectors of four floats for every x86-64 and Arm processor. They use the vector extension of GCC
// and Clang, and serve loops whose branches compilers do not reliably turn into selects.
#pragma once

#include <cstdint>
#include <cstring>

namespace dpt {

using Float4 = float __attribute__((vector_size(16)));
using Int4 = std::int32_t __attribute__((vector_size(16)));

/// Loads a scalar or vector from memory of any alignment.
template <class T, class Element>
T load(const Element* from) {
  T value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

template <class T, class Element>
void store(Element* to, const T& value) {
  std::memcpy(to, &value, sizeof(value));
}

}  // namespace dpt
