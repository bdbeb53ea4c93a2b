#include "engine/replica/gradient_sums.h"

#include <algorithm>

#include "engine/graph/memory.h"
#include "kernels/base/text.h"
#include "kernels/devices.h"

namespace dpt {

GradientSums::GradientSums(Communicator& communicator, const Job& job, const PassMemory& memory,
                           Measurements& measurements)
    : communicator_(communicator), job_(job), memory_(memory), measurements_(measurements) {
  const std::int64_t bytes =
      job_.model.plan.grad_floats() * static_cast<std::int64_t>(sizeof(float));
  // All ranks must make the same decision. They take it first from the job, which all of them know,
  // then in a collective call. Sums between processes wait for a network, so CPUs overlap them too.
  const bool all_overlap = std::all_of(
      job_.placement.devices.begin(), job_.placement.devices.end(), [&](const DeviceName& device) {
        const DeviceName& first = job_.placement.devices.front();
        return device.kind == first.kind &&
               (device.traits().overlaps_sums || job_.placement.processes);
      });
  if (communicator_.size() == 1 || job_.spec.train.shards > 0 || !all_overlap ||
      bytes < job_.placement.overlap_from_bytes) {
    return;
  }
  std::string why_not;
  if (!communicator_.set_up_overlapped_sums(why_not)) {
    description_ = fmt::format("tree ({})", why_not);
    return;
  }
  buckets_ = gradient_buckets(job_.model.plan, job_.placement.bucket_bytes);
  description_ = fmt::format("overlapped with backward, in {} bucket(s)", buckets_.size());
  after_node_ = [this](int node) {
    while (next_ < buckets_.size() && buckets_[next_].node == node) queue_next();
  };
}

void GradientSums::queue_next() {
  if (measurements_.measures_parts()) {
    // In fast mode a part consists of a replica's samples, and after this moment their gradient is
    // no longer separate. The metrics are in the first bucket.
    measurements_.measure_bucket(memory_.part_gradient(communicator_.rank(), 0), next_);
  }
  const GradientBucket& bucket = buckets_[next_++];
  communicator_.sum_overlapped(
      memory_.gradients(0) + static_cast<std::size_t>(bucket.begin) * sizeof(float),
      bucket.end - bucket.begin);
}

const std::function<void(int node)>& GradientSums::during_backward() {
  next_ = 0;
  return after_node_;
}

void GradientSums::sum(const WorkPartition& partition) {
  if (overlap()) {
    // Sum the remaining buckets: a rank without samples contributes zeros.
    while (next_ < buckets_.size()) queue_next();
    if (measurements_.measures_parts()) {
      communicator_.sum_overlapped(memory_.part_floats(0), measurements_.part_floats());
    }
    communicator_.finish_sums();
    return;
  }
  parts_.clear();
  for (const WorkPartition::Part& part : partition.parts) {
    parts_.push_back({part.node, memory_.first_gradient(part.buffer)});
  }
  communicator_.all_reduce(partition.shards, parts_, memory_.first_gradient(0),
                           memory_.gradient_floats(),
                           {partition.shards_of_ranks, job_.spec.train.shards == 0});
}

}  // namespace dpt
