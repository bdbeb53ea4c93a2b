// Heartbeat of a replica. It distinguishes a slow replica from one that hangs.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

namespace dpt {

/// Progress of one replica, shared by its threads and the threads that wait for it. Thread-safe.
/// Has a cache line of its own, because it is written in every step.
class alignas(64) Heartbeat {
 public:
  /// Reports that the replica has made progress. `doing` must be a string literal.
  void beat(const char* doing) noexcept {
    doing_.store(doing, std::memory_order_relaxed);
    beats_.fetch_add(1, std::memory_order_relaxed);
  }
  void set_step(std::int64_t step) noexcept { step_.store(step, std::memory_order_relaxed); }

  /// Returns a number that differs from the last call's if, since then, the replica has made
  /// progress. It also differs while the replica is in a system call that may take long
  /// (SystemCall).
  std::uint64_t beats() const noexcept {
    if (calls_.load(std::memory_order_relaxed) > 0 && now_ms() < patience_ends_ms_) {
      beats_.fetch_add(1, std::memory_order_relaxed);
    }
    return beats_.load(std::memory_order_relaxed);
  }
  /// Returns the last activity: "step 17, reading samples".
  std::string text() const;

 private:
  friend class SystemCall;
  static std::int64_t now_ms() noexcept;

  mutable std::atomic<std::uint64_t> beats_{0};
  std::atomic<int> calls_{0};  ///< system calls in progress, over all threads
  std::atomic<std::int64_t> patience_ends_ms_{0};
  std::atomic<std::int64_t> step_{0};
  std::atomic<const char*> doing_{nullptr};
};

/// Returns the heartbeat of the replica that the calling thread works for; null if there is no such
/// replica. start_thread passes it on to the threads that a replica starts.
const std::shared_ptr<Heartbeat>& heartbeat_of_thread() noexcept;
void set_heartbeat_of_thread(std::shared_ptr<Heartbeat> heartbeat) noexcept;

/// Beats for the calling thread's replica, if any. Call it in every loop that may take seconds:
/// over samples, micro-batches or parts of files.
inline void beat(const char* doing) noexcept {
  if (const auto& heartbeat = heartbeat_of_thread()) heartbeat->beat(doing);
}

/// Marks the calling thread, during its lifetime, as inside a file system call that reports no
/// progress until it ends (fsync, rename). Meanwhile, the thread's replica, if any, does not count
/// as stalled, but only for up to kLongestCall, so that a disk that hangs forever still ends the
/// run. While the call lasts, it is the replica's last activity. After it, the previous activity
/// returns.
class SystemCall {
 public:
  static constexpr std::chrono::minutes kLongestCall{30};

  explicit SystemCall(const char* doing) noexcept;
  ~SystemCall();
  SystemCall(const SystemCall&) = delete;
  SystemCall& operator=(const SystemCall&) = delete;

 private:
  std::shared_ptr<Heartbeat> heartbeat_;
  const char *doing_, *before_ = nullptr;
};

}  // namespace dpt
