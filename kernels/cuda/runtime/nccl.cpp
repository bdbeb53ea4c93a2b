// Sums over GPUs by NCCL: one communicator and one stream of its own for each.
#include <dlfcn.h>
#include <nccl.h>

#include <algorithm>
#include <atomic>
#include <type_traits>
#include <vector>

#include "kernels/cuda/runtime/check.h"
#include "kernels/cuda/runtime/context.h"
#include "kernels/cuda/runtime/libraries.h"
#include "kernels/peer_sums.h"

namespace dpt {
namespace {

/// The functions of NCCL that dpt calls.
struct Nccl {
  decltype(&ncclCommInitAll) init_all;
  decltype(&ncclCommDestroy) destroy;
  decltype(&ncclCommAbort) abort;
  decltype(&ncclAllReduce) all_reduce;
  decltype(&ncclGetErrorString) error_string;
};

const Nccl& nccl() {
  static const Nccl functions = [] {
    const auto find = [](auto& function, const char* name) {
      function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(nccl_library(), name));
      if (!function) fail(ErrorKind::device, "NCCL cannot be used: it has no {}", name);
    };
    Nccl found = {};
    find(found.init_all, "ncclCommInitAll");
    find(found.destroy, "ncclCommDestroy");
    find(found.abort, "ncclCommAbort");
    find(found.all_reduce, "ncclAllReduce");
    find(found.error_string, "ncclGetErrorString");
    return found;
  }();
  return functions;
}

void nccl_check(ncclResult_t status, const std::string& who, const char* call) {
  if (status == ncclSuccess) return;
  fail(ErrorKind::device, "{}: {} failed: {}; NCCL_DEBUG=INFO shows more", who, call,
       nccl().error_string(status));
}

class NcclSums final : public PeerSums {
 public:
  explicit NcclSums(std::vector<const CudaContext*> contexts) {
    std::vector<int> gpus;
    for (const CudaContext* context : contexts) gpus.push_back(context->device);
    std::vector<ncclComm_t> communicators(gpus.size());
    int present = 0;
    cuda_check(cudaGetDevice(&present), "cudaGetDevice");
    nccl_check(nccl().init_all(communicators.data(), static_cast<int>(gpus.size()), gpus.data()),
               contexts.front()->name, "ncclCommInitAll");
    for (std::size_t i = 0; i < contexts.size(); ++i) {
      Rank rank;
      rank.context = contexts[i];
      rank.communicator = communicators[i];
      cuda_check(cudaSetDevice(contexts[i]->device), "cudaSetDevice");
      cuda_check(cudaStreamCreateWithFlags(&rank.stream, cudaStreamNonBlocking),
                 "cudaStreamCreate");
      cuda_check(cudaEventCreateWithFlags(&rank.ready, cudaEventDisableTiming), "cudaEventCreate");
      cuda_check(cudaEventCreateWithFlags(&rank.done, cudaEventDisableTiming), "cudaEventCreate");
      ranks_.push_back(rank);
    }
    cuda_check(cudaSetDevice(present), "cudaSetDevice");
  }
  NcclSums(const NcclSums&) = delete;
  NcclSums& operator=(const NcclSums&) = delete;
  ~NcclSums() override {
    const bool aborted = ended_.exchange(true);
    for (const Rank& rank : ranks_) {
      if (!aborted) nccl().destroy(rank.communicator);
      cudaEventDestroy(rank.ready);
      cudaEventDestroy(rank.done);
      cudaStreamDestroy(rank.stream);
    }
  }

  void begin(int rank, DevPtr data, std::int64_t count) override {
    const Rank& mine = ranks_[static_cast<std::size_t>(rank)];
    require_alive(mine);
    cuda_check(cudaEventRecord(mine.ready, mine.context->stream), "cudaEventRecord");
    cuda_check(cudaStreamWaitEvent(mine.stream, mine.ready, 0), "cudaStreamWaitEvent");
    float* memory = device<float>(data);
    nccl_check(nccl().all_reduce(memory, memory, static_cast<std::size_t>(count), ncclFloat32,
                                 ncclSum, mine.communicator, mine.stream),
               mine.context->name, "ncclAllReduce");
  }

  void finish(int rank) override {
    const Rank& mine = ranks_[static_cast<std::size_t>(rank)];
    require_alive(mine);
    cuda_check(cudaEventRecord(mine.done, mine.stream), "cudaEventRecord");
    cuda_check(cudaStreamWaitEvent(mine.context->stream, mine.done, 0), "cudaStreamWaitEvent");
  }

  void abort() noexcept override {
    // A communicator that is aborted is gone: whoever comes first ends all of them.
    if (ended_.exchange(true)) return;
    for (const Rank& rank : ranks_) nccl().abort(rank.communicator);
  }

 private:
  struct Rank {
    const CudaContext* context = nullptr;
    ncclComm_t communicator = nullptr;
    cudaStream_t stream = nullptr;
    cudaEvent_t ready = nullptr, done = nullptr;
  };

  void require_alive(const Rank& rank) const {
    if (!ended_) return;
    fail(ErrorKind::peer, "{}: the sum over GPUs was given up because another rank failed",
         rank.context->name);
  }

  std::vector<Rank> ranks_;
  std::atomic<bool> ended_{false};
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
  return std::make_unique<NcclSums>(std::move(contexts));
}

}  // namespace dpt
