// Replaces kernels/cuda/runtime/nccl.cpp in an emulated build. A sum runs when all ranks have begun
// all of their sums. Replicas of a process may share a GPU here, so that tests need only one GPU.
// Between processes, which may be threads of a test, the numbers go through a file.
#include "kernels/peer_sums.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <random>
#include <vector>

#include "kernels/cuda/flat.h"
#include "kernels/cuda/runtime/check.h"
#include "kernels/cuda/runtime/context.h"
#include "tests/emulation/peer_file.h"

namespace dpt {
namespace {

/// Returns the requested failure, "absent" or "fails_to_connect", or else the requested version.
std::string wanted_failure() {
  const char* wanted = std::getenv("DPT_EMULATED_NCCL");
  return wanted ? wanted : "";
}

class EmulatedSums final : public PeerSums {
 public:
  explicit EmulatedSums(std::vector<const CudaContext*> contexts) : ranks_(contexts.size()) {
    for (std::size_t i = 0; i < contexts.size(); ++i) ranks_[i].context = contexts[i];
  }
  ~EmulatedSums() override {
    for (const Rank& rank : ranks_) {
      for (const cudaEvent_t event : rank.events) cudaEventDestroy(event);
      cudaFree(rank.copy);
    }
  }

  void connect(const PeerWorld& world) override {
    const int here = static_cast<int>(ranks_.size());
    if (world.total == here) return;
    first_ = world.first;
    file_.emplace(world.id, world.total, first_ == 0);
    if (wanted_failure() == "fails_to_connect") {
      file_->give_up();
      fail(ErrorKind::device, "emulated sums: no network interface");
    }
    const PeerFile::Met met = file_->meet(first_, here, aborted_);
    // Without a name, the file disappears even if a process is killed.
    if (first_ == 0 && met == PeerFile::Met::all) file_->remove_name();
    if (met == PeerFile::Met::given_up) {
      fail(ErrorKind::device, "emulated sums: another rank did not connect");
    }
    if (met == PeerFile::Met::aborted) {
      fail(ErrorKind::peer, "emulated sums: aborted while they were connected");
    }
  }

  void begin(int rank, DevPtr data, std::int64_t count) override {
    if (file_) require_whole();
    Rank& mine = ranks_[rank];
    mine.sums.push_back({data, count, mark(mine)});
  }

  void finish(int rank) override {
    Rank& mine = ranks_[rank];
    if (file_) return finish_over_processes(rank);
    meet();
    if (rank == 0) {
      for (std::size_t i = 0; i < mine.sums.size(); ++i) add_up(mine, i);
    }
    mine.done = mark(mine);
    meet();
    cuda_check(cudaStreamWaitEvent(mine.context->stream, ranks_[0].done, 0), "cudaStreamWaitEvent");
    meet();
    mine.sums.clear();
  }

  void stop(int) noexcept override {}

  void abort() noexcept override {
    const std::lock_guard lock(mutex_);
    aborted_ = true;
    changed_.notify_all();
  }

  void require_whole() const override {
    if (aborted_) fail(ErrorKind::peer, "emulated sums: aborted because another rank failed");
  }

 private:
  struct Sum {
    DevPtr data;
    std::int64_t count;
    cudaEvent_t ready;
  };
  struct Rank {
    const CudaContext* context = nullptr;
    std::vector<Sum> sums;
    std::vector<cudaEvent_t> events;
    cudaEvent_t done = nullptr;
    float* copy = nullptr;  ///< copy of this rank's part on the GPU that adds; avoids peer access
    std::int64_t copy_count = 0;
  };

  /// Returns room for `count` floats on the current GPU.
  static float* room(Rank& rank, std::int64_t count) {
    if (rank.copy_count < count) {
      cuda_check(cudaFree(rank.copy), "cudaFree");
      rank.copy = nullptr;
      cuda_check(cudaMalloc(reinterpret_cast<void**>(&rank.copy), bytes_of(count)), "cudaMalloc");
      rank.copy_count = count;
    }
    return rank.copy;
  }
  static std::size_t bytes_of(std::int64_t count) {
    return static_cast<std::size_t>(count) * sizeof(float);
  }

  static cudaEvent_t mark(Rank& rank) {
    cudaEvent_t event = nullptr;
    cuda_check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreate");
    rank.events.push_back(event);
    cuda_check(cudaEventRecord(event, rank.context->stream), "cudaEventRecord");
    return event;
  }

