// The contract between ranks. The only state that ranks share is inside a Communicator.
//
// All ranks make the same calls in the same order. A call returns the same on every rank, or throws
// on every rank: when one rank aborts, the current or next call of every other rank throws an
// ErrorKind::peer Error that carries the first cause. No call waits for longer than the stall
// timeout for a rank without a heartbeat (kernels/base/heartbeat.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/collectives/shard_tree.h"
#include "kernels/backend.h"

namespace dpt {

/// One part of a rank's contribution to a sum: a tree node, with the buffer that holds its sum.
struct PartialSum {
  TreeNode node;
  DevPtr data;  ///< the `count` floats of all_reduce, which overwrites them
};

/// Distribution of a sum's shards over the ranks, and the permitted order of the additions; the
/// same on every rank.
struct SumTerms {
  /// Shards of each rank; empty = one each. (Ranks of a single process ignore this.)
  std::span<const Range> shards_of_ranks;
  /// True if the additions may have any order, as long as it is fixed for a given layout of ranks
  /// over processes. This moves fewer bytes if the shards of a process form several tree nodes.
  bool any_order = false;
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// Sums over all shards in the tree's order: the bits of the result depend only on the shards,
  /// not on the number of ranks, their processes or timing. Together the ranks' parts cover shards
  /// 0..shards-1 once, in rank order; a rank may have none. `out` (count floats) receives the sum
  /// on every rank and may be one of the rank's own parts.
  virtual void all_reduce(std::int64_t shards, std::span<const PartialSum> parts, DevPtr out,
                          std::int64_t count, const SumTerms& terms = {}) = 0;
  /// Returns true if all_reduce only queues work on this rank's own backend, so that a
  /// CapturedGraph may contain it.
  virtual bool can_be_recorded() const { return false; }

  // Sums that overlap with the computation, for large gradients in fast mode. The order of their
  // additions is not the tree's, but is fixed for one set of devices.

  /// Prepares overlapped sums. Collective; call it once. Returns true if the functions below can be
  /// used; otherwise sets `why_not` to the reason.
  virtual bool set_up_overlapped_sums(std::string& why_not) {
    why_not = "there is one replica";
    return false;
  }
  /// Queues the sum over ranks of `count` floats, in place. All ranks queue the same sums in the
  /// same order. The sum begins when the work queued so far has run, and overlaps with work that is
  /// queued later.
  virtual void sum_overlapped(DevPtr, std::int64_t) {}
  /// Delays all work that is queued after this call until all sums have finished.
  virtual void finish_sums() {}
  /// Runs `wait`, which waits for work of this rank's backend that may depend on sums. Throws
  /// ErrorKind::peer if sums were aborted before `wait` returned: all results computed since the
  /// abort are invalid.
  virtual void wait_for_sums(const std::function<void()>& wait) { wait(); }
  /// Ends all sums. None is running when this returns, so their memory can be freed. After a
  /// failure, sums in progress are abandoned.
  virtual void stop_sums() noexcept {}

  /// Copies the bytes of rank `root` to all ranks. `data` is in host memory and should be small;
  /// its size must be the same on every rank.
  virtual void broadcast(std::span<std::byte> data, int root) = 0;
  /// Gathers the bytes of all ranks into `all`, which has size() blocks of mine.size() bytes in
  /// rank order.
  virtual void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) = 0;
  virtual void barrier() = 0;

  /// Wakes all other ranks with the cause. Callable from any thread, any number of times; the first
  /// cause wins. Never throws.
  virtual void abort(const std::string& cause) noexcept = 0;
};

/// The ranks of this process, each of which gets a communicator.
class RankGroup {
 public:
  virtual ~RankGroup() = default;
  /// Creates the communicator of a rank. Call it once per rank, from that rank's thread. From then
  /// on, heartbeats of that thread and of threads that it starts count for the rank. The group and
  /// the backend must outlive the communicator. `rank` is the number within this process.
  virtual std::unique_ptr<Communicator> join(int rank, Backend& backend) = 0;
  /// Does the same as Communicator::abort, for a rank that failed before it could join.
  virtual void abort(int rank, const std::string& cause) noexcept = 0;
  /// Returns the cause of the first abort; empty if there was none.
  virtual std::string abort_cause() const = 0;
};

}  // namespace dpt
