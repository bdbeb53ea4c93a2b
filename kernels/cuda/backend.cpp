// A GPU as a device: memory, one queue (a CUDA stream), events, captured graphs.
#include "kernels/cuda/backend.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstdlib>
#include <utility>
#include <vector>

#include "kernels/base/text.h"
#include "kernels/cuda/batch_norm.h"
#include "kernels/cuda/conv2d.h"
#include "kernels/cuda/flat.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/optimizer.h"
#include "kernels/cuda/range_norms.h"
#include "kernels/cuda/runtime/check.h"
#include "kernels/cuda/runtime/context.h"
#include "kernels/cuda/runtime/libraries.h"
#include "kernels/cuda/runtime/wait.h"
#include "kernels/cuda/step_clock.h"

namespace dpt {
namespace {

constexpr std::size_t kPartialsBytes = std::size_t{8} << 20;
constexpr int kOldestMajor = 8;  // oldest architecture for which the build has code

std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

std::string uuid_of(const cudaDeviceProp& gpu) {
  std::string text;
  for (const char byte : gpu.uuid.bytes) {
    text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  }
  return text;
}

/// Returns why dpt cannot use the GPU; empty if the build has code for it.
std::string why_unusable(const cudaDeviceProp& gpu) {
  if (gpu.major >= kOldestMajor) return {};
  return fmt::format(
      "{} has compute capability {}.{}; dpt needs {}.0 or later (Ampere); use another GPU or "
      "devices: cpu",
      gpu.name, gpu.major, gpu.minor, kOldestMajor);
}

/// Sets the maximum number of connections to a GPU, unless the user has set it. Call it before the
/// process's first CUDA call, which reads the setting. Streams that share a connection wait for
/// each other, and replicas on one GPU have two or three streams each.
void allow_connections() {
  static const int set = setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  static_cast<void>(set);
}

/// An event without timing, because no step needs it.
class CudaEvent final : public Event {
 public:
  CudaEvent() {
    cuda_check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreate");
  }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
  ~CudaEvent() override { release_unless_lost(cudaEventDestroy, event_); }
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

class CudaCapturedGraph final : public CapturedGraph {
 public:
  explicit CudaCapturedGraph(cudaGraph_t graph) {
    const cudaError_t status = cudaGraphInstantiate(&executable_, graph, 0);
    cudaGraphDestroy(graph);
    cuda_check(status, "cudaGraphInstantiate");
  }
  CudaCapturedGraph(const CudaCapturedGraph&) = delete;
  CudaCapturedGraph& operator=(const CudaCapturedGraph&) = delete;
  ~CudaCapturedGraph() override { release_unless_lost(cudaGraphExecDestroy, executable_); }
  cudaGraphExec_t get() const { return executable_; }

