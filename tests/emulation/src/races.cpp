// The race detector: which accesses are ordered, and what is known of each byte's last accesses.
//
// Every thread has a clock, which advances at each operation that orders memory. An access is
// remembered with its block, thread and clock. A later access by thread t comes after it if t knows
// that clock. A thread learns clocks from
//  - a barrier of the block: t knows all clocks before it;
//  - __syncwarp: t knows what the lanes of the mask knew (shuffles and votes order no memory);
//  - a fence, an atomic operation and a fence: see `Fences` below.
// Accesses of different launches are never compared. Instead, streams.cpp and graphs.cpp run work
// as late as CUDA permits, so a missing wait shows as wrong results.
#include "races.h"

#ifdef DPT_EMULATED_RACES

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "block.h"
#include "program_symbols.h"
#include "state.h"

// Defined by the linker: the limits of the program's code and variables.
extern "C" const char __executable_start, _end;

namespace emulation::races {
namespace {

constexpr unsigned kMaxThreads = 1024;
constexpr int kReportsPerKernel = 3;
constexpr std::size_t kMaxPages = 4096;  ///< 256 MiB of shadow memory
constexpr int kExitCode = 66;            ///< as ThreadSanitizer's

/// Clocks of the threads of a block: the accesses of each thread before its clock are known.
using Clocks = std::vector<std::uint32_t>;
using ClocksByBlock = std::map<std::uint32_t, std::shared_ptr<const Clocks>>;
/// Null if nothing is known.
using Knowledge = std::shared_ptr<const ClocksByBlock>;

void join(Knowledge& into, const Knowledge& from) {
  if (!from || into == from) return;
  if (!into) {
    into = from;
    return;
  }
  auto all = *into;
  for (const auto& [block, clocks] : *from) {
    auto& mine = all[block];
    if (!mine || mine == clocks) {
      mine = clocks;
      continue;
    }
    Clocks joined = *mine;
    for (std::size_t i = 0; i < joined.size(); ++i) joined[i] = std::max(joined[i], (*clocks)[i]);
    mine = std::make_shared<const Clocks>(std::move(joined));
  }
  into = std::make_shared<const ClocksByBlock>(std::move(all));
}

/// A set of accesses by a thread's own block: all accesses before the clock `base`, and the
/// accesses of its own warp's lanes before `lanes`.
struct BlockView {
  std::uint32_t base = 0;
  std::array<std::uint32_t, 32> lanes{};
  void join(const BlockView& other) {
    base = std::max(base, other.base);
    for (unsigned i = 0; i < 32; ++i) lanes[i] = std::max(lanes[i], other.lanes[i]);
  }
};

/// Accesses that the fences of a thread have ordered. A fence makes all accesses before it visible
/// to threads that see a later atomic operation of this thread, or of a thread that is ordered
/// after the fence. Those threads must have a fence of their own between that operation and their
/// accesses. GPUs behave like this. The PTX memory model requires the fence and the operation to be
/// in one thread.
struct Fences {
  bool any = false;
  BlockView before;    ///< accesses of the own block that are followed by a fence
  Knowledge others;    ///< accesses of others that were known at a fence
  Knowledge seen;      ///< what atomic operations have shown
  Knowledge acquired;  ///< what they had shown at a fence
};

struct Thread {
  std::uint32_t clock = 0;
  BlockView known;  ///< its base is that of the block
  Fences fences;
};

/// An access that is remembered; none if `place` is 0.
struct Past {
  std::uint32_t block = 0;
  std::uint32_t thread : 10 = 0;
  std::uint32_t clock : 22 = 0;
  std::uint32_t place = 0;  ///< offset of the code in the program
};

/// The last accesses to 4 bytes, or to a single byte if an access to fewer than 4 bytes was made.
struct Cell {
  std::uint32_t period = 0;  ///< the kernel, or for shared memory the block, of the accesses
  std::uint32_t parts = 0;   ///< index in `parts` of the cells of single bytes, or 0
  bool atomic = false;       ///< `write` is an atomic operation
  Past write;
  std::array<Past, 3> reads;
};

struct Page {
  static constexpr std::uintptr_t kBytes = 4096;
  std::array<Cell, kBytes / 4> cells;
};

class Detector {
 public:
  void begin_kernel(const GridLaunch& launch, const void* dynamic_shared);
  void end_kernel();
  void begin_block(std::uint64_t block);
  void block_barrier();
  void warp_barrier(unsigned lanes);
  void fence();
  void atomic(const void* address);
  void record(std::uintptr_t address, std::size_t bytes, Access access, const void* place);
  std::vector<std::string> take();

