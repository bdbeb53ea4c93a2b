#include "engine/measurements/noise_scale.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/graph/memory.h"
#include "engine/measurements/kinds.h"

namespace dpt {
namespace {

/// Decay per step of an average, which then covers about 100 steps.
constexpr double kDecay = 0.99;

DevPtr at(DevPtr floats, std::int64_t index) {
  return floats + static_cast<std::size_t>(index) * sizeof(float);
}

/// Returns the parts of `whole` outside `holes`, which are in ascending order.
std::vector<Range> without(Range whole, std::span<const UpdateRange> holes) {
  std::vector<Range> rest;
  for (const UpdateRange& hole : holes) {
    const std::int64_t end = std::min(hole.begin, whole.end);
    if (end > whole.begin) rest.push_back({whole.begin, end});
    whole.begin = std::max(whole.begin, hole.begin + hole.count);
  }
  if (whole.end > whole.begin) rest.push_back(whole);
  return rest;
}

}  // namespace

std::optional<double> GradientNoise::scale() const {
  if (!(grad_sq > 0) || !(variance >= 0)) return std::nullopt;
  return variance / grad_sq;
}

GradientNoise noise_of(double small_sq, double small, double big_sq, double big) {
  GradientNoise noise;
  noise.grad_sq = (big * big_sq - small * small_sq) / (big - small);
  noise.variance = (small_sq - big_sq) / (1 / small - 1 / big);
  return noise;
}

PartLayout::PartLayout(const Job& job)
    : parts(job.spec.train.shards > 0 ? job.spec.train.shards : job.placement.ranks()) {
  for (const GradientBucket& bucket :
       gradient_buckets(job.model.plan, job.placement.bucket_bytes)) {
    const std::int64_t end = std::min(bucket.end, job.model.plan.trained_floats);
    buckets.push_back(without({bucket.begin, end}, job.update.plan.frozen));
    norms += static_cast<std::int64_t>(buckets.back().size());
  }
}

std::optional<GradientNoise> noise_of(const StepResult& result, std::span<const float> floats,
                                      const PartLayout& layout, bool is_weighted) {
  if (!result.grad_norm) return std::nullopt;
  // If the loss is weighted, the gradients are those of the sum of the losses. Otherwise, they are
  // those of that sum divided by the number of samples in the batch.
  const double scale = is_weighted ? 1.0 : result.metrics.count.value();
  double parts = 0, samples = 0, squares = 0;
  const auto stride = static_cast<std::size_t>(layout.begin(1));
  for (; floats.size() >= stride; floats = floats.subspan(stride)) {
    const double weight = floats[0], labelled = SplitSum{floats[1], floats[2]}.value();
    if (!(weight > 0) || !(labelled > 0)) continue;
    double square = 0;
    for (const float norm : floats.first(stride).subspan(PartLayout::kCounts)) {
      square += static_cast<double>(norm) * static_cast<double>(norm);
    }
    parts += 1;
    samples += labelled;
    squares += labelled * square * (scale / weight) * (scale / weight);
  }
  const double big = result.metrics.labelled.value();
  if (parts == 0 || !(samples / parts < big)) return std::nullopt;
  const GradientNoise noise =
      noise_of(squares / samples, samples / parts, *result.grad_norm * *result.grad_norm, big);
  if (!std::isfinite(noise.grad_sq) || !std::isfinite(noise.variance)) return std::nullopt;
  return noise;
}

/// Measurement that averages each of GradientNoise's two estimates over steps.
class NoiseScale final : public Measurement {
 public:
  NoiseScale(Backend& backend, const Job& job)
      : backend_(backend), layout_(job), is_weighted_(job.model.train_loss().is_weighted()) {
    std::int64_t at = PartLayout::kCounts;
    for (const std::vector<Range>& ranges : layout_.buckets) {
      norms_.push_back({backend.range_norms(ranges), at});
      at += static_cast<std::int64_t>(ranges.size());
    }
  }

  std::int64_t floats() const override { return layout_.floats(); }

  void measure_part(const PartGradient& part, std::size_t bucket) override {
    const DevPtr floats = at(part.floats, layout_.begin(part.part));
    if (bucket == 0) {
      constexpr std::size_t kBytes = PartLayout::kCounts * sizeof(float);
      static_assert(offsetof(StepMetrics, labelled) + sizeof(SplitSum) -
                        offsetof(StepMetrics, weight) ==
                    kBytes);
      backend_.copy(floats, part.metrics + offsetof(StepMetrics, weight), kBytes);
    }
    norms_[bucket].op->run(part.gradients, at(floats, norms_[bucket].begin));
  }

  void take(const StepResult& result, std::span<const float> floats) override {
    const auto noise = noise_of(result, floats, layout_, is_weighted_);
    if (!noise) return;
    sums_.grad_sq += (1 - kDecay) * (noise->grad_sq - sums_.grad_sq);
    sums_.variance += (1 - kDecay) * (noise->variance - sums_.variance);
    weight_ += (1 - kDecay) * (1 - weight_);
  }

  void log(Json& line) const override {
    if (weight_ == 0) return;
    // The sums begin at zero, which biases them by the factor weight_. So divide by it.
    const GradientNoise average = {sums_.grad_sq / weight_, sums_.variance / weight_};
    line["grad_sq"] = average.grad_sq;
    line["grad_variance"] = average.variance;
    if (const auto scale = average.scale()) line["noise_scale"] = *scale;
  }

 private:
  struct BucketNorms {
    std::unique_ptr<RangeNormsOp> op;
    std::int64_t begin;  ///< index of its norms in the floats of a part
  };

  Backend& backend_;
  PartLayout layout_;
  bool is_weighted_;
  std::vector<BucketNorms> norms_;  ///< one per bucket
  GradientNoise sums_;
  double weight_ = 0;  ///< total weight of the steps in the sums
};

MeasurementKind noise_scale_measurement() {
  return {"noise_scale",
          "Also log the gradient noise scale, in samples: roughly the batch size beyond which "
          "larger batches save few steps. Needs two replicas, shards or micro-batches.",
          true, &make_measurement<NoiseScale>};
}

}  // namespace dpt
