// Sums over GPUs by NCCL, with a separate communicator and stream for each GPU. The communicators
// are non-blocking, so a failing rank can abort them all (see guarded_communicator.h). Between
// processes, NCCL chooses the transport: sockets or InfiniBand.
#include <dlfcn.h>
#include <nccl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <fstream>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

#include "kernels/base/start_thread.h"
#include "kernels/cuda/runtime/check.h"
#include "kernels/cuda/runtime/context.h"
#include "kernels/cuda/runtime/guarded_communicator.h"
#include "kernels/cuda/runtime/libraries.h"
#include "kernels/cuda/runtime/wait.h"
#include "kernels/peer_sums.h"

namespace dpt {
namespace {

// A healthy NCCL connects within a second or two, but other ranks may still be busy.
constexpr std::chrono::milliseconds kMaxToConnect{120'000};
// NCCL connects some ranks only at their first sum, and other processes may reach that much later.
// The control channel detects processes that never arrive, and aborts.
constexpr std::chrono::milliseconds kMaxToQueueBetweenProcesses{3'600'000};
// While a GPU works, NCCL reports failures between processes only when it is polled.
constexpr std::chrono::milliseconds kWatchEvery{500};

/// The functions of NCCL that dpt calls.
struct Nccl {
  decltype(&ncclGetVersion) version;
  decltype(&ncclGetUniqueId) unique_id;
  decltype(&ncclCommInitRankConfig) init_rank;
  decltype(&ncclGroupStart) group_start;
  decltype(&ncclGroupEnd) group_end;
  decltype(&ncclCommGetAsyncError) async_error;
  decltype(&ncclCommAbort) abort;
  decltype(&ncclAllReduce) all_reduce;
  decltype(&ncclGetErrorString) error_string;
};

const Nccl& nccl() {
  static const Nccl functions = [] {
    const auto find = [](auto& function, const char* name) {
      function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(nccl_library(), name));
      if (!function) {
        fail(ErrorKind::device, "NCCL cannot be used: it has no {}; NCCL 2.14 or later is needed",
             name);
      }
    };
    Nccl found = {};
    find(found.version, "ncclGetVersion");
    find(found.unique_id, "ncclGetUniqueId");
    find(found.init_rank, "ncclCommInitRankConfig");
    find(found.group_start, "ncclGroupStart");
    find(found.group_end, "ncclGroupEnd");
    find(found.async_error, "ncclCommGetAsyncError");
    find(found.abort, "ncclCommAbort");
    find(found.all_reduce, "ncclAllReduce");
    find(found.error_string, "ncclGetErrorString");
    return found;
  }();
  return functions;
}

/// Throws if a call failed. A call that waits for other ranks returns "in progress", and reports an
/// error only later.
void nccl_check(ncclResult_t status, const std::string& who, const char* call) {
  if (status == ncclSuccess || status == ncclInProgress) return;
  fail(ErrorKind::device, "{}: {} failed: {}; NCCL_DEBUG=INFO shows more", who, call,
       nccl().error_string(status));
}

/// Api of GuardedCommunicator for NCCL.
struct NcclApi {
  using Handle = ncclComm_t;
  std::string who;

  bool in_progress(Handle handle) const {
    ncclResult_t state = ncclSuccess;
    nccl_check(nccl().async_error(handle, &state), who, "ncclCommGetAsyncError");
    nccl_check(state, who, "NCCL");
    return state == ncclInProgress;
  }
  /// Aborts the communicator and frees it. Destructors use it, too: by then nobody needs the result
  /// of a sum that still runs.
  static void abort(Handle handle) noexcept { release_unless_lost(nccl().abort, handle); }
};

/// Restores the calling thread's device in its destructor.
class KeptDevice {
 public:
  KeptDevice() { cuda_check(cudaGetDevice(&device_), "cudaGetDevice"); }
  KeptDevice(const KeptDevice&) = delete;
  ~KeptDevice() { cudaSetDevice(device_); }

