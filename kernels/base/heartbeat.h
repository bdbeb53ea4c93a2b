// Heartbeat of a replica: distinguishes a slow replica from one that hangs.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

namespace dpt {

/// Shared by the threads of one replica and those that wait for it. Thread-safe. It has a cache
/// line of its own, because it is written in every step.
class alignas(64) Heartbeat {
 public:
  /// The replica has made progress. `doing` is a literal.
  void beat(const char* doing) noexcept {
    doing_.store(doing, std::memory_order_relaxed);
    beats_.fetch_add(1, std::memory_order_relaxed);
  }
  void set_step(std::int64_t step) noexcept { step_.store(step, std::memory_order_relaxed); }

  /// Returns a number that has changed since the last look if the replica has made progress, or is
  /// in a system call that may take long (SystemCall).
  std::uint64_t beats() const noexcept {
    if (calls_.load(std::memory_order_relaxed) > 0 && now_ms() < patience_ends_ms_) {
      beats_.fetch_add(1, std::memory_order_relaxed);
    }
    return beats_.load(std::memory_order_relaxed);
  }
  /// "step 17, reading samples": the last activity.
  std::string text() const;

 private:
  friend class SystemCall;
  static std::int64_t now_ms() noexcept;

  mutable std::atomic<std::uint64_t> beats_{0};
  std::atomic<int> calls_{0};  ///< system calls under way, of all threads
  std::atomic<std::int64_t> patience_ends_ms_{0};
  std::atomic<std::int64_t> step_{0};
  std::atomic<const char*> doing_{nullptr};
};

/// The heartbeat of the replica that the calling thread works for; null where it works for none.
/// start_thread passes it on to the threads that a replica starts.
const std::shared_ptr<Heartbeat>& heartbeat_of_thread() noexcept;
void set_heartbeat_of_thread(std::shared_ptr<Heartbeat> heartbeat) noexcept;

/// Beats for the calling thread's replica, if it has one. Call it in every loop that may take
/// seconds: samples, micro-batches, parts of files.
inline void beat(const char* doing) noexcept {
  if (const auto& heartbeat = heartbeat_of_thread()) heartbeat->beat(doing);
}

/// Marks the calling thread, while it lives, as being in a call to the file system that reports
/// nothing until it ends (fsync, rename). The thread's replica, if it has one, does not count as
/// stalled meanwhile, for up to kLongestCall: a disk that hangs forever still ends the run. The
/// call is the replica's last activity only while it lasts.
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
