// Runs a loss of a backend on host vectors of either type.
#pragma once

#include <optional>
#include <vector>

#include "kernels/backend.h"
#include "kernels/common/bf16.h"
#include "tests/support/op_runner.h"

namespace dpt::testing {

struct LossResult {
  std::vector<float> gradient, sample_loss;
  std::vector<std::int32_t> prediction;
  std::vector<float> sample_sums;
  StepMetrics metrics;
};

/// T is float or Bf16, as the operation's description says. The gradient overwrites the logits; it
/// is multiplied by `inverse_count`, if there is one. `sums`: how many the description has.
template <class T>
LossResult run_loss(Backend& backend, LossOp& op, const std::vector<T>& logits,
                    const std::vector<std::int32_t>& labels,
                    std::optional<float> inverse_count = 0.25F, std::size_t sums = 1) {
  std::vector<std::int32_t> slots;
  for (std::size_t k = 0; k < labels.size(); ++k) slots.push_back(static_cast<std::int32_t>(k));
  const OnDevice<T> x(backend, logits);
  const OnDevice<std::int32_t> places(backend, slots), all(backend, labels),
      prediction(backend, labels);
  const OnDevice<float> scale(backend, {inverse_count.value_or(0.0F)}),
      loss(backend, std::vector<float>(labels.size()));
  const OnDevice<StepMetrics> metrics(backend, {StepMetrics{}});
  const OnDevice<float> sample_sums(backend, std::vector<float>(labels.size() * sums));
  LossArgs args;
  args.logits = args.dlogits = x.ptr();
  args.labels = all.ptr();
  args.slots = places.ptr();
  args.metrics = metrics.ptr();
  args.sample_loss = loss.ptr();
  args.sample_sums = sample_sums.ptr();
  args.prediction = prediction.ptr();
  if (inverse_count) args.inverse_count = scale.ptr();
  op.run(args);
  LossResult result;
  for (const T value : x.get()) result.gradient.push_back(to_float(value));
  result.sample_loss = loss.get();
  result.sample_sums = sample_sums.get();
  result.prediction = prediction.get();
  result.metrics = metrics.get()[0];
  return result;
}

template <class T>
LossResult run_loss(Backend& backend, const CrossEntropyDesc& d, const std::vector<T>& logits,
                    const std::vector<std::int32_t>& labels) {
  return run_loss(backend, *backend.cross_entropy(d), logits, labels);
}

inline std::vector<std::int32_t> some_labels(std::int64_t batch, std::int64_t classes) {
  std::vector<std::int32_t> labels;
  for (std::int64_t k = 0; k < batch; ++k) {
    labels.push_back(static_cast<std::int32_t>((k * 7919 + 3) % classes));
  }
  return labels;
}

}  // namespace dpt::testing
