// Runs grids: blocks one after another, the threads of a block as fibers. A fiber runs one thread
// after another. Another fiber takes over only when a thread has to wait, so a kernel without
// barriers needs no switches.
#include "block.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <memory>
#include <numeric>
#include <vector>

#include "fibers.h"
#include "program_symbols.h"
#include "races.h"
#include "settings.h"
#include "shared_variables.h"

uint3 threadIdx{}, blockIdx{};
dim3 blockDim, gridDim;

namespace emulation {
namespace {

constexpr unsigned kMaxThreads = 1024;
constexpr std::size_t kGuardBytes = 256;

struct Thread {
  Fiber* fiber = nullptr;
  // The warp operation that the thread waits for.
  const void* input = nullptr;
  void* output = nullptr;
  unsigned mask = 0;
  std::source_location where;
};

/// The state of a warp; each number is a set of lanes, one bit per lane.
struct Warp {
  unsigned runnable = 0;  ///< lanes that can run; bit i stands for lane_of_[i]
  unsigned started = 0;   ///< lanes that have started; bit i stands for lane_of_[i]
  unsigned present = 0;   ///< lanes that exist
  unsigned waiting = 0;   ///< lanes that wait in a warp operation
  unsigned away = 0;      ///< lanes at the block's barrier, or ended
  // True if all of `waiting` wait for the same thing, as they nearly always do: for `mask` at
  // `where`.
  bool uniform = true;
  unsigned mask = 0;
  std::source_location where;
};

bool same_place(const std::source_location& a, const std::source_location& b) {
  return a.line() == b.line() && a.column() == b.column() && a.file_name() == b.file_name();
}

/// A permutation of 0..count-1 that is computed, not stored.
class Permutation {
 public:
  Permutation(Order order, std::uint64_t count, std::uint64_t salt) : count_(count) {
    if (order.kind == OrderKind::reverse) {
      factor_ = count - 1;
      offset_ = count - 1;
    } else if (order.kind == OrderKind::random && count > 1) {
      std::uint64_t state = mix(order.seed ^ mix(salt));
      offset_ = state % count;
      do {
        state = mix(state);
        factor_ = state % count;
      } while (std::gcd(factor_, count) != 1);
    }
  }
  // Grids have at most 2^31 blocks in x, so the product fits for every grid that can run here.
  std::uint64_t operator()(std::uint64_t i) const { return (i * factor_ + offset_) % count_; }

 private:
  std::uint64_t count_, factor_ = 1, offset_ = 0;
};

/// Runs one block at a time, and holds the state that outlives a block.
class Runner {
 public:
  std::string run(const GridLaunch& launch);
  void barrier(const std::source_location& where);
  void warp_arrive(unsigned mask, const void* input, void* output, detail::WarpFunction function,
                   void* context, const std::source_location& where);
  /// Ends the kernel. The objects on the thread's stack are never destroyed, so this function owns
  /// no memory when it leaves.
  template <class... Args>
  [[noreturn]] void fault(fmt::format_string<const Args&...> text, const Args&... args);
  /// Stops the running thread for good, because it has crashed. The kernel fails when no other
  /// thread can run.
  [[noreturn]] void abandon(const char* why);
  void* shared() const { return shared_; }
  unsigned lane() const { return current_ % 32; }
  bool running() const { return launch_ != nullptr; }

 private:
  void prepare(const GridLaunch& launch);
  void order_threads(std::uint64_t salt);
  void run_block();
  bool pick();
  void suspend();
  void end_thread();
  void check_others(unsigned lanes, unsigned mask, const std::source_location& where);
  void fiber_main();
  Fiber* take_fiber();
  void drop_fibers();
  std::string place_of_block() const;

  const GridLaunch* launch_ = nullptr;
  unsigned threads_ = 0, warps_ = 0;
  std::vector<uint3> index_ = std::vector<uint3>(kMaxThreads);
  std::vector<Thread> thread_ = std::vector<Thread>(kMaxThreads);
  Warp warp_[32];
  unsigned warp_order_[32];
  unsigned lane_of_[32], position_of_[32];
  dim3 shape_{0, 0, 0};  ///< shape of index_

  unsigned current_ = 0;  ///< index of the running thread
  unsigned cursor_ = 0;   ///< position in warp_order_ of the running warp
  unsigned at_barrier_ = 0, ended_ = 0;
  std::source_location barrier_;
  std::string fault_;
  const char* crash_ = nullptr;  ///< why a thread was abandoned

