// The fields of a struct that decides by a monitored value: keep_best, early_stopping, plateau.
#pragma once

#include <string>

#include "engine/spec/train_spec.h"

namespace dpt {

/// A monitor whose better direction is not the one given would keep the worst.
inline std::string check_direction(Monitor monitor, Direction mode) {
  if (mode == better_direction(monitor)) return {};
  return fmt::format("expected mode: {} with monitor: {}, found {}",
                     name_of(better_direction(monitor)), name_of(monitor), name_of(mode));
}

/// `mode` of a struct with a `monitor`.
template <class S>
Field mode_field() {
  return field("mode", &S::mode, "Whether higher (max) or lower (min) values are better.")
      .follows(
          "monitor", +[](const S& s) { return better_direction(s.monitor); });
}

/// `smoothing` of a struct with a `monitor`.
template <class S>
Field smoothing_field() {
  return field("smoothing", &S::smoothing,
               "Smooths the monitored value over the evaluations, against noise: smoothing * the "
               "average so far + (1 - smoothing) * the new value, corrected for the start, so that "
               "the first average is the first value. 0: the value itself. Values that are not "
               "finite are left out.")
      .range(0, 0.9999);
}

}  // namespace dpt
