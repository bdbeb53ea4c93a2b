#include "engine/metrics/averaging.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace dpt {

double mean_of(const ClassValues& values) {
  double sum = 0, count = 0;
  for (const std::optional<double>& value : values) {
    if (!value) continue;
    sum += *value;
    count += 1;
  }
  return count == 0 ? NAN : sum / count;
}

NamedValues named(const ClassValues& values, const Measured& of) {
  NamedValues result;
  for (std::size_t c = 0; c < values.size(); ++c) {
    if (!values[c]) continue;
    result.emplace_back(c < of.class_names.size() ? of.class_names[c] : std::to_string(c),
                        *values[c]);
  }
  return result;
}

Metric averaged_metric(Average average,
                       const std::function<ClassValues(const Measured&)>& of_classes,
                       std::function<double(const Measured&)> micro) {
  Metric metric;
  metric.in_training = false;
  if (average == Average::micro) {
    metric.value = std::move(micro);
    return metric;
  }
  metric.value = [of_classes](const Measured& of) { return mean_of(of_classes(of)); };
  if (average == Average::per_class) {
    metric.by_class = [of_classes](const Measured& of) { return named(of_classes(of), of); };
  }
  return metric;
}

}  // namespace dpt
