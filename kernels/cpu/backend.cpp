// The CPU as a device: memory of this process, and a queue that runs every call immediately in the
// calling thread.
#include "kernels/backend.h"

#include <omp.h>

#include <algorithm>
#include <cassert>
#include <cstdlib>
#include <cstring>

#include "kernels/base/align.h"
#include "kernels/base/denormals.h"
#include "kernels/base/host.h"
#include "kernels/base/start_thread.h"
#include "kernels/base/text.h"
#include "kernels/cpu/batch_norm.h"
#include "kernels/cpu/check.h"
#include "kernels/cpu/flat.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/optimizer.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/range_norms.h"
#include "kernels/cpu/relu.h"
#include "kernels/cpu/step_clock.h"

namespace dpt {
namespace {

/// Minimum size in bytes of a request that is checked against the free memory.
constexpr std::size_t kCheckedBytes = std::size_t{1} << 20;

DevPtr device_pointer(const void* host_address) {
  return {reinterpret_cast<std::uintptr_t>(host_address)};
}

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(int threads) : target_{threads, CpuFeatures::detect()} {
    flush_denormals();
    // If oneDNN is limited to older instructions (ONEDNN_MAX_CPU_ISA), dpt refuses bf16 as a whole.
    target_.features.avx512_bf16 &= onednn::has_bf16();
    if (threads > 1) {
      // OpenMP ends the process when it cannot start its team, so check first. oneDNN computes on
      // the same team in its own parallel regions, so make the team flush denormals here.
      require_threads(fmt::format("the OpenMP team of cpu:{}", threads), threads - 1);
      parallel_for(threads, threads, [](std::int64_t) {});
    }
    info_.name = threads == 1 ? "cpu" : fmt::format("cpu:{}", threads);
    info_.description = host_system::processor_model();
    info_.instruction_set = onednn::instruction_set();
    info_.library = onednn::version();
    info_.threads = threads;
  }

  const DeviceInfo& info() const override { return info_; }

  DeviceMemory allocate(std::size_t bytes, const std::string& what) override {
    if (bytes == 0) return {};
    // Linux grants more memory than it has and kills the process later, so refuse here.
    const std::size_t whole = bytes + kAlignment - 1 < bytes ? bytes : aligned(bytes);
    const bool fits = bytes < kCheckedBytes || bytes <= host_system::memory().free;
    void* memory = fits ? std::aligned_alloc(kAlignment, whole) : nullptr;
    if (!memory) fail_for_memory(bytes, what);
    return {device_pointer(memory), bytes,
            [](DevPtr ptr, std::size_t) { std::free(host<void>(ptr)); }};
  }
  DeviceMemory make_resident(std::span<const std::byte> bytes, const std::string&) override {
    return {device_pointer(bytes.data()), bytes.size(), [](DevPtr, std::size_t) {}};
  }
  HostMemory allocate_host(std::size_t bytes, const std::string& what) override {
    const DeviceMemory checked = allocate(bytes, what);
    return {new std::byte[bytes], [](std::byte* memory) { delete[] memory; }};
  }
  std::uint64_t free_bytes() override { return host_system::memory().free; }
  bool can_use_memory_of(const Backend& other) override {
    return dynamic_cast<const CpuBackend*>(&other) != nullptr;
  }
  void upload(DevPtr to, const void* from, std::size_t bytes) override {
    std::memcpy(host<void>(to), from, bytes);
  }
  void download(void* to, DevPtr from, std::size_t bytes) override {
    std::memcpy(to, host<void>(from), bytes);
  }
  void copy(DevPtr to, DevPtr from, std::size_t bytes) override {
    std::memmove(host<void>(to), host<void>(from), bytes);
  }
  void zero(DevPtr to, std::size_t bytes) override { std::memset(host<void>(to), 0, bytes); }
  void begin_phases(DevPtr times) override { cpu_begin_phases(*host<PhaseTimes>(times)); }
  void end_phase(DevPtr times, StepPhase phase) override {
    cpu_end_phase(*host<PhaseTimes>(times), phase);
  }
  std::uint64_t record() override { return ++marks_; }
  void wait(std::uint64_t) override {}
  void synchronize() override {}

  // Every call has run when it returns, so events have nothing to wait for, and graphs would save
  // nothing.
  std::unique_ptr<Event> make_event() override { return std::make_unique<Event>(); }
  void record(Event&) override {}
  void wait_for(const Event&) override {}
  void upload_overlapped(DevPtr to, const void* from, std::size_t bytes, const Event&,
                         Event&) override {
    upload(to, from, bytes);
  }
  std::unique_ptr<CapturedGraph> capture(const std::function<void()>&) override { return nullptr; }
  void replay(CapturedGraph&) override { assert(false && "the CPU records nothing"); }

