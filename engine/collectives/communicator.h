// The contract between ranks. The only state that ranks share is inside a Communicator.
//
// All ranks make the same calls in the same order. A call returns the same on every rank, or throws
// on every rank: when one rank aborts, every other rank's present or next call throws an
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

/// One rank's contribution to a sum: tree nodes with the buffers that hold their sums.
struct PartialSum {
  TreeNode node;
  DevPtr data;  ///< `count` floats; clobbered
};

/// Ownership of a sum's shards and promises about the sum; the same on every rank.
struct SumTerms {
  /// The shards of each rank; empty = one each. (Who works on shared memory does without.)
  std::span<const Range> shards_of_ranks;
  /// Any one order of the additions will do, always the same for one layout of ranks over
  /// processes: fewer bytes where a process' shards are several nodes of the tree.
  bool any_order = false;
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// Sums over all shards in the tree's order: the bits of the result depend on the shards alone,
  /// not on the number of ranks, their processes or on timing. Together the ranks' parts cover
  /// shards 0..shards-1 once, in rank order; a rank may have none. `out` (count floats) receives
  /// the sum on every rank and may be one of the rank's own parts.
  virtual void all_reduce(std::int64_t shards, std::span<const PartialSum> parts, DevPtr out,
                          std::int64_t count, const SumTerms& terms = {}) = 0;
  /// Returns true if all_reduce only queues work of this rank's own backend, so that a
  /// CapturedGraph may hold it.
  virtual bool can_be_recorded() const { return false; }

  // Sums overlapped with the computation, for large gradients of fast mode: the order of the
  // additions is the library's, one and the same for one set of devices.
  /// Collective, once. Whether the next two can be used; if not, `why_not` says why.
  virtual bool set_up_overlapped_sums(std::string& why_not) {
    why_not = "there is one replica";
    return false;
  }
  /// Queues the sum over ranks of `count` floats, in place; all ranks queue the same ones in the
  /// same order. It begins when what is queued so far has run, and overlaps with what is queued
  /// next.
  virtual void sum_overlapped(DevPtr, std::int64_t) {}
  /// Orders all work that is queued from now on after all sums.
  virtual void finish_sums() {}
  /// Runs `wait`, which waits for work of this rank's backend that may follow from sums. Throws
  /// ErrorKind::peer where sums were aborted before it ended: then nothing that the backend has
  /// computed since is what it looks like.
  virtual void wait_for_sums(const std::function<void()>& wait) { wait(); }
  /// To be called before the memory of sums goes: none is under way when it returns. After a
  /// failure those that were begun are given up.
  virtual void stop_sums() noexcept {}

  // On host memory, for small things. `bytes` must be the same on every rank.
  virtual void broadcast(std::span<std::byte> data, int root) = 0;
  /// `all` holds size() blocks of mine.size() bytes, in rank order.
  virtual void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) = 0;
  virtual void barrier() = 0;

  /// Wakes every other rank with the cause. Callable from any thread, any number of times; the
  /// first cause wins. Never throws.
  virtual void abort(const std::string& cause) noexcept = 0;
};

/// The ranks of this process, of which each gets its communicator.
class RankGroup {
 public:
  virtual ~RankGroup() = default;
  /// Called once per rank, from that rank's thread, whose beats (and those of threads that it
  /// starts) count for the rank from now on; the group and the backend must outlive it. `rank`
  /// counts in this process.
  virtual std::unique_ptr<Communicator> join(int rank, Backend& backend) = 0;
  /// Does what Communicator::abort does, for a rank that failed before it could join.
  virtual void abort(int rank, const std::string& cause) noexcept = 0;
  /// The first cause, or empty.
  virtual std::string abort_cause() const = 0;
};

}  // namespace dpt
