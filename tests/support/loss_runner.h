// Runs a loss of a backend on host vectors of fp32 or bf16.
#pragma once

#include <cmath>
#include <initializer_list>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/backend.h"
#include "kernels/common/bf16.h"
#include "tests/support/op_runner.h"

namespace dpt::testing {

/// Targets of the samples, as a loss reads them.
struct LossTargets {
  std::vector<std::int32_t> labels;  ///< one per sample, even if the loss reads only rows
  std::vector<float> rows;           ///< TargetShape::floats() per sample; empty if that is 0
  LossTargets(std::vector<std::int32_t> all, std::vector<float> of_samples = {})
      : labels(std::move(all)), rows(std::move(of_samples)) {}
  LossTargets(std::initializer_list<std::int32_t> all) : labels(all) {}
};

struct LossResult {
  std::vector<float> gradient, sample_loss;
  std::vector<float> outputs;  ///< empty unless requested
  std::vector<std::int32_t> prediction;
  std::vector<float> sample_sums;
  StepMetrics metrics;
};

/// Runs the loss. T is float or Bf16, as in the operation's description. The gradient overwrites
/// the logits and is multiplied by `inverse_count`, if given. `sums` is the number of sums in the
/// description. Samples lie in reverse order, separated by unused rows that must not be read.
template <class T>
LossResult run_loss(Backend& backend, LossOp& op, const std::vector<T>& logits,
                    const LossTargets& targets, std::optional<float> inverse_count = 0.25F,
                    std::size_t sums = 1, bool wants_outputs = false) {
  const std::vector<std::int32_t>& labels = targets.labels;
  const std::size_t n = labels.size(), width = targets.rows.size() / n;
  std::vector<std::int32_t> slots, spread(2 * n, -1);
  std::vector<float> rows(2 * n * width, NAN);
  for (std::size_t k = 0; k < n; ++k) {
    const std::size_t slot = 2 * (n - 1 - k) + 1;
    slots.push_back(static_cast<std::int32_t>(slot));
    spread[slot] = labels[k];
    for (std::size_t i = 0; i < width; ++i) rows[slot * width + i] = targets.rows[k * width + i];
  }
  const OnDevice<T> x(backend, logits);
  const OnDevice<std::int32_t> places(backend, slots), all(backend, spread),
      prediction(backend, labels);
  const OnDevice<float> dense(backend, rows);
  const OnDevice<float> outputs(backend, std::vector<float>(logits.size(), NAN));
  const OnDevice<float> scale(backend, {inverse_count.value_or(0.0F)}),
      loss(backend, std::vector<float>(labels.size()));
  const OnDevice<StepMetrics> metrics(backend, {StepMetrics{}});
  const OnDevice<float> sample_sums(backend, std::vector<float>(labels.size() * sums));
  LossArgs args;
  args.logits = args.dlogits = x.ptr();
  args.labels = all.ptr();
  if (width > 0) args.targets = dense.ptr();
  if (wants_outputs) args.outputs = outputs.ptr();
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
  if (wants_outputs) result.outputs = outputs.get();
  result.prediction = prediction.get();
  result.metrics = metrics.get()[0];
  return result;
}

template <class T>
LossResult run_loss(Backend& backend, const CrossEntropyDesc& d, const std::vector<T>& logits,
                    const LossTargets& labels) {
  return run_loss(backend, *backend.make_loss(d), logits, labels);
}

inline std::vector<std::int32_t> some_labels(std::int64_t batch, std::int64_t classes) {
  std::vector<std::int32_t> labels;
  for (std::int64_t k = 0; k < batch; ++k) {
    labels.push_back(static_cast<std::int32_t>((k * 7919 + 3) % classes));
  }
  return labels;
}

}  // namespace dpt::testing
