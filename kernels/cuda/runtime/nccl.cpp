// Sums over GPUs by NCCL: one communicator and one stream of its own for each. The communicators do
// not block, so that a rank which fails can end them all (see guarded_communicator.h). Between
// processes NCCL finds its own way, over sockets or InfiniBand.
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
#include "kernels/peer_sums.h"

namespace dpt {
namespace {

// A healthy NCCL connects in a second or two, but other ranks may still be busy elsewhere.
constexpr std::chrono::milliseconds kMaxToConnect{120'000};
// NCCL connects some ranks only at their first sum. Other processes may come to it much later;
// those that do not come at all are noticed by the control channel, which aborts.
constexpr std::chrono::milliseconds kMaxToQueueBetweenProcesses{3'600'000};
// NCCL reports failures between processes during the GPU's work only when it is asked.
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

/// A call that waits for other ranks says "in progress", and its error comes later.
void nccl_check(ncclResult_t status, const std::string& who, const char* call) {
  if (status == ncclSuccess || status == ncclInProgress) return;
  fail(ErrorKind::device, "{}: {} failed: {}; NCCL_DEBUG=INFO shows more", who, call,
       nccl().error_string(status));
}

/// For GuardedCommunicator.
struct NcclApi {
  using Handle = ncclComm_t;
  std::string who;

  bool in_progress(Handle handle) const {
    ncclResult_t state = ncclSuccess;
    nccl_check(nccl().async_error(handle, &state), who, "ncclCommGetAsyncError");
    nccl_check(state, who, "NCCL");
    return state == ncclInProgress;
  }
  /// Frees it too. All sums that were finished have run: nothing is lost by this at the end.
  static void abort(Handle handle) noexcept { nccl().abort(handle); }
};

/// The calling thread's device is what it was when this goes.
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
      fail(ErrorKind::device, "{}: expected an id of NCCL of {} bytes, found {}", who, sizeof id,
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
      if (device_status != cudaSuccess) break;  // A group that was begun has to be ended.
      status = nccl().init_rank(&handles[i], world.total, id, world.first + static_cast<int>(i),
                                &config);
      if (status == ncclInProgress) status = ncclSuccess;
    }
    const ncclResult_t ended = nccl().group_end();
    // Owned at once: what fails from here on is ended and freed with the ranks.
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
    // Before what waits on a GPU goes on: its results must not be taken for those of whole sums.
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
      communicator.abort();  // Before the stream that its kernels are in.
      if (ready) cudaEventDestroy(ready);
      if (done) cudaEventDestroy(done);
      if (stream) cudaStreamDestroy(stream);
    }
    void make_stream() {
      cuda_check(cudaSetDevice(context.device), "cudaSetDevice");
      cuda_check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
      cuda_check(cudaEventCreateWithFlags(&ready, cudaEventDisableTiming), "cudaEventCreate");
      cuda_check(cudaEventCreateWithFlags(&done, cudaEventDisableTiming), "cudaEventCreate");
    }

    const CudaContext& context;
    GuardedCommunicator<NcclApi> communicator;
    cudaStream_t stream = nullptr;
    cudaEvent_t ready = nullptr, done = nullptr;
  };

  /// Aborts when a sum can no longer end: the threads of the ranks wait for their GPUs, and these
  /// for a process or a network that is gone.
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

  std::deque<Rank> ranks_;  ///< they stay where they are
  std::chrono::milliseconds most_to_queue_ = kMaxToConnect;
  std::atomic<bool> was_aborted_{false};
  mutable std::mutex watch_mutex_;
  std::condition_variable ended_;
  bool has_ended_ = false;  // guarded by watch_mutex_
  std::string failure_;     // guarded by watch_mutex_; what the watch has found
  std::thread watcher_;
};

/// The same in all containers of a machine.
std::string machine_id() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  if (!id.empty()) return id;
  std::array<char, 256> name = {};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

PeerReadiness::Gpu gpu_of(const CudaContext& context) {
  cudaDeviceProp properties;
  cuda_check(cudaGetDeviceProperties(&properties, context.device), "cudaGetDeviceProperties");
  std::array<char, 32> bus = {};
  cuda_check(cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), context.device),
             "cudaDeviceGetPCIBusId");
  PeerReadiness::Gpu gpu;
  gpu.name = context.name;
  for (const char byte : properties.uuid.bytes) {
    gpu.uuid += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  }
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