  unsigned current = 0;
  std::uintptr_t stack = 0, stack_end = 0;

 private:
  bool is_shared(std::uintptr_t address) const {
    return (address >= dynamic_ && address < dynamic_end_) ||
           (address >= static_ && address < static_end_);
  }
  bool ordered(const Past& past) const;
  void visit(Cell& cell, std::uint32_t period, Access access, std::uint32_t place,
             std::uintptr_t address);
  void add_read(Cell& cell, const Past& read);
  Page& page_of(std::uintptr_t address);
  void report(const Past& past, Access before, Access now, std::uint32_t place,
              std::uintptr_t address);
  std::string thread_name(std::uint32_t block, std::uint32_t thread) const;

  const GridLaunch* launch_ = nullptr;
  std::uint32_t block_ = 0;
  unsigned threads_ = 0;
  std::uint32_t periods_ = 0, kernel_period_ = 0, block_period_ = 0;
  std::uint32_t base_ = 0;  ///< clock of all threads at the last barrier
  std::uintptr_t dynamic_ = 0, dynamic_end_ = 0, static_ = 0, static_end_ = 0;
  std::vector<Thread> thread_ = std::vector<Thread>(kMaxThreads);
  bool fenced_ = false;     ///< a thread of the block has executed a fence
  bool knowledge_ = false;  ///< a thread of the block has seen what others released
  Clocks block_fenced_;     ///< accesses followed by a fence and then by a barrier
  std::unordered_map<std::uintptr_t, Knowledge> released_, released_shared_;

  std::unordered_map<std::uintptr_t, std::unique_ptr<Page>> pages_;
  std::array<std::pair<std::uintptr_t, Page*>, 256> recent_{};
  std::deque<std::array<Cell, 4>> parts_ = std::deque<std::array<Cell, 4>>(1);
  std::uint32_t chance_ = 1;

