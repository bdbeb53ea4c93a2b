// Fields shared by the structs that decide by a monitored value: keep_best, early_stopping,
// plateau.
#pragma once

#include <optional>
#include <string>

#include "engine/config/train_spec.h"

namespace dpt {

/// Function that returns the direction in which a monitor improves; unset if no measured value can
/// have that name.
using BetterDirection = std::optional<Direction> (*)(const std::string& monitor);

/// Checks that the mode is the better direction of the monitor; the other one would keep the worst
/// value. Accepts an invalid name, because another check reports it with a better message.
inline std::string check_direction(BetterDirection better, const std::string& monitor,
                                   Direction mode) {
  const std::optional<Direction> right = better(monitor);
  if (!right || mode == *right) return {};
  return fmt::format("expected mode: {} with monitor: {}, found {}", name_of(*right), monitor,
                     name_of(mode));
}

/// Returns the field `monitor`.
template <class S>
Field monitor_field() {
  return field(
      "monitor", &S::monitor,
      "The value that is monitored: val/loss, val/accuracy, or val/ and the name of a "
      "metric. Data whose targets are values has no accuracy: the default is then val/loss.");
}

/// Returns the field `mode` of a struct with a `monitor`.
template <class S>
Field mode_field(BetterDirection better) {
  Field made = field("mode", &S::mode,
                     "Direction of improvement: higher (max) or lower (min) values are better.");
  made.leader = "monitor";
  made.follow = [better](const void* owner) -> PlainValue {
    return fields_detail::to_plain(
        better(static_cast<const S*>(owner)->monitor).value_or(Direction::min));
  };
  return made;
}

/// Returns the field `smoothing` of a struct with a `monitor`.
template <class S>
Field smoothing_field() {
  return field("smoothing", &S::smoothing,
               "Smooths the monitored value over the evaluations, against noise. The average "
               "becomes smoothing * the average so far + (1 - smoothing) * the new value, with a "
               "correction for the start: the first average is the first value. 0: no smoothing. "
               "Non-finite values are left out.")
      .range(0, 0.9999);
}

}  // namespace dpt
