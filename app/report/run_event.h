#pragma once

#include <cstdint>
#include <string>

namespace dpt {

/// Something that happened once, in words.
struct RunEvent {
  enum class Weight { note, warning, failure };
  Weight weight = Weight::note;
  std::int64_t step = -1;  ///< -1: not known
  std::string words;
};

}  // namespace dpt
