// A Replica: the model on one device, with its memory. It runs one rank's part of a step.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/collectives/communicator.h"
#include "engine/graph/executor.h"
#include "engine/training/batch_cut.h"
#include "engine/training/job.h"

namespace dpt {

/// The numbers of one step, of the whole batch: equal on every rank.
struct StepResult {
  std::int64_t step = 0;  ///< counted from 1 over the whole run
  StepMetrics metrics;
  double lr = 0;
  std::optional<double> grad_norm;  ///< before clipping; when it was asked for
};

/// What a step is told.
struct StepPlan {
  std::int64_t step = 0;          ///< counted from 1
  std::int64_t epoch = 0;         ///< counted from 0: key of the augmentation
  std::int64_t global_batch = 0;  ///< samples over all ranks
  double lr = 0;
  bool vote_stop = false;
  bool want_grad_norm = false;
};

/// Per-sample results of an evaluation, in the order asked for.
struct SampleResults {
  std::vector<float> loss;
  std::vector<std::int32_t> prediction, label;
};

/// Used by the thread of its rank only.
class Replica {
 public:
  Replica(Backend& backend, Communicator& communicator, const Job& job);

  /// Parameters, in buffer layout (Plan::param_floats), and optimizer state by name.
  void set_params(std::span<const float> params);
  void set_optimizer_state(const std::vector<std::pair<std::string, std::vector<float>>>& state);
  std::vector<float> params();
  std::vector<std::pair<std::string, std::vector<float>>> optimizer_state();

  /// This rank's samples of a batch, as positions in it; empty when there are fewer than ranks.
  Range rank_samples(std::int64_t global_batch) { return cut_for(global_batch).samples; }

  /// Queues one step: this rank's samples, the sum over all ranks, the update. The result comes
  /// from take_result, one step or more later.
  void train_step(const StepPlan& plan, const HostBatch& batch);
  /// The result of the oldest step not yet taken; waits for it if it must.
  StepResult take_result();
  std::int64_t results_pending() const { return queued_ - taken_; }

  /// Samples of `source` by index, in pieces that do not depend on the number of ranks.
  SampleResults evaluate(const DataSource& source, std::span<const std::int64_t> indices,
                         Loader& loader);

  /// First parameter with a non-finite value, or empty.
  std::string first_non_finite();

  /// Device memory held, in bytes.
  std::size_t memory_bytes() const { return memory_bytes_; }
  std::vector<std::string> implementations() const;

 private:
  struct Ring {
    StepPlan plan;
    StepScalars scalars;       ///< uploaded from here
    StepMetrics metrics;       ///< downloaded to here
    StepScalars scalars_back;  ///< with grad_norm
    float vote = 0;            ///< uploaded into the metrics
    std::uint64_t mark = 0;
  };
  static constexpr std::int64_t kRing = 4;

  DeviceMemory allocate(std::size_t bytes, const std::string& what);
  /// Grows `memory` to `bytes` if it is smaller; its contents are lost then.
  void ensure(DeviceMemory& memory, std::size_t bytes, const std::string& what);
  Executor& executor(std::int64_t batch, bool training);
  const BatchCut& cut_for(std::int64_t global_batch);
  void need_gradient_buffers(int count);
  DeviceBatch place(const HostBatch& batch, const DataSource* source);
  DevPtr metrics_of(DevPtr grads) const {
    return grads + static_cast<std::size_t>(job_.plan.param_floats) * sizeof(float);
  }

  Backend& backend_;
  Communicator& communicator_;
  const Job& job_;
  std::size_t memory_bytes_ = 0;
  DeviceMemory params_, scalars_, arena_;
  std::vector<DeviceMemory> gradients_;
  std::vector<DeviceMemory> state_;
  // A batch's bytes on the device. The resident ones are made once per data source.
  DeviceMemory slots_, ids_, staged_pixels_, staged_labels_;
  struct ResidentCopy {
    const DataSource* source;
    DeviceMemory pixels, labels;
  };
  std::vector<ResidentCopy> resident_;
  DeviceMemory eval_loss_, eval_prediction_, eval_metrics_;
  std::map<std::pair<std::int64_t, bool>, std::unique_ptr<Executor>> executors_;
  std::map<std::int64_t, BatchCut> cuts_;
  std::vector<PartialSum> parts_;  ///< of the present step; kept so that a step allocates nothing
  std::array<Ring, kRing> ring_;
  std::int64_t queued_ = 0, taken_ = 0;
};

}  // namespace dpt
