// What training changes, on one device: the parameters, the optimizer's state and the average of
// the weights, as flat buffers (Plan::param_floats), and the update of a step.
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

/// What an update measures before it writes.
struct UpdateNorms {
  bool whole = false;   ///< the gradient's, to StepScalars; for clipping too
  bool layers = false;  ///< of each parameter and its gradient, to `layer_norms`
};

/// Used by the thread of its backend.
class ReplicaWeights {
 public:
  /// `logs`: this replica's results are those that are logged.
  ReplicaWeights(Backend& backend, const Job& job, ReplicaMemory& memory, bool logs);

  /// Sets their average too.
  void set_params(std::span<const float> params);
  std::vector<float> params();
  void set_optimizer_state(const NamedBuffers& state);
  NamedBuffers optimizer_state();
  /// Those that a training step reads, and those that are evaluated: the average, if there is one.
  PassParams for_evaluation();
  PassParams on_device() const { return {params_.ptr(), params16_.ptr()}; }

  /// Queues the update. `gradients` is the sum over the whole batch, clobbered, and `metrics` stand
  /// after it.
  void update(DevPtr gradients, DevPtr metrics, const StagedBatch& staged, UpdateNorms norms);
  /// With log.layers, where the results are logged: the norms of Plan::updated, then those of their
  /// gradients. Null otherwise.
  const DeviceMemory* layer_norms() const { return norms_ ? &norms_memory_ : nullptr; }
  /// As Replica::average_weights.
  void average_weights(std::int64_t averaged);
  /// After an update that was refused or broken nothing is written until this.
  void allow_updates() { backend_.zero(guard_.ptr(), guard_.bytes()); }

 private:
  DevPtr average() const { return state_.back().ptr(); }
  /// Returns the first float of state `i`: an average covers all parameters.
  std::int64_t begin_of_state(std::size_t i) const {
    return i < job_.optimizer.states.size() ? gradient_begin_ : 0;
  }
  void set_up_average(ReplicaMemory& memory);
  void set_up_layer_norms(ReplicaMemory& memory);
  void update_average(DevPtr step);

  Backend& backend_;
  const Job& job_;
  std::int64_t gradient_begin_;  ///< first_gradient_of() the job
  DeviceMemory params_, params16_;
  std::vector<DeviceMemory> state_;  ///< as Job::states
  DeviceMemory guard_;               ///< UpdateGuard
  std::unique_ptr<OptimizerOp> optimizer_;
  std::unique_ptr<RangeNormsOp> norms_;  ///< or null
  DeviceMemory norms_memory_;
  // Of the average, or null: what its pass takes for a step's scalars and metrics.
  std::unique_ptr<OptimizerOp> averaging_;
  DeviceMemory average16_, average_scalars_, average_metrics_, average_step_;
};

}  // namespace dpt
