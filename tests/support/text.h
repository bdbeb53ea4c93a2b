// Test helpers that check for substrings of a string and count them.
#pragma once

#include <doctest/doctest.h>

#include <cstddef>
#include <string>

namespace dpt::testing {

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// Fails, showing both texts, if `part` is not in `text`.
inline void check_contains(const std::string& text, const std::string& part) {
  INFO("looked for: ", part, "\nin: ", text);
  CHECK(contains(text, part));
}

/// Returns how often `part` occurs in `text`.
inline std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t n = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

}  // namespace dpt::testing