 private:
  int device_ = 0;
};

class NcclSums final : public PeerSums {
 public:
  explicit NcclSums(const std::vector<const CudaContext*>& contexts) {
    const KeptDevice kept;
    for (const CudaContext* context : contexts) ranks_.emplace_back(*context);
    for (Rank& rank : ranks_) rank.make_stream();
  }
  ~NcclSums() override {
    {
      const std::lock_guard lock(watch_mutex_);
      has_ended_ = true;
    }
    ended_.notify_all();
    if (watcher_.joinable()) watcher_.join();
  }

  void connect(const PeerWorld& world) override {
    const KeptDevice kept;
    const std::string& who = ranks_.front().context.name;
    ncclUniqueId id;
    if (world.id.size() != sizeof id) {
      fail(ErrorKind::device, "{}: expected an NCCL id of {} bytes, found {}", who, sizeof id,
           world.id.size());
    }
    std::memcpy(&id, world.id.data(), sizeof id);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    std::vector<ncclComm_t> handles(ranks_.size(), nullptr);
    ncclResult_t status = nccl().group_start();
    cudaError_t device_status = cudaSuccess;
    for (std::size_t i = 0; i < ranks_.size() && status == ncclSuccess; ++i) {
      device_status = cudaSetDevice(ranks_[i].context.device);
      if (device_status != cudaSuccess) break;  // A group that was started must be ended.
      status = nccl().init_rank(&handles[i], world.total, id, world.first + static_cast<int>(i),
                                &config);
      if (status == ncclInProgress) status = ncclSuccess;
    }
    const ncclResult_t ended = nccl().group_end();
    // Take ownership at once, so that after a later failure the destructors of the ranks abort and
    // free the communicators.
    for (std::size_t i = 0; i < ranks_.size(); ++i) ranks_[i].communicator.own(handles[i]);
    cuda_check(device_status, "cudaSetDevice");
    nccl_check(status, who, "ncclCommInitRankConfig");
    nccl_check(ended, who, "ncclGroupEnd");
    for (Rank& rank : ranks_) rank.communicator.run([](ncclComm_t) {}, kMaxToConnect);
    if (world.total == static_cast<int>(ranks_.size())) return;
    most_to_queue_ = kMaxToQueueBetweenProcesses;
    watcher_ = start_thread("the watch over NCCL", [this] { watch(); });
  }

  void begin(int rank, DevPtr data, std::int64_t count) override {
    Rank& mine = ranks_[rank];
    mine.communicator.require_alive();
    cuda_check(cudaEventRecord(mine.ready, mine.context.stream), "cudaEventRecord");
    cuda_check(cudaStreamWaitEvent(mine.stream, mine.ready, 0), "cudaStreamWaitEvent");
    float* memory = device<float>(data);
    mine.communicator.run(
        [&](ncclComm_t handle) {
          nccl_check(nccl().all_reduce(memory, memory, static_cast<std::size_t>(count), ncclFloat32,
                                       ncclSum, handle, mine.stream),
                     mine.context.name, "ncclAllReduce");
        },
        most_to_queue_);
  }

  void finish(int rank) override {
    Rank& mine = ranks_[rank];
    mine.communicator.require_alive();
    cuda_check(cudaEventRecord(mine.done, mine.stream), "cudaEventRecord");
    cuda_check(cudaStreamWaitEvent(mine.context.stream, mine.done, 0), "cudaStreamWaitEvent");
  }

  void stop(int rank) noexcept override {
    if (cudaStreamQuery(ranks_[rank].stream) == cudaErrorNotReady) {
      abort();
    }
  }

  void abort() noexcept override {
    // Set this first: after the abort, work that waits on a GPU continues, and its results must not
    // be taken for complete sums.
    was_aborted_ = true;
    for (Rank& rank : ranks_) rank.communicator.abort();
  }

  void require_whole() const override {
    if (!was_aborted_) return;
    const std::lock_guard lock(watch_mutex_);
    fail(ErrorKind::peer, "{}: the sums over GPUs were aborted because {}",
         ranks_.front().context.name, failure_.empty() ? "another rank failed" : failure_);
  }

