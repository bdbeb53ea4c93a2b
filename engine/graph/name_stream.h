// Random streams keyed by name, so that adding or reordering layers does not change the draws of
// other layers.
#pragma once

#include <cstdint>
#include <string_view>

namespace dpt {

/// Returns the stream of a name: FNV-1a, 64 bits (Fowler, Noll, Vo).
inline std::uint64_t stream_of(std::string_view name) {
  std::uint64_t hash = 0xCBF29CE484222325ULL;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3ULL;
  return hash;
}

}  // namespace dpt
