#include "engine/replica/part_norms.h"

#include <algorithm>
#include <cassert>

#include "engine/graph/memory.h"
#include "kernels/base/divide.h"

namespace dpt {
namespace {

DevPtr at(DevPtr floats, std::int64_t index) {
  return floats + static_cast<std::size_t>(index) * sizeof(float);
}

/// [begin, end) without the ranges of `holes`, which are in order.
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

std::vector<std::size_t> part_ends(const WorkPartition& partition, bool together) {
  const auto& sizes = partition.shard_sizes;
  const bool one_shard =
      std::count_if(sizes.begin(), sizes.end(), [](std::int64_t size) { return size > 0; }) < 2;
  std::vector<std::size_t> ends, pieces;
  const std::vector<WorkAction>& actions = partition.actions;
  for (std::size_t i = 0; i < actions.size(); ++i) {
    if (actions[i].kind != WorkAction::Kind::train) continue;
    pieces.push_back(i);
    const bool is_last = i + 1 == actions.size() ||
                         actions[i + 1].kind != WorkAction::Kind::train ||
                         actions[i + 1].shard != actions[i].shard;
    if (is_last) ends.push_back(i);
  }
  if (!one_shard) return ends;
  if (together || pieces.size() < 2) return {};
  return {pieces[(pieces.size() - 1) / 2]};
}

bool couples_micro_batches(const Plan& plan) {
  return std::any_of(plan.nodes.begin(), plan.nodes.end(),
                     [](const Node& node) { return node.coupling.has_value(); });
}

PartLayout::PartLayout(const Job& job) {
  if (!job.spec.log.noise_scale) return;
  parts_ = job.spec.train.shards > 0 ? job.spec.train.shards : job.ranks();
  for (const GradientBucket& bucket : gradient_buckets(job.plan, job.bucket_bytes)) {
    const std::int64_t end = std::min(bucket.end, job.plan.trained_floats);
    buckets_.push_back(without({bucket.begin, end}, job.update.frozen));
    norms_ += static_cast<std::int64_t>(buckets_.back().size());
  }
}

std::int64_t PartLayout::floats() const {
  constexpr std::int64_t kWidth = 16;
  return ceil_div(begin(parts_), kWidth) * kWidth;
}

PartNorms::PartNorms(Backend& backend, [[maybe_unused]] const Job& job, const PartLayout& layout)
    : backend_(backend), layout_(layout) {
  assert(layout.is_empty() != job.spec.log.noise_scale);
  std::int64_t at = PartLayout::kCounts;
  for (const std::vector<Range>& ranges : layout.buckets()) {
    norms_.push_back(backend.range_norms(ranges));
    norms_at_.push_back(at);
    at += static_cast<std::int64_t>(ranges.size());
  }
}

void PartNorms::measure(std::int64_t part, DevPtr gradients, DevPtr metrics, DevPtr floats) {
  measure_counts(part, metrics, floats);
  for (std::size_t i = 0; i < norms_.size(); ++i) measure_bucket(i, part, gradients, floats);
}

void PartNorms::measure_counts(std::int64_t part, DevPtr metrics, DevPtr floats) {
  static_assert(offsetof(StepMetrics, labelled) + sizeof(SplitSum) -
                    offsetof(StepMetrics, weight) ==
                PartLayout::kCounts * sizeof(float));
  backend_.copy(at(floats, layout_.begin(part)), metrics + offsetof(StepMetrics, weight),
                PartLayout::kCounts * sizeof(float));
}

void PartNorms::measure_bucket(std::size_t bucket, std::int64_t part, DevPtr gradients,
                               DevPtr floats) {
  norms_[bucket]->run(gradients, at(floats, layout_.begin(part) + norms_at_[bucket]));
}

}  // namespace dpt
