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

  /// Sets the parameters, in buffer layout (Plan::param_floats). The average of the weights, if the
  /// job keeps one, also starts from these values.
  void set_params(std::span<const float> params) { weights_.set_params(params); }
  /// Sets the optimizer's state: JobUpdate::states by name.
  void set_optimizer_state(const NamedBuffers& state) { weights_.set_optimizer_state(state); }
  std::vector<float> params() { return weights_.params(); }
  NamedBuffers optimizer_state() { return weights_.optimizer_state(); }

  /// Returns this rank's samples of a batch, as positions in it. May be empty, for example if the
  /// batch has fewer samples than there are ranks.
  Range rank_samples(std::int64_t global_batch) {
    return gradients_.partition_for(global_batch).samples;
  }

  /// Queues one step: this rank's samples, the sum over all ranks, and the update. take_result
  /// returns its result, now or steps later. `ledger` records how the calling thread spends its
  /// time.
  void train_step(const StepPlan& plan, const HostBatch& batch, Ledger* ledger = nullptr);
  /// Returns the result of the oldest step whose result was not yet taken. Waits for it if
  /// necessary.
  StepResult take_result() { return results_.take(); }
  /// Returns the measurements. On the replica whose results are logged, they pass their values to
  /// the log.
  Measurements& measurements() { return measurements_; }
  std::int64_t results_pending() const { return results_.pending(); }
  /// Discards the results of steps queued after a step whose update was refused or broken, and
  /// allows later steps to update again. The discarded steps changed nothing.
  void drop_results();
  /// Maximum number of results that may be pending when a step is queued.
  static constexpr std::int64_t kMaxPending = ResultsRing::kMaxPending;

  /// Evaluates samples of `source` by index, in micro-batches that do not depend on the number of
  /// ranks. Uses the average of the weights if the job keeps one. If `wants_stop` returns true on
  /// any rank, all ranks give up together. `left_out` is the set to which `source` adds the samples
  /// that it substitutes; null if there are none.
  SampleResults evaluate(const DataSource& source, std::span<const std::int64_t> indices,
                         Loader& loader, const StopQuestion& wants_stop = {},
                         const LeftOutSamples* left_out = nullptr,
                         const EvaluationProgress& progress = {});

  /// Adds the weights to their equal average (train.swa), which contains `averaged` epochs so far.
  /// If that is 0, the weights become the average. REQUIRES: no result pending.
  void average_weights(std::int64_t averaged) { weights_.average_weights(averaged); }

  /// Returns the device memory held, in bytes.
  std::size_t memory_bytes() const {
    return memory_.bytes() + staging_.memory_bytes() + gradients_.memory_bytes();
  }
  /// Returns RepeatedCalls::launches of the steps. Known after the second step.
  std::string launches() const { return repeated_.launches(); }
  /// Returns the maximum number of shards of exact mode processed at the same time. Known after a
  /// step.
  int branches() const { return gradients_.branches(); }
  /// Returns the maximum number of samples that a step runs at once. Known after a step.
  /// is_short_of_memory() returns true if more memory would raise it.
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
  /// Updates of the current step: one per parameter group, and the average.
  std::vector<UpdateStep> update_steps_;
};

}  // namespace dpt
