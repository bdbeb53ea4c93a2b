// Sums over GPUs by NCCL: one communicator and one stream of its own for each. The communicators do
// not block, so that a rank which fails can end them all (see guarded_communicator.h).
#include <dlfcn.h>
#include <nccl.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <memory>
#include <type_traits>
#include <vector>

#include "kernels/cuda/runtime/check.h"
#include "kernels/cuda/runtime/context.h"
#include "kernels/cuda/runtime/guarded_communicator.h"
#include "kernels/cuda/runtime/libraries.h"
#include "kernels/peer_sums.h"

namespace dpt {
namespace {

// What a healthy NCCL does in a second or two; other ranks may still be busy elsewhere.
constexpr std::chrono::milliseconds kMostToConnect{120'000};

/// The functions of NCCL that dpt calls.
struct Nccl {
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

class NcclSums final : public PeerSums {
 public:
  explicit NcclSums(const std::vector<const CudaContext*>& contexts) {
    int present = 0;
    cuda_check(cudaGetDevice(&present), "cudaGetDevice");
    for (const CudaContext* context : contexts) ranks_.emplace_back(*context);
    for (Rank& rank : ranks_) rank.make_stream();
    connect();
    cuda_check(cudaSetDevice(present), "cudaSetDevice");
  }

  void begin(int rank, DevPtr data, std::int64_t count) override {
    Rank& mine = ranks_[static_cast<std::size_t>(rank)];
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
        kMostToConnect);
  }

  void finish(int rank) override {
    Rank& mine = ranks_[static_cast<std::size_t>(rank)];
    mine.communicator.require_alive();
    cuda_check(cudaEventRecord(mine.done, mine.stream), "cudaEventRecord");
    cuda_check(cudaStreamWaitEvent(mine.context.stream, mine.done, 0), "cudaStreamWaitEvent");
  }

  void abort() noexcept override {
    for (Rank& rank : ranks_) rank.communicator.abort();
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

  /// One communicator for each rank, all of them made by this thread.
  void connect() {
    const std::string& who = ranks_.front().context.name;
    ncclUniqueId id;
    nccl_check(nccl().unique_id(&id), who, "ncclGetUniqueId");
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    std::vector<ncclComm_t> handles(ranks_.size(), nullptr);
    ncclResult_t status = nccl().group_start();
    for (std::size_t i = 0; i < ranks_.size() && status == ncclSuccess; ++i) {
      cuda_check(cudaSetDevice(ranks_[i].context.device), "cudaSetDevice");
      status = nccl().init_rank(&handles[i], static_cast<int>(ranks_.size()), id,
                                static_cast<int>(i), &config);
      if (status == ncclInProgress) status = ncclSuccess;
    }
    const ncclResult_t ended = nccl().group_end();
    // Owned at once: what fails from here on is ended and freed with the ranks.
    for (std::size_t i = 0; i < ranks_.size(); ++i) ranks_[i].communicator.own(handles[i]);
    nccl_check(status, who, "ncclCommInitRankConfig");
    nccl_check(ended, who, "ncclGroupEnd");
    for (Rank& rank : ranks_) rank.communicator.run([](ncclComm_t) {}, kMostToConnect);
  }

  std::deque<Rank> ranks_;  ///< they stay where they are
};

}  // namespace

std::unique_ptr<PeerSums> make_peer_sums(std::span<Backend* const> backends, std::string& why_not) {
  std::vector<const CudaContext*> contexts;
  std::vector<int> gpus;
  for (const Backend* backend : backends) {
    const CudaContext* context = cuda_context_of(*backend);
    if (!context) {
      why_not = "not all devices are GPUs";
      return nullptr;
    }
    contexts.push_back(context);
    gpus.push_back(context->device);
  }
  // NCCL refuses two ranks on one GPU.
  std::sort(gpus.begin(), gpus.end());
  if (gpus.size() < 2 || std::adjacent_find(gpus.begin(), gpus.end()) != gpus.end()) {
    why_not = "replicas share a GPU";
    return nullptr;
  }
  try {
    nccl();
  } catch (const Error& error) {
    why_not = error.what();
    return nullptr;
  }
  return std::make_unique<NcclSums>(contexts);
}

}  // namespace dpt
