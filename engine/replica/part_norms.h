// log.noise_scale: the norms of the gradients of parts of a batch, measured before they are added.
// They stand in floats after the step's metrics, which the step's one sum over ranks carries along:
// every part has floats of its own, which its rank writes and which are zero everywhere else.
//
// The parts are the shards of the batch: in fast mode what each replica has of it. Of a batch that
// is one shard, the part is the first half of its micro-batches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/job/job.h"
#include "engine/replica/work_partition.h"

namespace dpt {

/// After which of a partition's actions the action's buffer holds the gradient of a part;
/// ascending, and empty where this rank has none. `together`: all micro-batches of a shard go
/// through a pass together, so that no half of them has a gradient.
std::vector<std::size_t> part_ends(const WorkPartition& partition, bool together);

/// Whether some layer makes micro-batches go through a pass together (Lockstep::couples_pieces).
bool couples_micro_batches(const Plan& plan);

/// The floats of each part, and where they are.
class PartLayout {
 public:
  /// With log.noise_scale off, there are none.
  explicit PartLayout(const Job& job);
  bool is_empty() const { return parts_ == 0; }
  /// Of all parts, padded to 16.
  std::int64_t floats() const;
  /// Where part `part` begins, which is a shard's number.
  std::int64_t begin(std::int64_t part) const { return part * (kCounts + norms()); }
  /// What is trained, as GradientSums' buckets cut it, without what is frozen.
  const std::vector<std::vector<Range>>& buckets() const { return buckets_; }

  /// StepMetrics::weight and the two floats of StepMetrics::labelled of the part; its norms follow,
  /// in the order of `buckets`.
  static constexpr std::int64_t kCounts = 3;
  std::int64_t norms() const { return norms_; }

 private:
  std::int64_t parts_ = 0, norms_ = 0;
  std::vector<std::vector<Range>> buckets_;
};

/// Measures the parts of one rank. Used by the thread of its backend.
class PartNorms {
 public:
  PartNorms(Backend& backend, const Job& job, const PartLayout& layout);
  bool is_on() const { return !layout_.is_empty(); }

  /// Queues what reads all of a gradient buffer: its gradient is that of `part`. `metrics` and
  /// `floats` are those of the buffer.
  void measure(std::int64_t part, DevPtr gradients, DevPtr metrics, DevPtr floats);
  /// The same in pieces: first the counts, then each bucket.
  void measure_counts(std::int64_t part, DevPtr metrics, DevPtr floats);
  void measure_bucket(std::size_t bucket, std::int64_t part, DevPtr gradients, DevPtr floats);

 private:
  Backend& backend_;
  const PartLayout& layout_;
  std::vector<std::unique_ptr<RangeNormsOp>> norms_;  ///< of each bucket
  std::vector<std::int64_t> norms_at_;                ///< of each bucket, in the part's floats
};

}  // namespace dpt
