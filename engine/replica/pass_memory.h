// Executors and memory of a replica's passes: one executor per micro-batch size, the memory for
// their activations, and the gradient buffers.
//
// A backend's queue may have branches, which process several shards at the same time. Each branch
// has its own activations. Evaluations and most steps use branch 0.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/graph/executor.h"
#include "engine/job/job.h"
#include "engine/replica/measurements.h"
#include "engine/replica/replica_memory.h"

namespace dpt {

/// The parameters that a pass reads: in fp32 and, for a bf16 plan, also in bf16.
struct PassParams {
  DevPtr fp32, bf16;
};

/// Used by the replica's thread only.
class PassMemory {
 public:
  PassMemory(Backend& backend, const Job& job, const Measurements& measurements,
             ReplicaMemory& memory);

  /// Returns the executor for this many samples. The first call creates it and allocates its
  /// activations in branch 0. Throws if the device lacks the memory.
  Executor& executor(std::int64_t batch, bool training);
  /// Returns how many samples of a training pass fit, up to `batch`, while leaving `reserved` bytes
  /// free.
  std::int64_t fitting(std::int64_t batch, std::size_t reserved);
  /// Returns the implementations of the training passes; empty before the first pass.
  std::vector<std::string> implementations() const;

  // Each of the following allocates at least the given amount.
  void need_arenas(int branches, std::size_t bytes);  ///< grows the arenas of branches 1, 2, ...
  void need_kept(int branches, std::size_t bytes);    ///< see ExecutorBuffers::kept
  void need_gradients(int count);

  DevPtr arena(int branch) const { return arenas_[branch].ptr(); }
  /// Returns the kept memory of a branch; null if no pass keeps anything.
  DevPtr kept(int branch) const { return kept_.empty() ? DevPtr{} : kept_[branch].ptr(); }
  /// Returns the base address of gradient buffer `index`, to which parameter offsets are added. The
  /// buffer holds the gradients from gradient_begin() on, then the step's metrics.
  DevPtr gradients(int index) const { return flat_base(gradients_[index], gradient_begin_); }
  /// Returns the address of the buffer's first gradient, where its gradient_floats() floats begin.
  DevPtr first_gradient(int index) const { return gradients_[index].ptr(); }
  DevPtr metrics(int index) const {
    return gradients(index) +
           static_cast<std::size_t>(job_.model.plan.param_floats) * sizeof(float);
  }
  /// Returns the address of the floats after the metrics: Measurements::part_floats.
  DevPtr part_floats(int index) const {
    return gradients(index) +
           static_cast<std::size_t>(job_.model.plan.grad_floats()) * sizeof(float);
  }
  /// Returns the buffer as the gradient of a part of the batch.
  PartGradient part_gradient(std::int64_t part, int index) const {
    return {part, gradients(index), metrics(index), part_floats(index)};
  }
  /// Returns the number of floats in a gradient buffer. A sum over ranks adds all of them.
  std::int64_t gradient_floats() const {
    return job_.model.plan.grad_floats() - gradient_begin_ + part_floats_;
  }
  std::size_t gradient_bytes() const;
  std::size_t metrics_bytes() const;

 private:
  Executor& made(std::int64_t batch, bool training);
  std::int64_t fitting_of(const Executor& executor, std::size_t reserved = 0);
  [[noreturn]] void fail_for_room(const Executor& executor, bool training);

  Backend& backend_;
  const Job& job_;
  ReplicaMemory& memory_;
  std::int64_t part_floats_, gradient_begin_;
  std::map<std::pair<std::int64_t, bool>, std::unique_ptr<Executor>> executors_;
  // One for each branch.
  std::vector<DeviceMemory> arenas_, kept_;
  std::vector<DeviceMemory> gradients_;
};

}  // namespace dpt