 private:
  cudaGraphExec_t executable_ = nullptr;
};

class CudaBackend final : public Backend {
 public:
  CudaBackend(int index, const BackendOptions& options) {
    context_.device = index;
    context_.name = fmt::format("cuda:{}", index);
    context_.options = options;
    cuda_check(cudaSetDevice(index), "cudaSetDevice");
    cudaDeviceProp properties = {};
    cuda_check(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties");
    context_.gpu = properties.name;
    context_.uuid = uuid_of(properties);
    memory_bytes_ = properties.totalGlobalMem;
    context_.multiprocessors = properties.multiProcessorCount;
    context_.compute_major = properties.major;
    context_.compute_minor = properties.minor;
    context_.shared_bytes_per_block = properties.sharedMemPerBlockOptin;
    if (const std::string why = why_unusable(properties); !why.empty()) {
      fail(ErrorKind::device, "{}: {}", context_.name, why);
    }
    info_.name = context_.name;
    info_.description = context_.gpu;
    info_.queues = true;
    info_.instruction_set = fmt::format("sm_{}{}", properties.major, properties.minor);
    info_.library = cuda_built_in();
    cuda_check(cudaStreamCreateWithFlags(&context_.stream, cudaStreamNonBlocking),
               "cudaStreamCreate");
    cuda_check(cudaStreamCreateWithFlags(&copies_, cudaStreamNonBlocking), "cudaStreamCreate");
    context_.workspace_bytes = kWorkspaceBytes;
    context_.partials_bytes = kPartialsBytes;
    branches_.emplace_back().stream = context_.stream;
    give_memory(branches_.front());
    select_branch(0);
    synchronize();
  }
  CudaBackend(const CudaBackend&) = delete;
  CudaBackend& operator=(const CudaBackend&) = delete;
  ~CudaBackend() override {
    if (is_device_lost()) return;
    select_branch(0);
    cudaStreamSynchronize(copies_);
    cudaStreamSynchronize(context_.stream);
    for (std::size_t i = 1; i < branches_.size(); ++i) {
      cudaStreamSynchronize(branches_[i].stream);
      cudaStreamDestroy(branches_[i].stream);
    }
    cudaStreamDestroy(copies_);
    cudaStreamDestroy(context_.stream);
  }

  const DeviceInfo& info() const override { return info_; }
  const CudaContext& context() const { return context_; }

  DeviceMemory allocate(std::size_t bytes, const std::string& what) override {
    if (bytes == 0) return {};
    void* memory = nullptr;
    // cudaMalloc reports an error other than lack of memory if the size is absurd.
    const cudaError_t status =
        bytes > memory_bytes_ ? cudaErrorMemoryAllocation : cudaMalloc(&memory, bytes);
    if (status == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      fail(ErrorKind::device,
           "{}: out of memory: cannot allocate {} for {}: {} are free. Use a smaller batch_size or "
           "more devices",
           context_.name, mebibytes(bytes), what, mebibytes(free_bytes()));
    }
    cuda_check(status, "cudaMalloc");
    // cudaFree works from any thread and for any GPU, so the thread's device need not be set.
    return {DevPtr{reinterpret_cast<std::uintptr_t>(memory)}, bytes,
            [](DevPtr ptr, std::size_t) { release_unless_lost(cudaFree, device<void>(ptr)); }};
  }
  DeviceMemory make_resident(std::span<const std::byte> host, const std::string& what) override {
    DeviceMemory memory = allocate(host.size(), what);
    if (!host.empty()) upload(memory.ptr(), host.data(), host.size());
    synchronize();
    return memory;
  }
  HostMemory allocate_host(std::size_t bytes, const std::string& what) override {
    void* memory = nullptr;
    const cudaError_t status = cudaHostAlloc(&memory, std::max<std::size_t>(bytes, 1), 0);
    if (status == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      fail(ErrorKind::device, "{}: cannot allocate {} of page-locked host memory for {}",
           context_.name, mebibytes(bytes), what);
    }
    cuda_check(status, "cudaHostAlloc");
    return {static_cast<std::byte*>(memory),
            [](std::byte* ptr) { release_unless_lost(cudaFreeHost, ptr); }};
  }
  std::uint64_t free_bytes() override {
    std::size_t free = 0, total = 0;
    cuda_check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    return free;
  }
  bool can_use_memory_of(const Backend& other) override {
    const auto* cuda = dynamic_cast<const CudaBackend*>(&other);
    if (!cuda) return false;
    const int peer = cuda->context_.device;
    if (peer == context_.device) return true;
    int possible = 0;
    cuda_check(cudaDeviceCanAccessPeer(&possible, context_.device, peer),
               "cudaDeviceCanAccessPeer");
    if (!possible) return false;
    const cudaError_t status = cudaDeviceEnablePeerAccess(peer, 0);
    if (status == cudaErrorPeerAccessAlreadyEnabled) {
      cudaGetLastError();
    } else {
      cuda_check(status, "cudaDeviceEnablePeerAccess");
    }
    return true;
  }

  void upload(DevPtr to, const void* host, std::size_t bytes) override {
    copy_async(device<void>(to), host, bytes, cudaMemcpyHostToDevice, context_.stream);
  }
  void download(void* host, DevPtr from, std::size_t bytes) override {
    copy_async(host, device<void>(from), bytes, cudaMemcpyDeviceToHost, context_.stream);
  }
  void copy(DevPtr to, DevPtr from, std::size_t bytes) override {
    copy_async(device<void>(to), device<void>(from), bytes, cudaMemcpyDeviceToDevice,
               context_.stream);
  }
  void zero(DevPtr to, std::size_t bytes) override {
    if (bytes == 0) return;
    cuda_check(cudaMemsetAsync(device<void>(to), 0, bytes, context_.stream), "cudaMemsetAsync");
  }
  void begin_phases(DevPtr times) override { cuda_begin_phases(context_, times); }
  void end_phase(DevPtr times, StepPhase phase) override { cuda_end_phase(context_, times, phase); }

  std::uint64_t record() override {
    ++marks_;
    cuda_check(cudaEventRecord(mark(marks_).get(), context_.stream), "cudaEventRecord");
    return marks_;
  }
  void wait(std::uint64_t mark_to_wait) override {
    // If the event has been recorded again since the mark, it marks a later point, and waiting for
    // that is sufficient.
    if (mark_to_wait == 0) return;
    wait_for_event(context_, mark(mark_to_wait).get());
  }
  void synchronize() override { wait_for_stream(context_, context_.stream); }

  std::unique_ptr<Event> make_event() override { return std::make_unique<CudaEvent>(); }
  void record(Event& event) override {
    cuda_check(cudaEventRecord(event_of(event), context_.stream), "cudaEventRecord");
  }
  void wait_for(const Event& event) override {
    cuda_check(cudaStreamWaitEvent(context_.stream, event_of(event), 0), "cudaStreamWaitEvent");
  }
  void upload_overlapped(DevPtr to, const void* host, std::size_t bytes, const Event& after,
                         Event& done) override {
    cuda_check(cudaStreamWaitEvent(copies_, event_of(after), 0), "cudaStreamWaitEvent");
    copy_async(device<void>(to), host, bytes, cudaMemcpyHostToDevice, copies_);
    cuda_check(cudaEventRecord(event_of(done), copies_), "cudaEventRecord");
  }

  int make_branches(int wanted) override {
    while (static_cast<int>(branches_.size()) < wanted) {
      // Leave memory for other work; no result depends on the number of branches.
      if (free_bytes() < 12 * (kWorkspaceBytes + kPartialsBytes)) break;
      Branch branch;
      cuda_check(cudaStreamCreateWithFlags(&branch.stream, cudaStreamNonBlocking),
                 "cudaStreamCreate");
      branches_.push_back(std::move(branch));
      give_memory(branches_.back());
      wait_for_stream(context_, branches_.back().stream);
    }
    return std::min(wanted, static_cast<int>(branches_.size()));
  }
  void fork(int count) override {
    assert(forked_ == 1 && count <= static_cast<int>(branches_.size()));
    forked_ = count;
    record(fork_);
    for (int i = 1; i < count; ++i) {
      const Branch& branch = branches_[i];
      cuda_check(cudaStreamWaitEvent(branch.stream, fork_.get(), 0), "cudaStreamWaitEvent");
    }
  }
  void select_branch(int index) override {
    const Branch& branch = branches_[index];
    context_.stream = branch.stream;
    context_.workspace = device<void>(branch.workspace.ptr());
    context_.partials = device<void>(branch.partials.ptr());
  }
  void join() override {
    const int count = std::exchange(forked_, 1);
    select_branch(0);
    for (int i = 1; i < count; ++i) {
      const Branch& branch = branches_[i];
      cuda_check(cudaEventRecord(branch.done->get(), branch.stream), "cudaEventRecord");
      cuda_check(cudaStreamWaitEvent(context_.stream, branch.done->get(), 0),
                 "cudaStreamWaitEvent");
    }
  }

  std::unique_ptr<CapturedGraph> capture(const std::function<void()>& work) override {
    // Calls of other threads (such as an allocation by another replica) must not invalidate this
    // capture.
    cuda_check(cudaStreamBeginCapture(context_.stream, cudaStreamCaptureModeThreadLocal),
               "cudaStreamBeginCapture");
    cudaGraph_t graph = nullptr;
    try {
      work();
    } catch (...) {
      forked_ = 1;
      select_branch(0);
      cudaStreamEndCapture(context_.stream, &graph);
      if (graph) cudaGraphDestroy(graph);
      cudaGetLastError();
      throw;
    }
    cuda_check(cudaStreamEndCapture(context_.stream, &graph), "cudaStreamEndCapture");
    auto captured = std::make_unique<CudaCapturedGraph>(graph);
    // Set up the graph's memory on the GPU now instead of at the first replay.
    cuda_check(cudaGraphUpload(captured->get(), context_.stream), "cudaGraphUpload");
    return captured;
  }
  void replay(CapturedGraph& graph) override {
    cuda_check(cudaGraphLaunch(static_cast<CudaCapturedGraph&>(graph).get(), context_.stream),
               "cudaGraphLaunch");
  }

  std::unique_ptr<Op> make(const OpDesc& desc) override {
    return std::visit([&](const auto& each) { return make_cuda_op(context_, each); }, desc);
  }
  void avoid(const std::set<std::string>& kernels) override {
    context_.avoided.merge(std::set(kernels));
  }
  std::unique_ptr<LossOp> make_loss(const LossOpDesc& desc) override {
    return std::visit([&](const auto& each) { return make_cuda_loss_op(context_, each); }, desc);
  }
  std::unique_ptr<InputOp> make_input(const InputDesc& desc) override {
    return make_cuda_input(context_, desc);
  }

  void add(DevPtr to, DevPtr a, DevPtr b, std::int64_t count) override {
    cuda_add(context_, to, a, b, count);
  }
  void tree_sum(std::span<const DevPtr> parts, std::span<const TreeAdd> additions,
                std::span<const DevPtr> outs, std::int64_t count) override {
    cuda_tree_sum(context_, parts, additions, outs, count);
  }
  void merge_moments(std::span<const DevPtr> parts, std::span<const MomentMerge> merges,
                     std::span<const DevPtr> outs, std::int64_t channels) override {
    cuda_merge_moments(context_, parts, merges, outs, channels);
  }
  void check_running(std::span<const RunningRange> ranges, const RunningArgs& args) override {
    cuda_check_running(context_, ranges, args);
  }
  void update_running(std::span<const RunningRange> ranges, Range counters,
                      const RunningArgs& args) override {
    cuda_update_running(context_, ranges, counters, args);
  }
  void fold_norms(std::span<const NormFold> folds, DevPtr params, DevPtr folded) override {
    cuda_fold_norms(context_, folds, params, folded);
  }
  void to_bf16(DevPtr to, DevPtr from, std::int64_t count) override {
    cuda_to_bf16(context_, to, from, count);
  }
  void grad_norm(DevPtr grads, std::int64_t count, DevPtr scalars) override {
    cuda_grad_norm(context_, grads, count, scalars);
  }
  void divide_by_weight(DevPtr grads, std::int64_t count, DevPtr metrics) override {
    cuda_divide_by_weight(context_, grads, count, metrics);
  }
  void clip_values(DevPtr values, float limit, std::int64_t count) override {
    cuda_clip_values(context_, values, limit, count);
  }
  std::unique_ptr<OptimizerOp> optimizer(const OptimizerDesc& desc) override {
    return make_cuda_optimizer(*this, context_, desc);
  }
  std::unique_ptr<RangeNormsOp> range_norms(std::span<const Range> ranges) override {
    return make_cuda_range_norms(*this, context_, ranges);
  }

 private:
  static constexpr std::size_t kMarks = 64;

  /// A stream, and the memory that its kernels share.
  struct Branch {
    cudaStream_t stream = nullptr;
    DeviceMemory workspace, partials;
    std::unique_ptr<CudaEvent> done = std::make_unique<CudaEvent>();
  };

  void give_memory(Branch& branch) {
    branch.workspace = allocate(kWorkspaceBytes, "the libraries' workspace");
    branch.partials = allocate(kPartialsBytes, "partial sums");
    // When compute-sanitizer's initcheck is filtered to some kernels, it misses the libraries'
    // writes to the workspace and reports our kernels' reads. So fill the memory, with huge numbers
    // that cannot be mistaken for a result.
    cuda_check(
        cudaMemsetAsync(device<void>(branch.workspace.ptr()), 0x7F, kWorkspaceBytes, branch.stream),
        "cudaMemsetAsync");
    // Kernels count their finished blocks in the partials: they expect zeros, and leave zeros.
    cuda_check(
        cudaMemsetAsync(device<void>(branch.partials.ptr()), 0, kPartialsBytes, branch.stream),
        "cudaMemsetAsync");
  }

  CudaEvent& mark(std::uint64_t number) { return marks_ring_[number % kMarks]; }
  static cudaEvent_t event_of(const Event& event) {
    return static_cast<const CudaEvent&>(event).get();
  }
  static void copy_async(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                         cudaStream_t stream) {
    if (bytes == 0) return;
    cuda_check(cudaMemcpyAsync(to, from, bytes, kind, stream), "cudaMemcpyAsync");
  }

  CudaContext context_;
  DeviceInfo info_;
  cudaStream_t copies_ = nullptr;
  std::size_t memory_bytes_ = 0;  ///< total memory of the GPU
  std::vector<Branch> branches_;  ///< the first is the queue itself
  int forked_ = 1;                ///< branches of the current fork
  CudaEvent fork_;
  std::uint64_t marks_ = 0;
  std::array<CudaEvent, kMarks> marks_ring_;
};

/// Fills in the description of one GPU. Returns false if the driver does not report its properties.
bool describe(int index, int count, CudaDeviceInfo& gpu) {
  cudaDeviceProp properties = {};
  if (cudaGetDeviceProperties(&properties, index) != cudaSuccess) return false;
  gpu.name = properties.name;
  gpu.uuid = uuid_of(properties);
  gpu.compute_capability = fmt::format("{}.{}", properties.major, properties.minor);
  gpu.multiprocessors = properties.multiProcessorCount;
  gpu.shared_bytes_per_block = properties.sharedMemPerBlockOptin;
  gpu.memory_bytes = properties.totalGlobalMem;
  gpu.unusable = why_unusable(properties);
  for (int peer = 0; peer < count; ++peer) {
    int possible = 0;
    if (peer == index || cudaDeviceCanAccessPeer(&possible, index, peer) != cudaSuccess) continue;
    if (possible) gpu.peers.push_back(peer);
  }
  return true;
}

}  // namespace

std::unique_ptr<Backend> make_cuda_backend(int index, const BackendOptions& options) {
  allow_connections();
  // Set the GPU first, because the backend's member events are created on the current one.
  cuda_check(cudaSetDevice(index), "cudaSetDevice");
  return std::make_unique<CudaBackend>(index, options);
}

const CudaContext* cuda_context_of(const Backend& backend) {
  const auto* cuda = dynamic_cast<const CudaBackend*>(&backend);
  return cuda ? &cuda->context() : nullptr;
}

CudaInfo query_cuda() {
  allow_connections();
  CudaInfo info;
  int driver = 0, runtime = 0, count = 0;
  cudaRuntimeGetVersion(&runtime);
  info.runtime = version_text(runtime);
  if (cudaDriverGetVersion(&driver) == cudaSuccess && driver > 0) {
    info.driver = version_text(driver);
  } else {
    cudaGetLastError();
    info.unavailable = "no NVIDIA driver is installed";
    return info;
  }
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess) {
    cudaGetLastError();
    info.unavailable = status == cudaErrorInsufficientDriver
                           ? fmt::format(
                                 "the driver is too old: it supports CUDA {}, but this dpt was "
                                 "built with CUDA {}; update the driver",
                                 info.driver, info.runtime)
                           : fmt::format("the driver reports: {}", cudaGetErrorString(status));
    return info;
  }
  for (int index = 0; index < count; ++index) {
    CudaDeviceInfo gpu;
    if (describe(index, count, gpu)) info.devices.push_back(gpu);
  }
  if (info.devices.empty()) {
    info.unavailable = "the driver reports no GPU (see nvidia-smi and CUDA_VISIBLE_DEVICES)";
    return info;
  }
  return info;
}

std::vector<std::string> query_cuda_libraries() {
  return describe_libraries();
}

std::string cuda_built_in() {
  return "CUDA " + version_text(CUDART_VERSION);
}

}  // namespace dpt