  std::unique_ptr<Op> make(const OpDesc& desc) override {
    return std::visit([&](const auto& each) { return make_cpu_op(each, target_); }, desc);
  }
  void avoid(const std::set<std::string>& kernels) override {
    // Instead of these kernels, operations then use those of a narrower instruction set, or
    // oneDNN's.
    for (const std::string& name : kernels) {
      if (name.ends_with(":avx512_bf16")) target_.features.avx512_bf16 = false;
      if (name.ends_with(":avx512")) target_.features.avx512 = false;
      if (name.ends_with(":avx2")) target_.features.avx2 = false;
    }
  }
  std::unique_ptr<LossOp> make_loss(const LossOpDesc& desc) override {
    return std::visit([](const auto& each) { return make_cpu_loss_op(each); }, desc);
  }
  std::unique_ptr<InputOp> make_input(const InputDesc& desc) override {
    return make_cpu_input(desc, target_.threads);
  }

  void add(DevPtr to, DevPtr a, DevPtr b, std::int64_t count) override {
    cpu_add(host(to), host(a), host(b), count);
  }
  void tree_sum(std::span<const DevPtr> parts, std::span<const TreeAdd> additions,
                std::span<const DevPtr> outs, std::int64_t count) override {
    cpu_tree_sum(parts, additions, outs, count);
  }
  void merge_moments(std::span<const DevPtr> parts, std::span<const MomentMerge> merges,
                     std::span<const DevPtr> outs, std::int64_t channels) override {
    cpu_merge_moments(parts, merges, outs, channels);
  }
  void check_running(std::span<const RunningRange> ranges, const RunningArgs& args) override {
    cpu_check_running(ranges, args);
  }
  void update_running(std::span<const RunningRange> ranges, Range counters,
                      const RunningArgs& args) override {
    cpu_update_running(ranges, counters, args);
  }
  void fold_norms(std::span<const NormFold> folds, DevPtr params, DevPtr folded) override {
    cpu_fold_norms(folds, params, folded);
  }
  void to_bf16(DevPtr to, DevPtr from, std::int64_t count) override {
    cpu_to_bf16(host<Bf16>(to), host(from), count);
  }
  void grad_norm(DevPtr grads, std::int64_t count, DevPtr scalars) override {
    cpu_grad_norm(host(grads), count, host<StepScalars>(scalars));
  }
  void divide_by_weight(DevPtr grads, std::int64_t count, DevPtr metrics) override {
    cpu_scale(host(grads), host<StepMetrics>(metrics)->inverse_weight(), count);
  }
  void clip_values(DevPtr values, float limit, std::int64_t count) override {
    cpu_clip_values(host(values), limit, count);
  }
  std::unique_ptr<OptimizerOp> optimizer(const OptimizerDesc& desc) override {
    return make_cpu_optimizer(desc);
  }
  std::unique_ptr<RangeNormsOp> range_norms(std::span<const Range> ranges) override {
    return make_cpu_range_norms(ranges);
  }

 private:
  [[noreturn]] void fail_for_memory(std::size_t bytes, const std::string& what) const {
    const std::uint64_t free = host_system::memory().free;
    if (bytes <= free) {
      fail(ErrorKind::device,
           "{}: out of memory: the system refused {} for {}, although {} are free: raise the limit "
           "of this process (ulimit -v), or use a smaller batch_size or fewer devices",
           info_.name, mebibytes(bytes), what, mebibytes(free));
    }
    fail(ErrorKind::device,
         "{}: out of memory: cannot allocate {} for {}: {} are free. Use a smaller batch_size or "
         "fewer devices",
         info_.name, mebibytes(bytes), what, mebibytes(free));
  }

  CpuTarget target_;
  DeviceInfo info_;
  std::uint64_t marks_ = 0;
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(int threads) {
  if (threads < 1) fail(ErrorKind::device, "cpu: needs at least 1 thread, not {}", threads);
  // oneDNN would wait forever for threads that it does not get.
  if (threads > omp_get_thread_limit()) {
    fail(ErrorKind::usage,
         "cpu:{}: expected {} threads, but the environment variable OMP_THREAD_LIMIT allows {}: "
         "unset it, or use fewer threads",
         threads, threads, omp_get_thread_limit());
  }
  return std::make_unique<CpuBackend>(threads);
}

}  // namespace dpt
