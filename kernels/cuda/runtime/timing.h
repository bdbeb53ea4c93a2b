// Chooses between implementations of the same work by timing them on a GPU.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cuda/runtime/context.h"
#include "kernels/cuda/runtime/wait.h"

namespace dpt {

/// Returns the names of the GPU, its driver and the CUDA runtime: the first part of the plan
/// cache's keys. Together with the version of the timed library, they determine whether a timed
/// choice is valid.
std::string machine_key(const CudaContext& context);

/// Scratch memory and events for timing, freed by the destructor.
class Timing {
 public:
  explicit Timing(const CudaContext& context);
  Timing(const Timing&) = delete;
  Timing& operator=(const Timing&) = delete;
  ~Timing();

  /// Returns memory on the GPU with `count` random numbers in [-1, 1), always the same ones. Power
  /// and therefore clock rates depend on the bits, so zeros would give times that are too good.
  /// Returns null if memory is insufficient.
  void* make(std::int64_t count, DType type);

  /// Times `count` candidates. Returns the milliseconds that one run of each takes in the best of
  /// several rounds. run(i) queues the work of candidate i. A kernel of 3 us ends before the host
  /// has launched the next one, so short runs are captured many at a time, and the replay is timed.
  /// A candidate that cannot be captured is timed with host launches, and `uncaptured` returns the
  /// reason. If the first run of a candidate throws, its time is infinity, and the error text is
  /// stored in `failure`. (A failure that loses the GPU throws in the next candidate's run, or at
  /// the latest at the end of this function.)
  std::vector<float> times(std::size_t count, const std::function<void(std::size_t)>& run,
                           std::string& failure);
  /// Returns the number of runs in one replay, 1 to 20, if a run takes `milliseconds`.
  static int runs_at_once(float milliseconds);
  /// Returns why candidate i of the last `times` was not captured; empty if it was.
  const std::string& uncaptured(std::size_t i) const { return uncaptured_[i]; }

 private:
  struct DestroyEvent {
    void operator()(cudaEvent_t event) const { release_unless_lost(cudaEventDestroy, event); }
  };
  using Event = std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, DestroyEvent>;
  static Event make_event();

  struct DestroyGraph {
    void operator()(cudaGraphExec_t graph) const {
      release_unless_lost(cudaGraphExecDestroy, graph);
    }
  };
  using Graph = std::unique_ptr<std::remove_pointer_t<cudaGraphExec_t>, DestroyGraph>;

  /// Captures `runs` runs of one candidate. If that is impossible, returns null and sets `why_not`.
  Graph capture(int runs, const std::function<void()>& run, std::string& why_not);
  /// Returns the milliseconds that the work queued by `work` takes.
  float time(const std::function<void()>& work);

  const CudaContext& context_;
  Event begin_, end_;
  std::vector<void*> memory_;
  std::vector<std::string> uncaptured_;
};

}  // namespace dpt
