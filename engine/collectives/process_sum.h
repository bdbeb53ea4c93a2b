// One process's part in a sum over the processes of a world. The parts of its ranks are added up to
// the nodes that it contributes (process_nodes.h), and each process adds the nodes of all processes
// for the elements that it owns. Then every process gets every element.
//
// If there are few elements, every process owns all of them: they are sent once, in one exchange,
// and every process adds them.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/collectives/communicator.h"
#include "engine/collectives/process_links.h"
#include "engine/collectives/process_nodes.h"
#include "engine/collectives/tree_sum.h"

namespace dpt {

/// The leader is the rank of this process that makes its exchanges. The caller must separate calls
/// of different ranks by a meeting, so that their effects are visible.
class ProcessSum {
 public:
  /// `ranks_of`: number of ranks of each process.
  ProcessSum(std::vector<int> ranks_of, ProcessLinks& links)
      : ranks_of_(std::move(ranks_of)), links_(links) {}

  /// Begins a sum of `count` floats. Called by the leader. `parts`: the parts of all ranks of this
  /// process, in rank order and in host memory; they are overwritten. `out`: destination of the
  /// result if this process has only one rank, or null. Throws ErrorKind::peer if the parts do not
  /// match the process's shards.
  void begin(std::int64_t shards, const SumTerms& terms, std::span<const PartialSum> parts,
             std::int64_t count, float* out);
  /// Performs part `index` of `count` of the additions in this process. Each rank performs a
  /// different part.
  void add_own(Backend& adder, int index, int count);
  /// Performs the exchanges, and the additions over processes. Called by the leader after all
  /// parts.
  void exchange(Backend& adder);
  /// Returns the result, which is the same on every process.
  const float* result() const { return result_; }

 private:
  /// Data that all sums of the same parts share.
  struct Plan {
    std::int64_t shards = 0;
    bool any_order = false;
    std::vector<Range> shards_of_ranks;
    std::vector<TreeNode> part_nodes;
    ProcessNodes nodes;
    std::int64_t most_nodes = 0;  ///< largest number of nodes of one process
    TreeSum sum;
  };
  Plan& plan_for(std::int64_t shards, const SumTerms& terms, std::span<const PartialSum> parts);
  std::int64_t nodes_of(int process) const {
    return static_cast<std::int64_t>(plan_->nodes.of_processes[process].size());
  }
  Range slice(std::int64_t q) const;
  Range own_slice() const { return slice(slices_ == 1 ? 0 : links_.rank()); }
  /// Returns the elements of slice `q` of this process's node `k`.
  float* staged(std::int64_t q, std::int64_t k);
  void add_slice(Backend& adder);

  const std::vector<int> ranks_of_;
  ProcessLinks& links_;
  std::vector<Plan> plans_;
  // State of the current sum.
  Plan* plan_ = nullptr;
  std::int64_t count_ = 0, slices_ = 1;
  std::vector<DevPtr> parts_;
  float *stage_ = nullptr, *result_ = nullptr;
  std::vector<float> stage_memory_, received_, sum_memory_;
  std::vector<std::span<const std::byte>> send_;
  std::vector<std::span<std::byte>> receive_;
};

}  // namespace dpt
