// A Replica: the model on one device, with its memory. It runs one rank's part of a step.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/collectives/communicator.h"
#include "engine/data/loader.h"
#include "engine/job/job.h"
#include "engine/job/step.h"
#include "engine/replica/gradient_pass.h"
#include "engine/replica/gradient_sums.h"
#include "engine/replica/input_staging.h"
#include "engine/replica/measurements.h"
#include "engine/replica/pass_memory.h"
#include "engine/replica/repeated_calls.h"
#include "engine/replica/replica_memory.h"
#include "engine/replica/replica_weights.h"
#include "engine/replica/results_ring.h"
#include "engine/replica/sample_evaluation.h"
#include "engine/run/ledger.h"

namespace dpt {

/// Used by the thread of its rank only.
class Replica {
 public:
  Replica(Backend& backend, Communicator& communicator, const Job& job);

  /// Parameters, in buffer layout (Plan::param_floats), and JobUpdate::states by name. Parameters
  /// that are set are also what their average begins with.
  void set_params(std::span<const float> params) { weights_.set_params(params); }
  void set_optimizer_state(const NamedBuffers& state) { weights_.set_optimizer_state(state); }
  std::vector<float> params() { return weights_.params(); }
  NamedBuffers optimizer_state() { return weights_.optimizer_state(); }

  /// This rank's samples of a batch, as positions in it; empty when there are fewer than ranks.
  Range rank_samples(std::int64_t global_batch) {
    return gradients_.partition_for(global_batch).samples;
  }

  /// Sets the partition of batches from now on. REQUIRES: no result pending, because its work may
  /// still read data of earlier partitions on the device.
  void set_device_weights(const DeviceWeights& device_weights);

  /// Queues one step: this rank's samples, the sum over all ranks, the update. The result comes
  /// from take_result, now or steps later. `ledger` learns what the calling thread does meanwhile.
  void train_step(const StepPlan& plan, const HostBatch& batch, Ledger* ledger = nullptr);
  /// The result of the oldest step not yet taken; waits for it if it must.
  StepResult take_result() { return results_.take(); }
  /// Passes what steps have measured to the log, on the replica whose results are logged.
  Measurements& measurements() { return measurements_; }
  std::int64_t results_pending() const { return results_.pending(); }
  /// After a step whose update was refused or broken: forgets the results of the steps queued after
  /// it, none of which changed anything, and lets the next ones write again.
  void drop_results();
  /// Most results that may be pending when a step is queued.
  static constexpr std::int64_t kMostPending = ResultsRing::kMostPending;

  /// The loss and prediction of samples, with the average of the weights where the job keeps one:
  /// samples of `source` by index, in micro-batches that do not depend on the number of ranks. When
  /// `wants_stop` says so on any rank, all give up together. `left_out` gets the samples that
  /// `source` substitutes; null if it does not.
  SampleResults evaluate(const DataSource& source, std::span<const std::int64_t> indices,
                         Loader& loader, const StopQuestion& wants_stop = {},
                         const LeftOutSamples* left_out = nullptr,
                         const EvaluationProgress& progress = {});

  /// Adds the weights to their equal average (train.swa), which has `averaged` parts so far; with
  /// none, they become the average. REQUIRES: no result pending.
  void average_weights(std::int64_t averaged) { weights_.average_weights(averaged); }

  /// Device memory held, in bytes.
  std::size_t memory_bytes() const {
    return memory_.bytes() + staging_.memory_bytes() + gradients_.memory_bytes();
  }
  /// Returns RepeatedCalls::launches of the steps. Known after the second step.
  std::string launches() const { return repeated_.launches(); }
  /// Returns the maximum number of shards of exact mode worked on at the same time. Known after a
  /// step.
  int branches() const { return gradients_.branches(); }
  /// The most samples that a step runs at once; whether it would be more with more memory. Known
  /// after a step.
  std::int64_t micro_batch() const { return gradients_.micro_batch(); }
  bool is_short_of_memory() const { return gradients_.is_short_of_memory(); }
  /// Returns InputStaging::placement of the samples.
  std::string data_placement() const { return staging_.placement(); }
  /// Returns GradientSums::description.
  const std::string& sums() const { return sums_.description(); }
  std::vector<std::string> implementations() const { return passes_.implementations(); }

 private:
  void run_step(const StepPlan& plan, const StagedBatch& staged);
  /// Returns the memory for times of the step's phases; null if they are not timed.
  DevPtr times_of(const StepPlan& plan);
  void end_phase(DevPtr times, StepPhase phase) {
    if (times) backend_.end_phase(times, phase);
  }
  StagedBatch stage(const StepPlan& plan, const HostBatch& batch);
  template <class Work>
  void repeat(const RepeatedCalls::Key& key, const Work& work) {
    repeated_.run(key, memory_.moves() + staging_.moves(), work);
  }

  Backend& backend_;
  Communicator& communicator_;
  const Job& job_;
  ReplicaMemory memory_;
  DeviceMemory times_;  ///< PhaseTimes, once a step was timed
  ReplicaWeights weights_;
  Measurements measurements_;
  PassMemory passes_;
  GradientPass gradients_;
  GradientSums sums_;
  InputStaging staging_;
  ResultsRing results_;
  RepeatedCalls repeated_;
  SampleEvaluation evaluation_;
  /// Updates of the current step: one per group, and the average.
  std::vector<UpdateStep> update_steps_;
};

}  // namespace dpt
