// Memory of a device, and the order in which the device works. This is the part of the Backend
// contract (kernels/backend.h, whose rules apply) that copies bytes and waits.
#pragma once

#include <atomic>
#include <chrono>
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

/// Owner of a block of device memory. Its destructor frees the block. Move-only. An empty one owns
/// nothing.
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
  std::string instruction_set;  ///< affects results: "avx2", "avx512_core_amx", "sm_90"
  std::string library;          ///< "oneDNN 2.6.3", "cuDNN 9.19"
  int threads = 1;              ///< CPU threads used by one replica
  bool queues = false;          ///< true if calls return before their work has run
};

/// Limits on how a backend may choose implementations.
struct BackendOptions {
  /// True if only implementations may be used that give the same bits every time and are chosen by
  /// the description alone.
  bool exact = false;
  /// File that caches timed choices between implementations; empty = nothing is timed.
  std::string plan_cache;
  /// Longest wait for queued work. After that, a GPU counts as lost (train.stall_timeout).
  std::chrono::milliseconds wait_limit = std::chrono::minutes(10);
  /// Flag that becomes true once another replica of this process has failed. Queued work may then
  /// wait forever for that replica's results. Null if there is no other replica.
  std::shared_ptr<const std::atomic<bool>> has_failed;
};

/// A point in a backend's queue. Other backends of the same kind can wait for it.
class Event {
 public:
  virtual ~Event() = default;
};

/// A captured sequence of queued calls, replayed with one launch.
class CapturedGraph {
 public:
  virtual ~CapturedGraph() = default;
};

/// Interface to the memory of one device and the order of execution on it.
class DeviceQueue {
 public:
  virtual ~DeviceQueue() = default;
  virtual const DeviceInfo& info() const = 0;

  // Memory.
  /// Allocates memory, aligned to 64 bytes or more. If there is not enough, throws
  /// ErrorKind::device with `what`, the requested bytes and the free bytes.
  virtual DeviceMemory allocate(std::size_t bytes, const std::string& what) = 0;
  /// Makes a data set readable on the device. The CPU borrows `host`, which must outlive the
  /// result; a GPU copies it.
  virtual DeviceMemory make_resident(std::span<const std::byte> host, const std::string& what) = 0;
  virtual HostMemory allocate_host(std::size_t bytes, const std::string& what) = 0;
  /// Returns the approximate number of bytes that could be allocated now.
  virtual std::uint64_t free_bytes() = 0;
  /// Returns true if this backend's kernels may read and write memory that `other` allocated, and
  /// sets up the access. Of the functions of `other`, calls only those that identify it.
  virtual bool can_use_memory_of(const Backend& other) = 0;
  /// Queues a copy to the device. `host` must stay unchanged until the copy is done.
  virtual void upload(DevPtr to, const void* host, std::size_t bytes) = 0;
  /// Queues a copy from the device. `host` is valid once a later synchronize or wait has returned.
  virtual void download(void* host, DevPtr from, std::size_t bytes) = 0;
  virtual void copy(DevPtr to, DevPtr from, std::size_t bytes) = 0;
  virtual void zero(DevPtr to, std::size_t bytes) = 0;
  /// Marks this point of the queue. `wait` returns once everything before the mark has run.
  virtual std::uint64_t record() = 0;
  virtual void wait(std::uint64_t mark) = 0;
  virtual void synchronize() = 0;

  // The device's clock, read in queue order without blocking the host. `times` is a PhaseTimes.
  // Only one branch of the queue at a time may use it.
  /// Marks the beginning of a step and initialises `times`.
  virtual void begin_phases(DevPtr times) = 0;
  /// Adds the time since the last call of begin_phases or end_phase to `phase`.
  virtual void end_phase(DevPtr times, StepPhase phase) = 0;

  // Order between queues. Waiting for an event that was never recorded does nothing.
  virtual std::unique_ptr<Event> make_event() = 0;
  virtual void record(Event& event) = 0;
  /// Orders all work queued to this queue from now on after the point that `event` marked when it
  /// was last recorded. The event may belong to another backend of the same kind. The host does not
  /// wait. REQUIRES: that `record` call has returned.
  virtual void wait_for(const Event& event) = 0;
  /// Queues a copy outside the main queue, so that it may overlap with kernels. The copy starts
  /// when `after` has passed. When it ends, it records `done`.
  virtual void upload_overlapped(DevPtr to, const void* host, std::size_t bytes, const Event& after,
                                 Event& done) = 0;

  // Branches of the queue: independent sequences of calls that may overlap. Branch 0 is the queue
  // itself. A call gives the same bits in every branch.
  /// Sets up at most `wanted` branches, as far as memory allows, and returns their number. Returns
  /// 1 if the device runs calls one after another. May allocate.
  virtual int make_branches(int /*wanted*/) { return 1; }
  /// Starts branches 1 to count - 1 after the work queued so far. REQUIRES: make_branches returned
  /// at least `count`.
  virtual void fork(int /*count*/) {}
  /// Selects the branch of the last fork to which later work is queued.
  virtual void select_branch(int /*index*/) {}
  /// Returns to branch 0 and orders the work queued from now on after all branches.
  virtual void join() {}

  // Graphs: one launch for a repeated sequence of calls.
  /// Calls `work` and captures what it queues instead of running it. `work` may call kernels, copy
  /// and zero within the device; it must not transfer data to the host, wait or allocate. Returns
  /// null without calling `work` if the device has no graphs (the CPU). REQUIRES: `work` ran once
  /// without capture.
  virtual std::unique_ptr<CapturedGraph> capture(const std::function<void()>& work) = 0;
  virtual void replay(CapturedGraph& graph) = 0;
};

}  // namespace dpt
