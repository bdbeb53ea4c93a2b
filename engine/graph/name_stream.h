// The random stream of a named thing, so that adding a layer or changing the order of layers
// changes no other one's draws.
#pragma once

#include <cstdint>
#include <string_view>

namespace dpt {

/// FNV-1a, 64 bits (Fowler, Noll, Vo).
inline std::uint64_t stream_of(std::string_view name) {
  std::uint64_t hash = 0xCBF29CE484222325ULL;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3ULL;
  return hash;
}

}  // namespace dpt