  Fiber host_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> free_;
  std::vector<unsigned char> shared_memory_ = std::vector<unsigned char>((256 << 10));
  unsigned char* shared_ = nullptr;
  SharedVariables shared_variables_;
};

// Never destroyed: host threads may still run kernels while the process exits.
Runner& runner() {
  static Runner& instance = *new Runner;
  return instance;
}

void Runner::prepare(const GridLaunch& launch) {
  launch_ = &launch;
  threads_ = launch.block.x * launch.block.y * launch.block.z;
  warps_ = (threads_ + 31) / 32;
  blockDim = launch.block;
  gridDim = launch.grid;
  fault_.clear();
  crash_ = nullptr;
  if (shape_.x != launch.block.x || shape_.y != launch.block.y || shape_.z != launch.block.z) {
    shape_ = launch.block;
    unsigned thread = 0;
    for (unsigned z = 0; z < shape_.z; ++z) {
      for (unsigned y = 0; y < shape_.y; ++y) {
        for (unsigned x = 0; x < shape_.x; ++x) index_[thread++] = {x, y, z};
      }
    }
  }
  if (!shared_) {
    void* start = shared_memory_.data();
    std::size_t space = shared_memory_.size();
    shared_ = static_cast<unsigned char*>(std::align(256, 1, start, space));
  }
}

void Runner::order_threads(std::uint64_t salt) {
  const Permutation warps(settings().order, warps_, salt), lanes(settings().order, 32, ~salt);
  for (unsigned i = 0; i < warps_; ++i) warp_order_[i] = static_cast<unsigned>(warps(i));
  for (unsigned i = 0; i < 32; ++i) {
    lane_of_[i] = static_cast<unsigned>(lanes(i));
    position_of_[lane_of_[i]] = i;
  }
}

std::string Runner::run(const GridLaunch& launch) {
  prepare(launch);
  const Order order = settings().order;
  const std::uint64_t launch_salt = settings().launches++;
  const std::uint64_t blocks =
      std::uint64_t{launch.grid.x} * launch.grid.y * std::uint64_t{launch.grid.z};
  const Permutation block_order(order, blocks, launch_salt);
  order_threads(launch_salt);
  enter_host_fiber(host_);
  races::begin_kernel(launch, shared_);
  std::fill_n(shared_ + launch.shared_bytes, kGuardBytes, kPoison);
  for (std::uint64_t i = 0; i < blocks && fault_.empty(); ++i) {
    const std::uint64_t block = block_order(i);
    blockIdx = {static_cast<unsigned>(block % launch.grid.x),
                static_cast<unsigned>(block / launch.grid.x % launch.grid.y),
                static_cast<unsigned>(block / launch.grid.x / launch.grid.y)};
    if (order.kind == OrderKind::random && i > 0) order_threads(launch_salt + (i << 32));
    std::fill_n(shared_, launch.shared_bytes, kPoison);
    shared_variables_.before_block(launch.kernel->function());
    races::begin_block(block);
    run_block();
    shared_variables_.after_block();
    if (fault_.empty() &&
        !std::all_of(shared_ + launch.shared_bytes, shared_ + launch.shared_bytes + kGuardBytes,
                     [](unsigned char byte) { return byte == kPoison; })) {
      fault_ = fmt::format("a write past the {} bytes of dynamic shared memory{}",
                           launch.shared_bytes, place_of_block());
    }
  }
  races::end_kernel();
  launch_ = nullptr;
  return fault_;
}

void Runner::run_block() {
  at_barrier_ = ended_ = cursor_ = 0;
  for (unsigned w = 0; w < warps_; ++w) {
    const unsigned lanes = std::min(32U, threads_ - 32 * w);
    const unsigned present = lanes == 32 ? kFullMask : (1U << lanes) - 1;
    unsigned runnable = present;
    if (lanes < 32) {
      runnable = 0;
      for (unsigned lane = 0; lane < lanes; ++lane) runnable |= 1U << position_of_[lane];
    }
    warp_[w].runnable = runnable;
    warp_[w].present = present;
    warp_[w].started = warp_[w].waiting = warp_[w].away = 0;
  }
  pick();
  Fiber* fiber = take_fiber();
  thread_[current_].fiber = fiber;
  races::resume();
  switch_fiber(host_, *fiber);
  races::pause();
  if (!fault_.empty()) drop_fibers();
}

/// Chooses the next thread: another thread of the same warp if one can run, else a thread of the
/// next warp in order that has a runnable one. Returns false if no thread can run.
bool Runner::pick() {
  for (unsigned tried = 0; tried < warps_; ++tried) {
    const unsigned w = warp_order_[cursor_];
    if (warp_[w].runnable != 0) {
      const auto position = static_cast<unsigned>(std::countr_zero(warp_[w].runnable));
      const unsigned bit = 1U << position;
      warp_[w].runnable &= ~bit;
      current_ = 32 * w + lane_of_[position];
      threadIdx = index_[current_];
      races::run_thread(current_);
      if (!(warp_[w].started & bit)) {
        warp_[w].started |= bit;
        thread_[current_].fiber = nullptr;
      }
      return true;
    }
    cursor_ = cursor_ + 1 == warps_ ? 0 : cursor_ + 1;
  }
  return false;
}

/// Stops the current thread until it may continue. The thread has recorded what it waits for.
void Runner::suspend() {
  Fiber& mine = *thread_[current_].fiber;
  if (!pick()) {
    if (crash_) fault("{}", crash_);
    // No thread can run, so at least one waits for its warp. (The barrier itself detects threads
    // that end without reaching it.)
    unsigned in_warps = 0;
    std::source_location where;
    for (unsigned w = 0; w < warps_; ++w) {
      in_warps += static_cast<unsigned>(std::popcount(warp_[w].waiting));
      if (warp_[w].waiting) where = thread_[32 * w + std::countr_zero(warp_[w].waiting)].where;
    }
    fault("{} threads wait for their warp at {}:{}, {} at a block's barrier, and none can go on",
          in_warps, where.file_name(), where.line(), at_barrier_);
  }
  Thread& next = thread_[current_];
  if (!next.fiber) next.fiber = take_fiber();
  if (next.fiber != &mine) switch_fiber(mine, *next.fiber);
}

void Runner::barrier(const std::source_location& where) {
  if (ended_ > 0) {
    fault("{} of {} threads ended without coming to the barrier at {}:{}", ended_, threads_,
          where.file_name(), where.line());
  }
  if (at_barrier_ > 0 && !same_place(where, barrier_)) {
    fault("a thread waits at the barrier at {}:{}, while {} wait at {}:{}", where.file_name(),
          where.line(), at_barrier_, barrier_.file_name(), barrier_.line());
  }
  barrier_ = where;
  warp_[current_ / 32].away |= 1U << current_ % 32;
  if (++at_barrier_ == threads_) {
    at_barrier_ = 0;
    cursor_ = 0;
    races::block_barrier();
    for (unsigned w = 0; w < warps_; ++w) {
      warp_[w].runnable = warp_[w].started;
      warp_[w].away = 0;
    }
  }
  suspend();
}

void Runner::warp_arrive(unsigned mask, const void* input, void* output,
                         detail::WarpFunction function, void* context,
                         const std::source_location& where) {
  const unsigned w = current_ / 32, lane = current_ % 32, first = 32 * w;
  Warp& warp = warp_[w];
  if (!(mask & (1U << lane))) {
    fault("lane {} is not in the mask {:#x} that it gives at {}:{}", lane, mask, where.file_name(),
          where.line());
  }
  // Lanes beyond the end of the block do not exist and are not waited for.
  const unsigned group = mask & warp.present;
  if (warp.waiting == 0) {
    warp.uniform = true;
    warp.mask = mask;
    warp.where = where;
  } else if (!warp.uniform || mask != warp.mask || !same_place(where, warp.where)) {
    warp.uniform = false;
    check_others(group, mask, where);
  }
  if (const unsigned missing = group & warp.away; missing != 0) {
    fault(
        "lane {} of the mask {:#x} has ended or waits at a block's barrier, while lane {} waits "
        "for it at {}:{}",
        std::countr_zero(missing), mask, lane, where.file_name(), where.line());
  }
  Thread& self = thread_[current_];
  self.input = input;
  self.output = output;
  self.mask = mask;
  self.where = where;
  warp.waiting |= 1U << lane;
  if ((warp.waiting & group) != group) {
    suspend();
    return;
  }
  const void* inputs[32] = {};
  void* outputs[32] = {};
  for (unsigned rest = group; rest != 0; rest &= rest - 1) {
    const auto other = static_cast<unsigned>(std::countr_zero(rest));
    inputs[other] = thread_[first + other].input;
    outputs[other] = thread_[first + other].output;
    if (other != lane) warp.runnable |= 1U << position_of_[other];
  }
  warp.waiting &= ~group;
  // The function uses the stacks of all these lanes.
  races::pause();
  function(inputs, outputs, context);
  races::resume();
}

/// Fails if one of these lanes waits for something else.
void Runner::check_others(unsigned lanes, unsigned mask, const std::source_location& where) {
  const unsigned w = current_ / 32;
  for (unsigned rest = warp_[w].waiting & lanes; rest != 0; rest &= rest - 1) {
    const Thread& other = thread_[32 * w + static_cast<unsigned>(std::countr_zero(rest))];
    if (other.mask != mask || !same_place(other.where, where)) {
      fault("lanes of one warp wait at {}:{} with mask {:#x} and at {}:{} with mask {:#x}",
            other.where.file_name(), other.where.line(), other.mask, where.file_name(),
            where.line(), mask);
    }
  }
}

void Runner::abandon(const char* why) {
  if (!crash_) crash_ = why;
  suspend();
  __builtin_trap();  // Nothing makes the thread runnable again.
}

void Runner::end_thread() {
  const unsigned w = current_ / 32, lane = current_ % 32;
  if (at_barrier_ > 0) {
    fault("a thread ended while {} threads wait at the barrier at {}:{}", at_barrier_,
          barrier_.file_name(), barrier_.line());
  }
  for (unsigned others = warp_[w].waiting; others != 0; others &= others - 1) {
    const Thread& other = thread_[32 * w + static_cast<unsigned>(std::countr_zero(others))];
    if (other.mask & (1U << lane)) {
      fault("lane {} ended while others of its warp wait for it at {}:{} with mask {:#x}", lane,
            other.where.file_name(), other.where.line(), other.mask);
    }
  }
  warp_[w].away |= 1U << lane;
  ++ended_;
}

void Runner::fiber_main() {
  for (;;) {
    Fiber* mine = thread_[current_].fiber;
    const detail::Kernel& kernel = *launch_->kernel;
    for (;;) {
      kernel.run_thread();
      end_thread();
      if (!pick()) {
        if (crash_) fault("{}", crash_);
        break;
      }
      if (thread_[current_].fiber) break;
      thread_[current_].fiber = mine;
    }
    // Either a thread of another fiber can continue, or all threads have ended. No thread waits
    // forever: an ending thread has checked that no other waits for it.
    free_.push_back(mine);
    switch_fiber(*mine, ended_ == threads_ ? host_ : *thread_[current_].fiber);
  }
}

Fiber* Runner::take_fiber() {
  if (free_.empty()) {
    fibers_.push_back(std::make_unique<Fiber>());
    Fiber* fiber = fibers_.back().get();
    make_stack(*fiber);
    restart(*fiber, [] { runner().fiber_main(); });
    return fiber;
  }
  Fiber* fiber = free_.back();
  free_.pop_back();
  return fiber;
}

/// Discards the fibers' stacks and everything on them, after a fault.
void Runner::drop_fibers() {
  free_.clear();
  for (const auto& fiber : fibers_) {
    restart(*fiber, [] { runner().fiber_main(); });
    free_.push_back(fiber.get());
  }
}

std::string Runner::place_of_block() const {
  return fmt::format(" (block {},{},{} of {},{},{} of {})", blockIdx.x, blockIdx.y, blockIdx.z,
                     gridDim.x, gridDim.y, gridDim.z, function_name(launch_->kernel->function()));
}

template <class... Args>
void Runner::fault(fmt::format_string<const Args&...> text, const Args&... args) {
  fault_ = fmt::format(text, args...);
  fault_ += fmt::format(" (thread {},{},{} of {},{},{})", threadIdx.x, threadIdx.y, threadIdx.z,
                        blockDim.x, blockDim.y, blockDim.z);
  fault_ += place_of_block();
  switch_fiber(*thread_[current_].fiber, host_);
  __builtin_trap();  // A faulted thread never continues.
}

}  // namespace

std::string run_grid(const GridLaunch& launch) {
  return runner().run(launch);
}

void abandon_thread(const char* why) {
  runner().abandon(why);
}

void* dynamic_shared_memory() {
  return runner().shared();
}

void fault(const char* message, const std::source_location& where) {
  runner().fault("{} at {}:{}", message, where.file_name(), where.line());
}

namespace detail {

void block_barrier(const std::source_location& where) {
  runner().barrier(where);
}
void warp_arrive(unsigned mask, const void* input, void* output, WarpFunction function,
                 void* context, const std::source_location& where) {
  runner().warp_arrive(mask, input, output, function, context, where);
}
unsigned lane_index() {
  return runner().lane();
}

}  // namespace detail
}  // namespace emulation
