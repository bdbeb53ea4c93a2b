// The fields of a struct that decides by a monitored value: keep_best, early_stopping, plateau.
// They are made with a function that tells which values of a monitor are better: that of the
// metrics.
#pragma once

#include <optional>
#include <string>

#include "engine/config/train_spec.h"

namespace dpt {

/// Unset: nothing that is measured can have that name.
using BetterDirection = std::optional<Direction> (*)(const std::string& monitor);

/// A monitor whose better direction is not the one given would keep the worst. A name that is
/// wrong is an error by itself, which says more.
inline std::string check_direction(BetterDirection better, const std::string& monitor,
                                   Direction mode) {
  const std::optional<Direction> right = better(monitor);
  if (!right || mode == *right) return {};
  return fmt::format("expected mode: {} with monitor: {}, found {}", name_of(*right), monitor,
                     name_of(mode));
}

/// `monitor` of a struct with one.
template <class S>
Field monitor_field() {
  return field(
      "monitor", &S::monitor,
      "The value that is monitored: val/loss, val/accuracy, or val/ and the name of a "
      "metric. Data whose targets are values has no accuracy: the default is then val/loss.");
}

/// `mode` of a struct with a `monitor`.
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

/// `smoothing` of a struct with a `monitor`.
template <class S>
Field smoothing_field() {
  return field("smoothing", &S::smoothing,
               "Smooths the monitored value over the evaluations, against noise: smoothing * the "
               "average so far + (1 - smoothing) * the new value, corrected for the start, so that "
               "the first average is the first value. 0: the value itself. Non-finite values are "
               "left out.")
      .range(0, 0.9999);
}

}  // namespace dpt
