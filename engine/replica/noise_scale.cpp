#include "engine/replica/noise_scale.h"

#include <algorithm>
#include <cmath>

#include "kernels/base/text.h"

namespace dpt {
namespace {

/// What an average keeps of itself at each step: it looks back over about 100.
constexpr double kDecay = 0.99;

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

std::optional<GradientNoise> noise_of(const StepResult& result, const PartLayout& layout,
                                      bool is_weighted) {
  if (!result.grad_norm) return std::nullopt;
  // The gradients are those of the sum of the losses, or of that sum over the samples of the batch.
  const double scale = is_weighted ? 1.0 : result.metrics.count.value();
  double parts = 0, samples = 0, squares = 0;
  const std::int64_t stride = layout.begin(1);
  for (std::size_t at = 0; at + static_cast<std::size_t>(stride) <= result.part_norms.size();
       at += static_cast<std::size_t>(stride)) {
    const auto floats = std::span(result.part_norms).subspan(at, static_cast<std::size_t>(stride));
    const double weight = floats[0], labelled = SplitSum{floats[1], floats[2]}.value();
    if (!(weight > 0) || !(labelled > 0)) continue;
    double square = 0;
    for (const float norm : floats.subspan(PartLayout::kCounts)) {
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

NoiseScale::NoiseScale(const Job& job)
    : layout_(job), is_weighted_(job.train_loss().is_weighted()) {}

void NoiseScale::add(const StepResult& result) {
  if (!is_on()) return;
  const std::optional<GradientNoise> noise = noise_of(result, layout_, is_weighted_);
  if (!noise) return;
  sums_.grad_sq += (1 - kDecay) * (noise->grad_sq - sums_.grad_sq);
  sums_.variance += (1 - kDecay) * (noise->variance - sums_.variance);
  weight_ += (1 - kDecay) * (1 - weight_);
}

std::optional<GradientNoise> NoiseScale::average() const {
  if (weight_ == 0) return std::nullopt;
  // The sums begin at zero: what they lack is what the weights of the steps lack to 1.
  return GradientNoise{sums_.grad_sq / weight_, sums_.variance / weight_};
}

std::string problem_of_noise_scale(const Job& job) {
  if (!job.spec.log.noise_scale) return {};
  const std::int64_t batch = job.batch_range(0).size();
  const bool together = couples_micro_batches(job.plan);
  for (int rank = 0; rank < job.ranks(); ++rank) {
    const WorkPartition partition =
        partition_batch(batch, job.device_weights, rank, job.spec.train.shards,
                        {job.max_micro_batches[rank], job.spec.train.accumulate});
    if (!part_ends(partition, together).empty()) return {};
  }
  if (batch < 2) {
    return "log.noise_scale compares the gradients of a batch and of parts of it, but a batch has "
           "one sample: use data.batch_size 2 or more, or log.noise_scale=false";
  }
  const auto coupling = std::find_if(job.plan.nodes.begin(), job.plan.nodes.end(),
                                     [](const Node& node) { return node.coupling.has_value(); });
  const std::string why =
      together ? fmt::format("and layer '{}' combines all of its samples", coupling->name)
               : fmt::format("which computes all {} samples of a batch at once", batch);
  const bool exact = job.spec.train.shards > 0;
  return fmt::format(
      "log.noise_scale compares the gradients of a batch and of parts of it, but here a batch has "
      "no parts: there is one {}, {}. Use {}{}, or log.noise_scale=false",
      exact ? "shard" : "replica", why,
      exact ? "train.shards=2" : "two devices, or train.shards=2 (exact mode)",
      together ? "" : ", or train.accumulate=2");
}

}  // namespace dpt
