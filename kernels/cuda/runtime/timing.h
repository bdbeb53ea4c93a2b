// Choosing between ways to do the same work by timing them on a GPU.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cuda/runtime/context.h"

namespace dpt {

/// The GPU, its driver and the CUDA runtime: what, with the version of the library that is timed,
/// makes a timed choice valid. The first part of the plan cache's keys.
std::string machine_key(const CudaContext& context);

/// Scratch memory and events for timing; freed by its end.
class Timing {
 public:
  explicit Timing(const CudaContext& context);
  Timing(const Timing&) = delete;
  Timing& operator=(const Timing&) = delete;
  ~Timing();

  /// Memory on the GPU with `count` random numbers in [-1, 1), the same ones again and again:
  /// power and therefore clocks depend on the bits, and zeros would be too favourable. Null if
  /// there is not enough.
  void* make(std::int64_t count, DType type);

  /// Milliseconds of one run for each of `count` candidates, the best of several rounds; run(i)
  /// queues what candidate i has to do. Short runs are captured many at a time, and a replay is
  /// timed: a kernel of 3 us is over before the host has launched the next one. A candidate that
  /// cannot be captured is timed with host launches, and named by `uncaptured`. Infinity for one
  /// whose first run throws: its text goes to `failure`. (A failure that loses the GPU throws at
  /// the next one's, and so from here at the latest.)
  std::vector<float> times(std::size_t count, const std::function<void(std::size_t)>& run,
                           std::string& failure);
  /// Returns the number of runs of `milliseconds` each in one replay: 1 to 20.
  static int runs_at_once(float milliseconds);
  /// Returns why candidate i of the last `times` was not captured; empty if it was.
  const std::string& uncaptured(std::size_t i) const { return uncaptured_[i]; }

 private:
  struct DestroyEvent {
    void operator()(cudaEvent_t event) const { cudaEventDestroy(event); }
  };
  using Event = std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, DestroyEvent>;
  static Event make_event();

  struct DestroyGraph {
    void operator()(cudaGraphExec_t graph) const { cudaGraphExecDestroy(graph); }
  };
  using Graph = std::unique_ptr<std::remove_pointer_t<cudaGraphExec_t>, DestroyGraph>;

  /// `runs` runs of one candidate; null, and why, where that cannot be captured.
  Graph capture(int runs, const std::function<void()>& run, std::string& why_not);
  /// Milliseconds of what `work` queues.
  float time(const std::function<void()>& work);

  const CudaContext& context_;
  Event begin_, end_;
  std::vector<void*> memory_;
  std::vector<std::string> uncaptured_;
};

}  // namespace dpt
