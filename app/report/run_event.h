#pragma once

#include <cstdint>
#include <string>

namespace dpt {

/// A single event of a run, as text.
struct RunEvent {
  enum class Weight { note, warning, failure };
  Weight weight = Weight::note;
  std::int64_t step = -1;  ///< -1: unknown
  std::string words;
};

}  // namespace dpt
