// Contribution of a sample to the sums of metrics, written once for every backend.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/backend.h"
#include "kernels/base/error.h"
#include "kernels/base/host_device.h"

namespace dpt {

/// LossDesc::sums in the form that kernels take.
struct SumList {
  MetricSum of[kMaxMetricSums] = {};
  int count = 0;
  bool ranks = false;   ///< true if some sums need RowFacts::rank
  bool errors = false;  ///< true if some sums need RowFacts::errors
};

/// Mean errors of a sample's outputs.
struct RowErrors {
  float absolute = 0, squared = 0;
  float matches = 0;  ///< share of the outputs on the target's side of 0.5
};

/// Facts about a sample's outputs, known after its loss was computed.
struct RowFacts {
  bool is_right = false;  ///< true if the label's output is the largest
  std::int32_t rank = 0;  ///< number of outputs that rank above the label's
  RowErrors errors;
};

DPT_HOST_DEVICE inline float sample_sum(const MetricSum& sum, const RowFacts& facts) {
  switch (sum.kind) {
    case SampleSum::top_k:
      return (sum.k == 1 ? facts.is_right : facts.rank < sum.k) ? 1.0F : 0.0F;
    case SampleSum::absolute_error:
      return facts.errors.absolute;
    case SampleSum::squared_error:
      return facts.errors.squared;
    case SampleSum::matches:
      return facts.errors.matches;
    case SampleSum::none:
      break;
  }
  return 0;
}

/// Adds `of_samples` to the sum for `kind` in StepMetrics. `of_samples` is the total of `kind` over
/// some samples.
DPT_HOST_DEVICE inline void add_to_sum(SplitSum& sum, const MetricSum& kind, double of_samples) {
  if (kind.kind == SampleSum::top_k) {
    sum.add_count(static_cast<std::int64_t>(of_samples));
  } else {
    sum.add(of_samples);
  }
}

/// Returns true if output c ranks above the label's output.
DPT_HOST_DEVICE inline bool is_above(float value, std::int32_t c, float at_label,
                                     std::int32_t label) {
  // If the label's output is NaN, every output ranks above it.
  return !(value < at_label || (value == at_label && c >= label));
}

/// Returns true if an output or a target is above 0.5, which means that the class applies.
DPT_HOST_DEVICE inline bool is_hot(float value) {
  return value > 0.5F;
}

inline SumList sum_list(const LossDesc& desc) {
  if (desc.sums.size() > kMaxMetricSums) {
    fail(ErrorKind::device, "a loss adds up at most {} sums for metrics, not {}", kMaxMetricSums,
         desc.sums.size());
  }
  SumList list;
  list.count = static_cast<int>(desc.sums.size());
  std::copy(desc.sums.begin(), desc.sums.end(), list.of);
  for (const MetricSum& sum : desc.sums) {
    list.ranks = list.ranks || (sum.kind == SampleSum::top_k && sum.k != 1);
    list.errors = list.errors || (sum.kind != SampleSum::top_k && sum.kind != SampleSum::none);
  }
  return list;
}

}  // namespace dpt
