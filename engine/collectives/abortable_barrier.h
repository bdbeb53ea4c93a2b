// A barrier for the ranks of one process that can be aborted, and that distinguishes a slow rank
// from one that hangs.
//
// A waiting rank watches the heartbeats of the missing ones. A rank without a heartbeat for the
// stall timeout has stalled, which aborts the group; a rank with a heartbeat is waited for, however
// long it takes (a slow save, images from a slow disk). Time is measured in short intervals, each
// of which counts for at most twice its planned length. Time in which the process is suspended
// (Ctrl-Z, a frozen container, a suspended job) therefore does not count.
//
// Meeting number g either happens for all ranks or for none: completion and abort are transitions
// of one atomic word, so no rank can pass a meeting from which another was thrown out. After a
// meeting the ranks may read and write each other's memory ("the work"), and none leaves before all
// are done, even after an abort: a rank that unwinds frees memory that others may still use.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "kernels/base/heartbeat.h"

namespace dpt {

class AbortableBarrier {
 public:
  /// `spin`: waiting ranks poll for a moment before they sleep. `first`: number of this process's
  /// first rank in the whole world, for messages. REQUIRES: 1 <= size < 65536.
  AbortableBarrier(int size, std::chrono::milliseconds stall_timeout, bool spin, int first = 0);

  /// Waits until all ranks have arrived and returns the number of the meeting (from 0). Throws
  /// ErrorKind::peer with the first cause if the group was aborted, or if a missing rank has
  /// stalled (which aborts the group, naming that rank and its last activity). Everything that a
  /// rank wrote before is visible to all afterwards. Each rank calls it from one thread.
  std::uint64_t meet(int rank, const char* operation);

  /// Marks this rank's part of the work after a meeting as done. Each rank calls either this or
  /// fail_work; both return when the parts of all ranks have ended. There is no deadline: a part is
  /// computation and copies that wait for no other rank, and leaving early would free memory that
  /// another rank uses. An abort in the meantime does not interrupt the work. Throws
  /// ErrorKind::peer if another rank's part failed.
  void finish_work(int rank, const char* operation);
  /// Marks this rank's part as failed: aborts, and makes the others' finish_work throw.
  void fail_work(int rank, const std::string& cause) noexcept;

  /// Aborts the group and wakes all ranks. The first cause wins. Callable from any thread, any
  /// number of times.
  void abort(int rank, const std::string& cause) noexcept;
  /// Returns the first cause, or an empty string.
  std::string abort_cause() const;

  void set_joined(int rank) { ranks_[rank].joined = true; }
  bool joined(int rank) const { return ranks_[rank].joined; }
  /// Returns the heartbeat of the rank's threads.
  const std::shared_ptr<Heartbeat>& heartbeat(int rank) const { return ranks_[rank].heartbeat; }

 private:
  // Parts of the atomic word: bit 63 is set by an abort, bits 16 to 62 count the completed
  // meetings, and bits 0 to 15 count the ranks that have reached the next one.
  static constexpr std::uint64_t kAborted = std::uint64_t{1} << 63;
  static constexpr std::uint64_t kOneMeeting = std::uint64_t{1} << 16;
  static constexpr std::uint64_t kArrivedMask = kOneMeeting - 1;
  static std::uint64_t meetings(std::uint64_t word) { return (word & ~kAborted) / kOneMeeting; }

  struct alignas(64) Rank {
    std::atomic<std::uint64_t> arrivals{0};  ///< number of meetings that it has reached
    std::atomic<bool> joined{false};
    std::shared_ptr<Heartbeat> heartbeat = std::make_shared<Heartbeat>();
  };
  using Clock = std::chrono::steady_clock;

  [[noreturn]] void throw_aborted(int rank, const char* operation) const;
  /// Waits until the condition holds, but not beyond `until`. Returns true if the condition holds.
  template <class Condition>
  bool wait(Condition condition, Clock::time_point until);
  /// Waits until all ranks have reached the meeting or the group was aborted. Throws if a rank has
  /// stalled.
  void wait_for_ranks(int rank, const char* operation, std::uint64_t meeting);
  void wake();
  /// REQUIRES: mutex_ is held.
  void set_cause(int rank, const std::string& cause) noexcept;
  /// Aborts unless the meeting took place or the group was already aborted. Returns true if this
  /// call aborted the group.
  bool abort_meeting(std::uint64_t meeting, int rank, const std::string& cause);
  void wait_for_work();
  /// Progress of one rank, used to measure how long it has been quiet.
  struct Quiet {
    std::uint64_t beats = 0;
    Clock::duration time{0};
  };
  std::string stall_text(int rank, const char* operation, std::uint64_t meeting,
                         Clock::duration waited, const std::vector<Quiet>& quiet) const;

  const int size_;
  const std::chrono::milliseconds stall_timeout_;
  const bool spin_;
  const int first_;
  const std::unique_ptr<Rank[]> ranks_;
  alignas(64) std::atomic<std::uint64_t> word_{0};
  alignas(64) std::atomic<int> working_{0};
  std::atomic<bool> work_failed_{false};
  alignas(64) std::atomic<int> sleepers_{0};
  mutable std::mutex mutex_;
  std::condition_variable wakeup_;
  std::string cause_;    // guarded by mutex_
  int cause_rank_ = -1;  // guarded by mutex_; -1 = not aborted
};

}  // namespace dpt
