// Code that all losses on the CPU share: the loop over samples, and the sums over them.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/backend.h"
#include "kernels/common/bf16.h"
#include "kernels/common/sample_sums.h"
#include "kernels/cpu/flat.h"

namespace dpt {

/// Inputs of one sample's loss, and addresses for its results.
struct LossInput {
  const float* logits = nullptr;
  std::int32_t label = 0;          ///< -1 if the sample has none
  const float* targets = nullptr;  ///< target of each output; null: the label is the target
  float scale = 1;
  float* gradient = nullptr;  ///< destination of gradient * scale, or null; may be the logits
  float* outputs = nullptr;   ///< see LossArgs::outputs
  bool wants_errors = false;
};

/// Loss of one sample.
struct LossRow {
  float loss = 0;
  std::int32_t prediction = 0;  ///< index of the largest output; the first if several are equal
  float weight = 1;
  bool counts = true;
  RowErrors errors;  ///< computed only on request
};

/// Loss operation over the rows of a batch. Always uses one thread, because a batch of outputs is
/// small and the loss is summed in sample order. Rows of bf16 outputs are widened to fp32, and
/// their gradients are rounded.
///
/// `rows(input)` computes the LossRow of a LossInput, without the sample's weight.
template <class T, class Rows>
class CpuLoss final : public LossOp {
 public:
  CpuLoss(LossDesc desc, Rows rows)
      : d_(std::move(desc)),
        sums_(sum_list(d_)),
        rows_(std::move(rows)),
        row_(d_.type == DType::bf16 ? static_cast<std::size_t>(d_.classes) : 0) {}

  void run(const LossArgs& args) override {
    const T* logits = host<const T>(args.logits);
    const auto* labels = host<const std::int32_t>(args.labels);
    const auto* slots = host<const std::int32_t>(args.slots);
    const float* targets = host<const float>(args.targets);
    float* outputs = host(args.outputs);
    T* gradient = d_.training ? host<T>(args.dlogits) : nullptr;
    float* sample_loss = host(args.sample_loss);
    float* sample_sums = host(args.sample_sums);
    auto* prediction = host<std::int32_t>(args.prediction);
    const float scale = gradient && args.inverse_count ? *host(args.inverse_count) : 1.0F;
    double loss_sum = 0, weight = 0, sums[kMaxMetricSums] = {};
    std::int64_t labelled = 0;
    for (std::int64_t k = 0; k < d_.batch; ++k) {
      const std::int64_t at = k * d_.classes;
      LossInput in;
      in.label = has_labels(d_.targets.kind) ? labels[slots[k]] : -1;
      assert(in.label < d_.classes && (in.label >= 0 || !has_labels(d_.targets.kind)));
      const float* target = targets ? targets + slots[k] * d_.targets.floats() : nullptr;
      if (d_.targets.values > 0) in.targets = target;
      const float own_weight = d_.targets.weighted ? target[d_.targets.values] : 1.0F;
      in.scale = scale * own_weight;
      in.outputs = outputs ? outputs + at : nullptr;
      in.wants_errors = sums_.errors;
      RowFacts facts;
      const LossRow row = weigh(
          run_row(logits + at, in, gradient ? gradient + at : nullptr, own_weight, facts.rank),
          own_weight);
      facts.is_right = row.prediction == in.label;
      facts.errors = row.errors;
      loss_sum += static_cast<double>(row.loss);
      weight += static_cast<double>(row.weight);
      labelled += row.counts ? 1 : 0;
      for (int i = 0; i < sums_.count; ++i) {
        const float value = row.counts ? sample_sum(sums_.of[i], facts) : 0.0F;
        sums[i] += static_cast<double>(value);
        if (sample_sums) sample_sums[k * sums_.count + i] = value;
      }
      if (sample_loss) sample_loss[k] = row.loss;
      if (prediction) prediction[k] = row.prediction;
    }
    auto* metrics = host<StepMetrics>(args.metrics);
    if (args.write == GradWrite::overwrite) {
      const float stop_votes = metrics->stop_votes;
      *metrics = StepMetrics{};
      metrics->stop_votes = stop_votes;
    }
    const auto add = [](float& to, double value) {
      to = static_cast<float>(static_cast<double>(to) + value);
    };
    add(metrics->loss_sum, loss_sum);
    add(metrics->weight, weight);
    metrics->count.add_count(d_.batch);
    metrics->labelled.add_count(labelled);
    for (int i = 0; i < sums_.count; ++i) add_to_sum(metrics->sums[i], sums_.of[i], sums[i]);
  }

 private:
  LossRow run_row(const float* logits, LossInput in, float* gradient, float own_weight,
                  std::int32_t& rank) {
    if (sums_.ranks) {
      for (std::int32_t c = 0; c < d_.classes; ++c) {
        rank += c != in.label && is_above(logits[c], c, logits[in.label], in.label) ? 1 : 0;
      }
    }
    in.logits = logits;
    // A sample that does not count has no gradient, whatever its outputs are.
    in.gradient = own_weight == 0 ? nullptr : gradient;
    const LossRow row = rows_(in);
    if (gradient && own_weight == 0) std::fill_n(gradient, d_.classes, 0.0F);
    return row;
  }
  LossRow run_row(const Bf16* logits, const LossInput& in, Bf16* gradient, float own_weight,
                  std::int32_t& rank) {
    for (std::size_t c = 0; c < row_.size(); ++c) row_[c] = to_float(logits[c]);
    const LossRow row =
        run_row(row_.data(), in, gradient ? row_.data() : nullptr, own_weight, rank);
    if (gradient) cpu_to_bf16(gradient, row_.data(), d_.classes);
    return row;
  }

  static LossRow weigh(LossRow row, float own_weight) {
    row.counts = row.counts && own_weight != 0;
    row.loss = row.counts ? row.loss * own_weight : 0.0F;
    row.weight = row.counts ? row.weight * own_weight : 0.0F;
    return row;
  }

  LossDesc d_;
  SumList sums_;
  Rows rows_;
  std::vector<float> row_;  ///< one row in fp32; empty if the rows are fp32
};

/// Creates the operation in the description's type.
template <class Rows>
std::unique_ptr<LossOp> make_cpu_loss(const LossDesc& desc, Rows rows) {
  if (desc.type == DType::bf16) {
    return std::make_unique<CpuLoss<Bf16, Rows>>(desc, std::move(rows));
  }
  return std::make_unique<CpuLoss<float, Rows>>(desc, std::move(rows));
}

}  // namespace dpt
