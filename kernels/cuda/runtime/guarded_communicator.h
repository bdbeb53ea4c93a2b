// An NCCL communicator that one thread uses and any thread may abort. NCCL allows an abort from
// another thread only while no call with that communicator is inside the library, and the abort
// frees the communicator's memory. So a lock keeps an abort and calls apart. The lock is held only
// briefly, because the communicator is non-blocking: a call that has to wait for other ranks (to
// which NCCL connects at first use) returns at once and is polled without the lock.
#pragma once

#include <chrono>
#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "kernels/base/error.h"

namespace dpt {

/// `Api` has:
///  - Handle, a copyable type whose default value means no handle;
///  - bool in_progress(Handle), which returns true if the last call still waits for other ranks;
///    throws if that call failed;
///  - void abort(Handle) noexcept, which ends the handle's work on the GPU and frees the handle.
template <class Api>
class GuardedCommunicator {
 public:
  using Handle = typename Api::Handle;

  GuardedCommunicator(Api api, std::string who) : api_(std::move(api)), who_(std::move(who)) {}
  GuardedCommunicator(const GuardedCommunicator&) = delete;
  GuardedCommunicator& operator=(const GuardedCommunicator&) = delete;
  ~GuardedCommunicator() { abort(); }

  /// Takes ownership of a handle. If the communicator was aborted before, frees the handle at once.
  void own(Handle handle) noexcept {
    const std::lock_guard lock(mutex_);
    handle_ = handle;
    if (was_aborted_) free_handle();
  }

  /// Calls call(handle), which queues work, and returns when the library has queued it. Throws
  /// ErrorKind::peer if the communicator was aborted before or during the call, and
  /// ErrorKind::device if the call takes longer than `most`. REQUIRES: one thread at a time.
  template <class Call>
  void run(const Call& call, std::chrono::milliseconds most) {
    const auto until = std::chrono::steady_clock::now() + most;
    with_handle(call);
    for (;;) {
      bool waits = false;
      with_handle([&](Handle handle) { waits = api_.in_progress(handle); });
      if (!waits) return;
      if (std::chrono::steady_clock::now() > until) {
        fail(ErrorKind::device, "{}: the sum over GPUs was not queued within {} s", who_,
             std::chrono::duration_cast<std::chrono::seconds>(most).count());
      }
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }

  /// Throws ErrorKind::peer if the communicator was aborted.
  void require_alive() {
    with_handle([](Handle) {});
  }

  /// Throws if the work on the GPU has met an error since the last call, such as the loss of
  /// another rank's process or of the network. Ignores errors of an aborted communicator. Any
  /// thread may call it.
  void check() {
    const std::lock_guard lock(mutex_);
    if (handle_ != Handle()) api_.in_progress(handle_);
  }

  /// Aborts the communicator. Any thread may call this any number of times; only the first call has
  /// an effect. Waits at most for one call of `run` that is inside the library. Such a call never
  /// waits for another rank.
  void abort() noexcept {
    const std::lock_guard lock(mutex_);
    was_aborted_ = true;
    free_handle();
  }

 private:
  void free_handle() noexcept {
    if (handle_ == Handle()) return;
    api_.abort(std::exchange(handle_, Handle()));
  }
  template <class Use>
  void with_handle(const Use& use) {
    const std::lock_guard lock(mutex_);
    if (handle_ == Handle()) {
      fail(ErrorKind::peer, "{}: the sum over GPUs was aborted because another rank failed", who_);
    }
    use(handle_);
  }

  Api api_;
  std::string who_;
  std::mutex mutex_;
  Handle handle_ = Handle();
  bool was_aborted_ = false;
};

}  // namespace dpt
