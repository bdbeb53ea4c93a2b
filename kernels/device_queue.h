// Memory of a device, and the order in which it works: the part of the Backend contract
// (kernels/backend.h, whose rules apply) that moves bytes and waits.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "kernels/base/types.h"
#include "kernels/step_clock.h"

namespace dpt {

class Backend;

/// Owns a block of device memory; freed by its destructor. Move-only. An empty one owns nothing.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(DevPtr ptr, std::size_t bytes, void (*release)(DevPtr, std::size_t))
      : ptr_(ptr), bytes_(bytes), release_(release) {}
  DeviceMemory(DeviceMemory&& other) noexcept { swap(other); }
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    DeviceMemory taken(std::move(other));
    swap(taken);
    return *this;
  }
  ~DeviceMemory() {
    if (release_) release_(ptr_, bytes_);
  }
  DevPtr ptr() const { return ptr_; }
  std::size_t bytes() const { return bytes_; }

 private:
  void swap(DeviceMemory& other) noexcept {
    std::swap(ptr_, other.ptr_);
    std::swap(bytes_, other.bytes_);
    std::swap(release_, other.release_);
  }
  DevPtr ptr_;
  std::size_t bytes_ = 0;
  void (*release_)(DevPtr, std::size_t) = nullptr;
};

/// Host memory for copies to and from the device that overlap with the host's work (page-locked for
/// a GPU).
using HostMemory = std::unique_ptr<std::byte, void (*)(std::byte*)>;

struct DeviceInfo {
  std::string name;             ///< name in configs: "cpu", "cuda:0"
  std::string description;      ///< model name of the processor or GPU
  std::string instruction_set;  ///< part of what makes results: "avx2", "avx512_core_amx", "sm_90"
  std::string library;          ///< "oneDNN 2.6.3", "cuDNN 9.19"
  int threads = 1;              ///< CPU threads used by one replica
  bool queues = false;          ///< calls return before their work has run
};

/// Freedom of a backend to be fast.
struct BackendOptions {
  /// Implementations that give the same bits every time, chosen by the description alone.
  bool exact = false;
  /// File that keeps timed choices between implementations; empty = nothing is timed.
  std::string plan_cache;
};

/// A point in a backend's queue, which other backends of its kind can wait for.
class Event {
 public:
  virtual ~Event() = default;
};

/// A captured sequence of queued calls, replayed with one launch.
class CapturedGraph {
 public:
  virtual ~CapturedGraph() = default;
};

/// Memory and order of execution of one device.
class DeviceQueue {
 public:
  virtual ~DeviceQueue() = default;
  virtual const DeviceInfo& info() const = 0;

  // Memory. Addresses are aligned to 64 bytes at least. Throws ErrorKind::device naming `what`,
  // the bytes asked for and the bytes free when there is not enough.
  virtual DeviceMemory allocate(std::size_t bytes, const std::string& what) = 0;
  /// Read-only data set memory on the device: the CPU borrows `host`, which must outlive it; a GPU
  /// copies it.
  virtual DeviceMemory make_resident(std::span<const std::byte> host, const std::string& what) = 0;
  virtual HostMemory allocate_host(std::size_t bytes, const std::string& what) = 0;
  /// Approximate number of bytes that could be allocated now.
  virtual std::uint64_t free_bytes() = 0;
  /// Returns true if this backend's kernels may read and write memory that `other` allocated, and
  /// sets up the access. `other` is only asked what it is.
  virtual bool can_use_memory_of(const Backend& other) = 0;
  /// `host` must stay unchanged until the copy is done.
  virtual void upload(DevPtr to, const void* host, std::size_t bytes) = 0;
  /// `host` is valid once a later synchronize/wait has returned.
  virtual void download(void* host, DevPtr from, std::size_t bytes) = 0;
  virtual void copy(DevPtr to, DevPtr from, std::size_t bytes) = 0;
  virtual void zero(DevPtr to, std::size_t bytes) = 0;
  /// Marks this point of the queue; `wait` returns once everything before it has run.
  virtual std::uint64_t record() = 0;
  virtual void wait(std::uint64_t mark) = 0;
  virtual void synchronize() = 0;

  // The device's clock, read where the calls are queued; the host does not wait. `times` is a
  // PhaseTimes, used by one branch of the queue at a time.
  /// A step begins here: sets all of `times`.
  virtual void begin_phases(DevPtr times) = 0;
  /// The time since the last of these two calls was spent on `phase`.
  virtual void end_phase(DevPtr times, StepPhase phase) = 0;

  // Order between queues. Waiting for an event that was never recorded does nothing.
  virtual std::unique_ptr<Event> make_event() = 0;
  virtual void record(Event& event) = 0;
  /// Orders all work queued here from now on after the work that `event` (of this or another
  /// backend of the same kind) marked when it was last recorded. The host does not wait. REQUIRES:
  /// that `record` call has returned.
  virtual void wait_for(const Event& event) = 0;
  /// A copy outside the queue, so that it may overlap with kernels: begins when `after` has passed,
  /// records `done` at its end.
  virtual void upload_overlapped(DevPtr to, const void* host, std::size_t bytes, const Event& after,
                                 Event& done) = 0;

  // Independent sequences of calls that may overlap: branches of the queue. Branch 0 is the queue
  // itself. A call gives the same bits in every branch.
  /// Sets up branches, at most `wanted`, as far as there is memory to spare; the number there is: 1
  /// where the device runs one call after the other. May allocate.
  virtual int make_branches(int /*wanted*/) { return 1; }
  /// Branches 1 to count - 1 start after what is queued so far. REQUIRES: that many were made.
  virtual void fork(int /*count*/) {}
  /// Selects the branch of the last fork to which work is queued from now on.
  virtual void select_branch(int /*index*/) {}
  /// Returns to branch 0 and orders the work queued from now on after all branches.
  virtual void join() {}

  // A repeated sequence of calls: one launch instead of many.
  /// Calls `work` and keeps what it queues instead of running it; `work` may call kernels, copy and
  /// zero, nothing that crosses to the host, waits or allocates. Null, and `work` is not called,
  /// where the device has no such thing (the CPU). REQUIRES: `work` ran once without capture.
  virtual std::unique_ptr<CapturedGraph> capture(const std::function<void()>& work) = 0;
  virtual void replay(CapturedGraph& graph) = 0;
};

}  // namespace dpt