 private:
  struct Rank {
    explicit Rank(const CudaContext& of) : context(of), communicator(NcclApi{of.name}, of.name) {}
    Rank(const Rank&) = delete;
    Rank& operator=(const Rank&) = delete;
    ~Rank() {
      communicator.abort();  // Abort before destroying the stream of its kernels.
      if (is_device_lost()) return;
      if (ready) cudaEventDestroy(ready);
      if (done) cudaEventDestroy(done);
      if (stream) cudaStreamDestroy(stream);
    }
    void make_stream() {
      cuda_check(cudaSetDevice(context.device), "cudaSetDevice");
      // Sums come before other work that is ready, because the update waits for them.
      int lowest = 0, highest = 0;
      cuda_check(cudaDeviceGetStreamPriorityRange(&lowest, &highest),
                 "cudaDeviceGetStreamPriorityRange");
      cuda_check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, highest),
                 "cudaStreamCreateWithPriority");
      cuda_check(cudaEventCreateWithFlags(&ready, cudaEventDisableTiming), "cudaEventCreate");
      cuda_check(cudaEventCreateWithFlags(&done, cudaEventDisableTiming), "cudaEventCreate");
    }

    const CudaContext& context;
    GuardedCommunicator<NcclApi> communicator;
    cudaStream_t stream = nullptr;
    cudaEvent_t ready = nullptr, done = nullptr;
  };

  /// Aborts when a sum can no longer finish because a process or the network failed. Without this,
  /// the ranks' threads would wait for their GPUs, and the GPUs for other processes.
  void watch() {
    std::unique_lock lock(watch_mutex_);
    while (!ended_.wait_for(lock, kWatchEvery, [this] { return has_ended_; })) {
      try {
        for (Rank& rank : ranks_) rank.communicator.check();
      } catch (const std::exception& error) {
        failure_ = error.what();
        lock.unlock();
        abort();
        return;
      }
    }
  }

  std::deque<Rank> ranks_;  ///< never moved in memory
  std::chrono::milliseconds most_to_queue_ = kMaxToConnect;
  std::atomic<bool> was_aborted_{false};
  mutable std::mutex watch_mutex_;
  std::condition_variable ended_;
  bool has_ended_ = false;  // guarded by watch_mutex_
  std::string failure_;     // guarded by watch_mutex_; failure that watch() found
  std::thread watcher_;
};

/// Returns an id that is the same in all containers of a machine.
std::string machine_id() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  if (!id.empty()) return id;
  std::array<char, 256> name = {};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

PeerReadiness::Gpu gpu_of(const CudaContext& context) {
  std::array<char, 32> bus = {};
  cuda_check(cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), context.device),
             "cudaDeviceGetPCIBusId");
  PeerReadiness::Gpu gpu;
  gpu.name = context.name;
  gpu.uuid = context.uuid;
  gpu.place = fmt::format("{} {}", machine_id(), bus.data());
  return gpu;
}

}  // namespace

PeerReadiness peer_readiness(std::span<Backend* const> backends) noexcept {
  PeerReadiness readiness;
  try {
    for (const Backend* backend : backends) {
      const CudaContext* context = cuda_context_of(*backend);
      if (!context) fail(ErrorKind::device, "not all devices are GPUs");
      readiness.gpus.push_back(gpu_of(*context));
    }
    int version = 0;
    nccl_check(nccl().version(&version), readiness.gpus.front().name, "ncclGetVersion");
    readiness.library =
        fmt::format("NCCL {}.{}.{}", version / 10000, version / 100 % 100, version % 100);
  } catch (const std::exception& error) {
    readiness.why_not = error.what();
  }
  return readiness;
}

std::string make_peer_id() {
  ncclUniqueId id;
  nccl_check(nccl().unique_id(&id), "NCCL", "ncclGetUniqueId");
  return {reinterpret_cast<const char*>(&id), sizeof id};
}

std::unique_ptr<PeerSums> make_peer_sums(std::span<Backend* const> backends) {
  std::vector<const CudaContext*> contexts;
  for (const Backend* backend : backends) contexts.push_back(cuda_context_of(*backend));
  return std::make_unique<NcclSums>(contexts);
}

}  // namespace dpt
