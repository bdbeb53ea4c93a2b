#include "engine/collectives/abortable_barrier.h"

#include <algorithm>
#include <cassert>
#include <new>
#include <thread>

#include "kernels/base/error.h"
#include "kernels/base/text.h"

namespace dpt {
namespace {

// Time for which a waiting rank polls. It is so long that ranks with separate cores almost never
// sleep in a step, and so short that a core is released soon if one of them is late.
constexpr std::chrono::microseconds kSpin{200};

// Number of times that a waiting rank checks the others' heartbeats within a stall timeout; it
// checks at least once a second.
constexpr int kLooks = 16;
constexpr std::chrono::milliseconds kLongestLook{1000};

}  // namespace

AbortableBarrier::AbortableBarrier(int size, std::chrono::milliseconds stall_timeout, bool spin,
                                   int first)
    : size_(size),
      stall_timeout_(stall_timeout),
      spin_(spin),
      first_(first),
      ranks_(std::make_unique<Rank[]>(static_cast<std::size_t>(size))) {
  assert(size >= 1 && static_cast<std::uint64_t>(size) < kOneMeeting);
}

std::uint64_t AbortableBarrier::meet(int rank, const char* operation) {
  std::uint64_t word = word_.load();
  const std::uint64_t meeting = meetings(word);
  ranks_[rank].arrivals.store(meeting + 1);
  for (;;) {
    if (word & kAborted) throw_aborted(rank, operation);
    const bool last = (word & kArrivedMask) + 1 == static_cast<std::uint64_t>(size_);
    // No rank reads working_ before the meeting is complete, because all ranks have left the work
    // of the previous one.
    if (last) working_.store(size_);
    const std::uint64_t next = last ? (meeting + 1) * kOneMeeting : word + 1;
    if (!word_.compare_exchange_weak(word, next)) continue;
    if (last) {
      wake();
      return meeting;
    }
    break;
  }
  wait_for_ranks(rank, operation, meeting);
  // A completed meeting counts, even if the group was aborted right after it.
  if (meetings(word_.load()) == meeting) throw_aborted(rank, operation);
  return meeting;
}

void AbortableBarrier::wait_for_ranks(int rank, const char* operation, std::uint64_t meeting) {
  const auto over = [&] {
    const std::uint64_t now = word_.load();
    return meetings(now) != meeting || (now & kAborted);
  };
  const Clock::duration look = std::clamp<Clock::duration>(
      stall_timeout_ / kLooks, std::chrono::milliseconds(1), kLongestLook);
  Clock::time_point from = Clock::now();
  if (wait(over, from + look)) return;
  // A long wait: from here on, add up the time in which each missing rank was quiet.
  std::vector<Quiet> quiet(static_cast<std::size_t>(size_));
  for (int other = 0; other < size_; ++other) {
    quiet[other].beats = ranks_[other].heartbeat->beats();
  }
  Clock::duration waited{0};
  for (;;) {
    const Clock::time_point now = Clock::now();
    const Clock::duration span = std::min<Clock::duration>(now - from, 2 * look);
    from = now;
    waited += span;
    bool stalled = false;
    for (int other = 0; other < size_; ++other) {
      if (ranks_[other].arrivals.load() > meeting) continue;
      Quiet& its = quiet[other];
      const std::uint64_t beats = ranks_[other].heartbeat->beats();
      its.time = beats == its.beats ? its.time + span : Clock::duration{0};
      its.beats = beats;
      stalled = stalled || its.time >= stall_timeout_;
    }
    if (stalled) {
      const std::string text = stall_text(rank, operation, meeting, waited, quiet);
      if (abort_meeting(meeting, rank, text)) fail(ErrorKind::peer, "{}", text);
    }
    if (wait(over, from + look)) return;
  }
}

void AbortableBarrier::finish_work(int rank, const char* operation) {
  wait_for_work();
  if (work_failed_.load()) throw_aborted(rank, operation);
}

void AbortableBarrier::fail_work(int rank, const std::string& cause) noexcept {
  abort(rank, cause);
  work_failed_.store(true);
  wait_for_work();
}

void AbortableBarrier::wait_for_work() {
  if (working_.fetch_sub(1) == 1) {
    wake();
  } else {
    wait([&] { return working_.load() == 0; }, Clock::time_point::max());
  }
}

template <class Condition>
bool AbortableBarrier::wait(Condition condition, Clock::time_point until) {
  if (spin_) {
    const Clock::time_point spin_until = std::min(until, Clock::now() + kSpin);
    do {
      if (condition()) return true;
      std::this_thread::yield();
    } while (Clock::now() < spin_until);
  }
  // The thread that makes the condition true checks sleepers_ afterwards; this thread checks the
  // condition after incrementing sleepers_. At least one of the two therefore sees the other.
  std::unique_lock lock(mutex_);
  ++sleepers_;
  bool holds = condition();
  while (!holds && Clock::now() < until) {
    // Some libraries overflow when waiting for time_point::max(), so wait for an hour at a time.
    wakeup_.wait_until(lock, std::min(until, Clock::now() + std::chrono::hours(1)));
    holds = condition();
  }
  --sleepers_;
  return holds;
}

void AbortableBarrier::wake() {
  if (sleepers_.load() == 0) return;
  // The lock ensures that a sleeper is either before its check or in its wait.
  { const std::lock_guard lock(mutex_); }
  wakeup_.notify_all();
}

void AbortableBarrier::set_cause(int rank, const std::string& cause) noexcept {
  if (cause_rank_ >= 0) return;
  cause_rank_ = rank;
  try {
    cause_ = cause;
  } catch (const std::bad_alloc&) {
    cause_.clear();  // without memory for the text, still abort
  }
}

bool AbortableBarrier::abort_meeting(std::uint64_t meeting, int rank, const std::string& cause) {
  {
    const std::lock_guard lock(mutex_);
    std::uint64_t word = word_.load();
    do {
      // Do not abort if the meeting took place in the meantime or another thread aborted first.
      if (meetings(word) != meeting || (word & kAborted)) return false;
    } while (!word_.compare_exchange_weak(word, word | kAborted));
    set_cause(rank, cause);
  }
  wakeup_.notify_all();
  return true;
}

void AbortableBarrier::abort(int rank, const std::string& cause) noexcept {
  {
    // A thread that sees kAborted takes the lock to read the cause, and so finds it already set.
    const std::lock_guard lock(mutex_);
    set_cause(rank, cause);
    word_.fetch_or(kAborted);
  }
  wakeup_.notify_all();
}

std::string AbortableBarrier::abort_cause() const {
  const std::lock_guard lock(mutex_);
  return cause_;
}

void AbortableBarrier::throw_aborted(int rank, const char* operation) const {
  const std::lock_guard lock(mutex_);
  fail(ErrorKind::peer, "rank {}: {} was stopped because rank {} failed: {}", first_ + rank,
       operation, first_ + cause_rank_, cause_);
}

std::string AbortableBarrier::stall_text(int rank, const char* operation, std::uint64_t meeting,
                                         Clock::duration waited,
                                         const std::vector<Quiet>& quiet) const {
  std::string missing;
  for (int other = 0; other < size_; ++other) {
    if (ranks_[other].arrivals.load() > meeting) continue;
    const Clock::duration time = quiet[other].time;
    missing += fmt::format("{}rank {} (", missing.empty() ? "" : ", ", first_ + other);
    if (!joined(other)) {
      missing += "never joined)";
    } else {
      missing += fmt::format("{}; {} {})", ranks_[other].heartbeat->text(),
                             time >= stall_timeout_ ? "no heartbeat for" : "last heartbeat before",
                             seconds_text(time));
    }
  }
  return fmt::format(
      "rank {}: {} (collective call {}) waited {} for {}: a replica that makes no progress "
      "for {} has stalled (train.stall_timeout)",
      first_ + rank, operation, meeting + 1, seconds_text(waited), missing,
      seconds_text(stall_timeout_));
}

}  // namespace dpt
