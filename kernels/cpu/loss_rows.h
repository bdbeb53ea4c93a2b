// What all losses on the CPU share: the loop over samples, and the sums over them.
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

/// The loss of one sample.
struct LossRow {
  float loss = 0;
  std::int32_t prediction = 0;  ///< index of the largest output, the first of equal ones
  float weight = 1;
  bool counts = true;
  float absolute = 0, squared = 0;  ///< mean errors, where SumList::errors
};

/// One thread for any team: a batch of outputs is small, and the loss is summed in sample order. A
/// row of bf16 outputs is widened, computed on in fp32, and its gradient rounded.
///
/// `rows(logits, label, scale, gradient, wants_errors)` computes a LossRow of fp32 outputs; the
/// gradient, times `scale`, goes to `gradient` unless that is null; it may be where the outputs
/// are.
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
    T* gradient = d_.training ? host<T>(args.dlogits) : nullptr;
    float* sample_loss = host(args.sample_loss);
    float* sample_sums = host(args.sample_sums);
    auto* prediction = host<std::int32_t>(args.prediction);
    const float scale = gradient && args.inverse_count ? *host(args.inverse_count) : 1.0F;
    double loss_sum = 0, weight = 0, sums[kMostMetricSums] = {};
    std::int64_t labelled = 0;
    for (std::int64_t k = 0; k < d_.batch; ++k) {
      const std::int32_t label = labels[slots[k]];
      assert(label >= 0 && label < d_.classes);
      const std::int64_t at = k * d_.classes;
      RowFacts facts;
      const LossRow row =
          run_row(logits + at, label, scale, gradient ? gradient + at : nullptr, facts.rank);
      facts.is_right = row.prediction == label;
      facts.absolute = row.absolute;
      facts.squared = row.squared;
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
    if (args.write == GradWrite::overwrite) *metrics = {.stop_votes = metrics->stop_votes};
    const auto add = [](float& to, double value) {
      to = static_cast<float>(static_cast<double>(to) + value);
    };
    add(metrics->loss_sum, loss_sum);
    add(metrics->weight, weight);
    metrics->count += static_cast<float>(d_.batch);
    metrics->labelled += static_cast<float>(labelled);
    for (int i = 0; i < sums_.count; ++i) add(metrics->sums[i], sums[i]);
  }

 private:
  LossRow run_row(const float* logits, std::int32_t label, float scale, float* gradient,
                  std::int32_t& rank) {
    if (sums_.ranks) {
      for (std::int32_t c = 0; c < d_.classes; ++c) {
        rank += c != label && is_above(logits[c], c, logits[label], label) ? 1 : 0;
      }
    }
    return rows_(logits, label, scale, gradient, sums_.errors);
  }
  LossRow run_row(const Bf16* logits, std::int32_t label, float scale, Bf16* gradient,
                  std::int32_t& rank) {
    for (std::size_t c = 0; c < row_.size(); ++c) row_[c] = to_float(logits[c]);
    const LossRow row = run_row(row_.data(), label, scale, gradient ? row_.data() : nullptr, rank);
    if (gradient) cpu_to_bf16(gradient, row_.data(), d_.classes);
    return row;
  }

  LossDesc d_;
  SumList sums_;
  Rows rows_;
  std::vector<float> row_;  ///< one row in fp32; empty where the rows are
};

/// The operation in the description's type.
template <class Rows>
std::unique_ptr<LossOp> make_cpu_loss(const LossDesc& desc, Rows rows) {
  if (desc.type == DType::bf16) {
    return std::make_unique<CpuLoss<Bf16, Rows>>(desc, std::move(rows));
  }
  return std::make_unique<CpuLoss<float, Rows>>(desc, std::move(rows));
}

}  // namespace dpt