  std::set<std::pair<std::uint32_t, std::uint32_t>> reported_;
  std::map<const void*, int> reports_;  ///< by kernel
  std::vector<std::string> texts_;
};

// Never destroyed, like the blocks' runner.
Detector& detector() {
  static Detector& instance = *new Detector;
  return instance;
}

thread_local bool recording = false;

/// A kernel that lacks a barrier may read an index that no thread has written yet, and crash. The
/// other threads then continue, so that the write is seen and the race is reported.
void handle_crash(int number) {
  if (!recording) {
    signal(number, SIG_DFL);  // The instruction that failed runs again.
    return;
  }
  abandon_thread(number == SIGFPE ? "a division by zero" : "an access to an invalid address");
}

void handle_crashes() {
  struct sigaction action = {};
  action.sa_handler = handle_crash;
  action.sa_flags = SA_NODEFER;
  for (const int number : {SIGSEGV, SIGBUS, SIGFPE}) sigaction(number, &action, nullptr);
}

void Detector::begin_kernel(const GridLaunch& launch, const void* dynamic_shared) {
  launch_ = &launch;
  threads_ = launch.block.x * launch.block.y * launch.block.z;
  kernel_period_ = ++periods_;
  released_.clear();
  if (pages_.size() > kMaxPages) {
    pages_.clear();
    recent_ = {};
    parts_.resize(1);
  }
  handle_crashes();
  dynamic_ = reinterpret_cast<std::uintptr_t>(dynamic_shared);
  dynamic_end_ = dynamic_ + launch.shared_bytes;
  static_ = ~std::uintptr_t{0};
  static_end_ = 0;
  for (const LocalVariable& variable : thread_local_variables()) {
    const auto begin = reinterpret_cast<std::uintptr_t>(variable.here());
    static_ = std::min(static_, begin);
    static_end_ = std::max(static_end_, begin + variable.bytes);
  }
}

void Detector::end_kernel() {
  launch_ = nullptr;
}

void Detector::begin_block(std::uint64_t block) {
  block_ = static_cast<std::uint32_t>(block);
  block_period_ = ++periods_;
  base_ = 0;
  std::fill_n(thread_.begin(), threads_, Thread{});
  fenced_ = knowledge_ = false;
  block_fenced_.assign(threads_, 0);
  released_shared_.clear();
}

void Detector::block_barrier() {
  if (fenced_) {
    for (unsigned t = 0; t < threads_; ++t) {
      const Fences& fences = thread_[t].fences;
      if (!fences.any) continue;
      for (unsigned lane = 0; lane < 32 && t / 32 * 32 + lane < threads_; ++lane) {
        std::uint32_t& clock = block_fenced_[t / 32 * 32 + lane];
        clock = std::max(clock, fences.before.lanes[lane]);
      }
    }
    std::uint32_t base = 0;
    for (unsigned t = 0; t < threads_; ++t) base = std::max(base, thread_[t].fences.before.base);
    for (std::uint32_t& clock : block_fenced_) clock = std::max(clock, base);
  }
  if (knowledge_) {
    Fences all;
    for (unsigned t = 0; t < threads_; ++t) {
      join(all.others, thread_[t].fences.others);
      join(all.seen, thread_[t].fences.seen);
      join(all.acquired, thread_[t].fences.acquired);
    }
    for (unsigned t = 0; t < threads_; ++t) {
      thread_[t].fences.others = all.others;
      thread_[t].fences.seen = all.seen;
      thread_[t].fences.acquired = all.acquired;
    }
  }
  std::uint32_t clock = 0;
  for (unsigned t = 0; t < threads_; ++t) clock = std::max(clock, thread_[t].clock);
  base_ = clock + 1;
  for (unsigned t = 0; t < threads_; ++t) {
    thread_[t].clock = base_;
    thread_[t].known.base = base_;
  }
}

void Detector::warp_barrier(unsigned lanes) {
  const unsigned first = current / 32 * 32;
  BlockView known;
  Fences fences;
  for (unsigned lane = 0; lane < 32; ++lane) {
    if (!(lanes & (1U << lane))) continue;
    Thread& each = thread_[first + lane];
    known.join(each.known);
    if (fenced_ && each.fences.any) {
      fences.any = true;
      fences.before.join(each.fences.before);
    }
    if (knowledge_) {
      join(fences.others, each.fences.others);
      join(fences.seen, each.fences.seen);
      join(fences.acquired, each.fences.acquired);
    }
  }
  for (unsigned lane = 0; lane < 32; ++lane) {
    if (lanes & (1U << lane)) known.lanes[lane] = ++thread_[first + lane].clock;
  }
  for (unsigned lane = 0; lane < 32; ++lane) {
    if (!(lanes & (1U << lane))) continue;
    thread_[first + lane].known = known;
    if (fenced_ || knowledge_) thread_[first + lane].fences = fences;
  }
}

void Detector::fence() {
  Thread& self = thread_[current];
  fenced_ = true;
  join(self.fences.acquired, self.fences.seen);
  join(self.fences.others, self.fences.acquired);
  self.fences.any = true;
  self.fences.before.join(self.known);
  self.fences.before.lanes[current % 32] = ++self.clock;
}

void Detector::atomic(const void* address) {
  const auto key = reinterpret_cast<std::uintptr_t>(address);
  auto& all = is_shared(key) ? released_shared_ : released_;
  Thread& self = thread_[current];
  if (const auto found = all.find(key); found != all.end()) {
    join(self.fences.seen, found->second);
    knowledge_ = true;
  }
  if (!fenced_) return;
  Clocks clocks = block_fenced_;
  for (std::uint32_t& clock : clocks) clock = std::max(clock, self.fences.before.base);
  const unsigned first = current / 32 * 32;
  for (unsigned lane = 0; lane < 32 && first + lane < threads_; ++lane) {
    clocks[first + lane] = std::max(clocks[first + lane], self.fences.before.lanes[lane]);
  }
  Knowledge mine = std::make_shared<const ClocksByBlock>(
      ClocksByBlock{{block_, std::make_shared<const Clocks>(std::move(clocks))}});
  join(mine, self.fences.others);
  join(all[key], mine);
}

/// Returns true if the running thread's next access comes after `past`, an access of the same
/// period.
bool Detector::ordered(const Past& past) const {
  const Thread& self = thread_[current];
  if (past.block == block_) {
    if (past.thread == current || past.clock < base_) return true;
    if (past.thread / 32 == current / 32 && past.clock < self.known.lanes[past.thread % 32]) {
      return true;
    }
  }
  if (!self.fences.acquired) return false;
  const auto found = self.fences.acquired->find(past.block);
  return found != self.fences.acquired->end() && past.clock < (*found->second)[past.thread];
}

Page& Detector::page_of(std::uintptr_t address) {
  const std::uintptr_t number = address / Page::kBytes;
  auto& recent = recent_[number % recent_.size()];
  if (recent.first != number || !recent.second) {
    auto& page = pages_[number];
    if (!page) page = std::make_unique<Page>();
    recent = {number, page.get()};
  }
  return *recent.second;
}

void Detector::record(std::uintptr_t address, std::size_t bytes, Access access, const void* place) {
  if (address >= stack && address < stack_end) return;
  // Variables of the program, such as threadIdx: kernels do not write them.
  if (address >= reinterpret_cast<std::uintptr_t>(&__executable_start) &&
      address < reinterpret_cast<std::uintptr_t>(&_end)) {
    return;
  }
  const std::uint32_t period = is_shared(address) ? block_period_ : kernel_period_;
  const auto code =
      static_cast<std::uint32_t>(static_cast<const char*>(place) - &__executable_start);
  const std::uintptr_t end = address + bytes;
  while (address < end) {
    const std::uintptr_t word = address & ~std::uintptr_t{3};
    const std::uintptr_t stop = std::min(end, word + 4);
    Cell& cell = page_of(address).cells[address % Page::kBytes / 4];
    if (cell.parts == 0 && stop - address == 4) {
      visit(cell, period, access, code, address);
    } else {
      if (cell.parts == 0) {
        parts_.push_back({cell, cell, cell, cell});
        cell.parts = static_cast<std::uint32_t>(parts_.size() - 1);
      }
      auto& parts = parts_[cell.parts];
      for (std::uintptr_t each = address; each < stop; ++each) {
        visit(parts[each % 4], period, access, code, each);
      }
    }
    address = stop;
  }
}

void Detector::visit(Cell& cell, std::uint32_t period, Access access, std::uint32_t place,
                     std::uintptr_t address) {
  if (cell.period != period) {
    cell.period = period;
    cell.atomic = false;
    cell.write = {};
    cell.reads = {};
  }
  if (cell.write.place != 0 && !(cell.atomic && access == Access::atomic) && !ordered(cell.write)) {
    report(cell.write, cell.atomic ? Access::atomic : Access::write, access, place, address);
  }
  const Past now{block_, current, thread_[current].clock, place};
  if (access == Access::read) {
    add_read(cell, now);
    return;
  }
  for (Past& read : cell.reads) {
    if (read.place != 0 && !ordered(read)) report(read, Access::read, access, place, address);
    read = {};
  }
  cell.write = now;
  cell.atomic = access == Access::atomic;
}

/// Remembers a read. It replaces a read that comes before it, if there is one.
void Detector::add_read(Cell& cell, const Past& read) {
  for (Past& each : cell.reads) {
    if (each.place == 0 || ordered(each)) {
      each = read;
      return;
    }
  }
  // Reads of several warps say more than those of one.
  for (Past& each : cell.reads) {
    if (each.block == read.block && each.thread / 32 == read.thread / 32) {
      // One of two lanes is kept by chance: a write by either lane must be found.
      chance_ = chance_ * 1664525U + 1013904223U;
      if (chance_ >> 31) each = read;
      return;
    }
  }
  chance_ = chance_ * 1664525U + 1013904223U;
  cell.reads[(chance_ >> 16) % cell.reads.size()] = read;
}

// ---- Reports -----------------------------------------------------------------------------------

/// Returns the source lines of the code at these offsets, from the innermost inlined function out.
std::vector<std::string> source_lines(std::uint32_t a, std::uint32_t b) {
  std::vector<std::string> result;
  for (const std::uint32_t place : {a, b}) {
    // The place is the return address of the call. The byte before it belongs to the call.
    const std::string command =
        fmt::format("addr2line -Cfpi -e /proc/{}/exe {:#x} 2>/dev/null", getpid(), place - 1);
    std::string text;
    if (FILE* pipe = popen(command.c_str(), "r")) {
      char line[4096];
      while (std::fgets(line, sizeof line, pipe)) text += fmt::format("      {}", line);
      pclose(pipe);
    }
    result.push_back(text.empty() ? fmt::format("      offset {:#x}\n", place - 1) : text);
  }
  return result;
}

const char* name(Access access) {
  return access == Access::read ? "read" : access == Access::write ? "write" : "atomic operation";
}

std::string Detector::thread_name(std::uint32_t block, std::uint32_t thread) const {
  const dim3 grid = launch_->grid, shape = launch_->block;
  return fmt::format("block {},{},{} thread {},{},{}", block % grid.x, block / grid.x % grid.y,
                     block / grid.x / grid.y, thread % shape.x, thread / shape.x % shape.y,
                     thread / shape.x / shape.y);
}

void end_with_reports() {
  const std::size_t count = detector().take().size();
  if (count == 0) return;
  std::fflush(nullptr);
  fmt::print(stderr, "emulated GPU: {} races of kernels were reported\n", count);
  _exit(kExitCode);
}

void Detector::report(const Past& past, Access before, Access now, std::uint32_t place,
                      std::uintptr_t address) {
  if (!reported_.insert({past.place, place}).second) return;
  const void* kernel = launch_->kernel->function();
  const int count = ++reports_[kernel];
  if (count > kReportsPerKernel) return;
  std::string where;
  if (address >= dynamic_ && address < dynamic_end_) {
    where = fmt::format("byte {} of dynamic shared memory", address - dynamic_);
  } else if (is_shared(address)) {
    where = fmt::format("shared memory ({:#x})", address);
  } else {
    std::uintptr_t start = 0;
    const Allocation* memory = find_memory(reinterpret_cast<const void*>(address), &start);
    where =
        memory ? fmt::format("byte {} of {} bytes of global memory", address - start, memory->bytes)
               : fmt::format("global memory ({:#x})", address);
  }
  const auto lines = source_lines(place, past.place);
  std::string text = fmt::format(
      "race in {}\n  at {}\n  {} by {}\n{}  after a {} by {}, without an order between them\n{}",
      function_name(kernel), where, name(now), thread_name(block_, current), lines[0], name(before),
      thread_name(past.block, past.thread), lines[1]);
  if (count == kReportsPerKernel) text += "  (further races in this kernel are not reported)\n";
  fmt::print(stderr, "emulated GPU: {}", text);
  const char* mode = std::getenv("DPT_EMULATED_RACES");
  if (mode && std::string_view(mode) == "stop") {
    std::fflush(nullptr);
    _exit(kExitCode);
  }
  if (texts_.empty()) {
    static const int registered = std::atexit(end_with_reports);
    static_cast<void>(registered);
  }
  texts_.push_back(std::move(text));
}

std::vector<std::string> Detector::take() {
  reported_.clear();
  reports_.clear();
  return std::exchange(texts_, {});
}

}  // namespace

void begin_kernel(const GridLaunch& launch, const void* dynamic_shared) {
  detector().begin_kernel(launch, dynamic_shared);
}
void end_kernel() {
  detector().end_kernel();
}
void begin_block(std::uint64_t block) {
  detector().begin_block(block);
}
void resume() {
  recording = true;
}
void pause() {
  recording = false;
}
void run_thread(unsigned thread) {
  detector().current = thread;
}
void use_stack(const void* stack, std::size_t bytes) {
  detector().stack = reinterpret_cast<std::uintptr_t>(stack);
  detector().stack_end = detector().stack + bytes;
}
void block_barrier() {
  detector().block_barrier();
}
void record(const void* address, std::size_t bytes, Access access, const void* place) {
  if (!recording) return;
  Detector& instance = detector();
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  instance.record(begin, bytes, access, place);
  if (access == Access::atomic) instance.atomic(address);
}

}  // namespace emulation::races

namespace emulation {

bool detects_races() {
  return true;
}
std::vector<std::string> take_races() {
  const Lock lock(state().mutex);
  return races::detector().take();
}

namespace detail {

void order_fence() {
  if (races::recording) races::detector().fence();
}
void order_warp(unsigned lanes) {
  races::detector().warp_barrier(lanes);
}

}  // namespace detail
}  // namespace emulation

#else

#include "state.h"

namespace emulation {

bool detects_races() {
  return false;
}
std::vector<std::string> take_races() {
  return {};
}

}  // namespace emulation

#endif
