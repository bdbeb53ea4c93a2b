// The sum of the ranks' gradients. It normally runs in the shard tree after backward. For large
// gradients of fast mode on GPUs or in several processes, it runs in buckets that overlap with
// backward.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/collectives/communicator.h"
#include "engine/graph/memory.h"
#include "engine/job/job.h"
#include "engine/replica/measurements.h"
#include "engine/replica/pass_memory.h"
#include "engine/replica/work_partition.h"

namespace dpt {

/// Used by the thread of its rank only; all ranks make the same calls.
class GradientSums {
 public:
  /// Decides whether sums overlap with backward. Collective.
  GradientSums(Communicator& communicator, const Job& job, const PassMemory& memory,
               Measurements& measurements);
  ~GradientSums() { communicator_.stop_sums(); }
  GradientSums(const GradientSums&) = delete;

  /// Returns true if sums over ranks overlap with backward.
  bool overlap() const { return !buckets_.empty(); }
  /// Returns a function to call, in the next step, after each node of the pass that completes the
  /// rank's gradients. The function is empty if sums do not overlap with backward.
  const std::function<void(int node)>& during_backward();
  /// Sums the gradients of all ranks into gradient buffer 0, which may already hold a part of this
  /// rank's gradients.
  void sum(const WorkPartition& partition);

  /// Returns "tree" or "overlapped with backward, in N buckets". Adds the reason if a large
  /// gradient of fast mode is not overlapped.
  const std::string& description() const { return description_; }

 private:
  void queue_next();

  Communicator& communicator_;
  const Job& job_;
  const PassMemory& memory_;
  Measurements& measurements_;
  std::vector<GradientBucket> buckets_;  ///< empty if sums come after backward, in the tree
  std::size_t next_ = 0;                 ///< next bucket in the current step
  std::function<void(int)> after_node_;
  std::string description_ = "tree";
  /// Partial sums of the current step; a member, so that a step allocates nothing.
  std::vector<PartialSum> parts_;
};

}  // namespace dpt
