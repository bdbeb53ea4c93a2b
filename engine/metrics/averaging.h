// Averages over classes: the option `average` of f1, auroc and others.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/metrics/metric.h"
#include "kernels/base/enum_names.h"

namespace dpt {

enum class Average : std::uint8_t { macro, micro, per_class };
constexpr auto enum_names(Average) {
  return std::to_array<EnumName<Average>>(
      {{Average::macro, "macro"}, {Average::micro, "micro"}, {Average::per_class, "per_class"}});
}

/// A value for each class, absent if the mean leaves the class out.
using ClassValues = std::vector<std::optional<double>>;

/// Returns the mean of the values; NaN if all are absent.
double mean_of(const ClassValues& values);

/// Returns the present values with the names of their classes.
NamedValues named(const ClassValues& values, const Measured& of);

/// Documentation of the field `average`.
inline constexpr const char* kAverageDoc =
    "Kind of average over the classes; the metric's name begins with it (macro_, micro_, "
    "per_class_). macro: the mean over the classes, each with the same weight. micro: one value "
    "over the decisions for all classes together. per_class: like macro, but the evaluation's log "
    "line and dpt eval also have the value of each class.";

/// Returns a metric that is measured only in evaluations. Its macro average is the mean of
/// `of_classes`.
Metric averaged_metric(Average average,
                       const std::function<ClassValues(const Measured&)>& of_classes,
                       std::function<double(const Measured&)> micro);

/// Returns true if the sample belongs to the class: by its label, or by a target above 0.5.
inline bool is_positive(const Measured& of, std::size_t sample, std::size_t c) {
  return of.hot.empty() ? of.labels[sample] == static_cast<std::int32_t>(c)
                        : of.hot[sample * static_cast<std::size_t>(of.classes) + c] != 0;
}

}  // namespace dpt