  /// Finishes the sums between processes. The host cannot tell an aborted sum from any other. Work
  /// that is queued after an aborted sum finds data that are not the sum.
  void finish_over_processes(int rank) {
    Rank& mine = ranks_[rank];
    require_whole();
    cuda_check(cudaStreamSynchronize(mine.context->stream), "cudaStreamSynchronize");
    bool is_whole = true;
    for (std::size_t i = 0; i < mine.sums.size() && is_whole; ++i) {
      const std::int64_t count = mine.sums[i].count;
      auto* data = device<float>(mine.sums[i].data);
      std::vector<float> host(static_cast<std::size_t>(count));
      copy(mine, host.data(), data, count);
      cuda_check(cudaStreamSynchronize(mine.context->stream), "cudaStreamSynchronize");
      is_whole = file_->sum(first_ + rank, host, aborted_);
      copy(mine, data, host.data(), count);
      cuda_check(cudaStreamSynchronize(mine.context->stream), "cudaStreamSynchronize");
    }
    mine.sums.clear();
  }

  void add_up(const Rank& adder, std::size_t index) {
    const std::int64_t count = adder.sums[index].count;
    std::vector<DevPtr> parts;
    std::vector<TreeAdd> additions;
    for (Rank& rank : ranks_) {
      const Sum& sum = rank.sums.at(index);
      if (sum.count != count) {
        fail(ErrorKind::peer, "emulated sums: ranks disagree on a count");
      }
      cuda_check(cudaStreamWaitEvent(adder.context->stream, sum.ready, 0), "cudaStreamWaitEvent");
      if (!parts.empty()) additions.push_back({0, static_cast<int>(parts.size())});
      float* part = room(rank, count);
      copy(adder, part, device<float>(sum.data), count);
      parts.push_back({reinterpret_cast<std::uintptr_t>(part)});
    }
    cuda_tree_sum(*adder.context, parts, additions, {&parts[0], 1}, count);
    for (const Rank& rank : ranks_) {
      copy(adder, device<float>(rank.sums[index].data), device<float>(parts[0]), count);
    }
  }

  static void copy(const Rank& adder, float* to, const float* from, std::int64_t count) {
    cuda_check(cudaMemcpyAsync(to, from, bytes_of(count), cudaMemcpyDefault, adder.context->stream),
               "cudaMemcpyAsync");
  }

  void meet() {
    std::unique_lock lock(mutex_);
    const std::int64_t round = round_;
    if (++arrived_ == static_cast<int>(ranks_.size())) {
      arrived_ = 0;
      ++round_;
      changed_.notify_all();
    }
    changed_.wait(lock, [&] { return aborted_ || round_ != round; });
    if (aborted_) fail(ErrorKind::peer, "emulated sums: another rank failed");
  }

  std::vector<Rank> ranks_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int arrived_ = 0;
  std::int64_t round_ = 0;
  std::atomic<bool> aborted_{false};
  std::optional<PeerFile> file_;  ///< only if there are several processes
  int first_ = 0;                 ///< first rank of this process
};

}  // namespace

PeerReadiness peer_readiness(std::span<Backend* const> backends) noexcept {
  PeerReadiness readiness;
  try {
    readiness.library = "emulated NCCL " + wanted_failure();
    for (const Backend* backend : backends) {
      const CudaContext* context = cuda_context_of(*backend);
      if (!context) fail(ErrorKind::device, "not all devices are GPUs");
      // Replicas of a process may share a GPU.
      const auto earlier =
          std::count_if(readiness.gpus.begin(), readiness.gpus.end(),
                        [&](const PeerReadiness::Gpu& gpu) { return gpu.name == context->name; });
      const std::string id = fmt::format("emulated {} {}", context->name, earlier);
      readiness.gpus.push_back({context->name, id, id});
    }
    if (wanted_failure() == "absent") {
      fail(ErrorKind::device, "NCCL cannot be used: DPT_EMULATED_NCCL is absent");
    }
  } catch (const std::exception& error) {
    readiness.why_not = error.what();
  }
  return readiness;
}

std::string make_peer_id() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

std::unique_ptr<PeerSums> make_peer_sums(std::span<Backend* const> backends) {
  std::vector<const CudaContext*> contexts;
  for (const Backend* backend : backends) contexts.push_back(cuda_context_of(*backend));
  return std::make_unique<EmulatedSums>(std::move(contexts));
}

}  // namespace dpt
