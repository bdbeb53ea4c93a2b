// The weights on one device: parameters, the optimizer's state and the average of the weights, as
// flat buffers (Plan::param_floats), and the update of a step.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/job/job.h"
#include "engine/replica/input_staging.h"
#include "engine/replica/pass_memory.h"
#include "engine/replica/replica_memory.h"

namespace dpt {

/// Flat buffers by name.
using NamedBuffers = std::vector<std::pair<std::string, std::vector<float>>>;

/// Used by the replica's thread only.
class ReplicaWeights {
 public:
  ReplicaWeights(Backend& backend, const Job& job, ReplicaMemory& memory);

  /// Sets the parameters and their average.
  void set_params(std::span<const float> params);
  std::vector<float> params();
  /// Sets the optimizer's state. If `state` is empty, sets the initial one, but leaves the average
  /// to set_params.
  void set_optimizer_state(const NamedBuffers& state);
  NamedBuffers optimizer_state();
  /// Returns the weights to evaluate: the average if there is one, otherwise the weights that
  /// training steps read (on_device()).
  PassParams for_evaluation();
  PassParams on_device() const { return {params_.ptr(), params16_.ptr()}; }

  /// Queues the operations that turn `gradients`, the sums over the whole batch, into the gradient
  /// to clip. `metrics` must be summed over the batch too. If `norm`, also writes the norm to
  /// StepScalars.
  void complete(DevPtr gradients, DevPtr metrics, const StagedBatch& staged, bool norm);
  /// Queues the update by a complete gradient. Overwrites the gradient.
  void update(DevPtr gradients, DevPtr metrics, const StagedBatch& staged);
  /// See Replica::average_weights.
  void average_weights(std::int64_t averaged);
  /// Allows updates again after a refused or broken one, which blocks all later updates.
  void allow_updates() { backend_.zero(guard_.ptr(), guard_.bytes()); }

 private:
  DevPtr average() const { return state_.back().ptr(); }
  /// Returns the index of the first float of state `i`. It is 0 for the average, which covers all
  /// parameters.
  std::int64_t begin_of_state(std::size_t i) const {
    return i < job_.update.optimizer.states.size() ? gradient_begin_ : 0;
  }
  void set_up_average(ReplicaMemory& memory);
  void update_average(DevPtr step);

  Backend& backend_;
  const Job& job_;
  std::int64_t gradient_begin_;  ///< first_gradient_of(job)
  DeviceMemory params_, params16_;
  std::vector<DeviceMemory> state_;  ///< one per JobUpdate::states
  DeviceMemory guard_;               ///< UpdateGuard
  std::unique_ptr<OptimizerOp> optimizer_;
  // The operation of the average, and the scalars and metrics that it reads; null without an
  // average.
  std::unique_ptr<OptimizerOp> averaging_;
  DeviceMemory average16_, average_scalars_, average_metrics_, average_step_;
};

}  // namespace dpt
