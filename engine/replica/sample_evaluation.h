// Evaluation over all ranks: the loss, the prediction and the sums of the metrics for each sample.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/collectives/communicator.h"
#include "engine/data/bad_samples.h"
#include "engine/data/loader.h"
#include "engine/job/job.h"
#include "engine/job/step.h"
#include "engine/replica/input_staging.h"
#include "engine/replica/pass_memory.h"
#include "engine/replica/repeated_calls.h"
#include "engine/replica/replica_memory.h"

namespace dpt {

/// Per-sample results of an evaluation, in the order of its `indices`.
struct SampleResults {
  std::vector<float> loss;
  std::vector<std::int32_t> prediction, label;
  std::vector<bool> left_out;     ///< true for left-out samples; their other values are invalid
  std::vector<float> sums;        ///< sums of JobModel::metrics for each sample
  std::vector<float> outputs;     ///< outputs of each sample, if JobModel::gathers_outputs
  std::vector<float> confidence;  ///< output of each prediction, if JobModel::keeps_confidence
  /// True if this rank replayed every micro-batch as one captured graph. This requires an earlier
  /// evaluation, because the first two micro-batches of each size are never replayed.
  bool replayed = false;
  /// True if a rank was asked to stop before the end. No rank has results then.
  bool interrupted = false;
};

/// Used by the thread of its rank only; all ranks make the same calls.
class SampleEvaluation {
 public:
  SampleEvaluation(Backend& backend, Communicator& communicator, const Job& job,
                   ReplicaMemory& memory, PassMemory& passes, InputStaging& staging,
                   RepeatedCalls& repeated)
      : backend_(backend),
        communicator_(communicator),
        job_(job),
        memory_(memory),
        passes_(passes),
        staging_(staging),
        repeated_(repeated) {}

  /// Evaluates samples of `source` by index, in micro-batches that do not depend on the number of
  /// ranks. If `wants_stop` returns true on any rank, all ranks give up together. `left_out` is the
  /// set to which `source` adds the samples that it substitutes; null if there are none. REQUIRES:
  /// no step is pending.
  SampleResults run(const PassParams& params, const DataSource& source,
                    std::span<const std::int64_t> indices, Loader& loader,
                    const LeftOutSamples* left_out, const StopQuestion& wants_stop,
                    const EvaluationProgress& progress);

 private:
  static constexpr std::int32_t kLeftOut = -1;
  struct SampleResult {
    float loss;
    std::int32_t prediction, label;
    float confidence;
  };
  /// This rank's part of the results.
  struct OwnPart {
    std::vector<SampleResult> samples;
    std::vector<float> sums, outputs;
    bool replayed = false, leaves = false;
  };
  /// Computes the folded parameters of the evaluation plan from `params`.
  void fold(const PassParams& params);
  OwnPart run_own(const PassParams& params, const DataSource& source,
                  const std::vector<Range>& micro_batches, Loader& loader,
                  const StopQuestion& wants_stop, const EvaluationProgress& progress);
  bool any_rank_leaves(bool leaves);
  /// Sets the label kLeftOut for samples of these micro-batches that were left out.
  static void mark_left_out(const LeftOutSamples& left_out, std::span<const std::int64_t> indices,
                            const std::vector<Range>& micro_batches,
                            std::vector<SampleResult>& samples);
  /// These two return the number of outputs kept for a sample, and the number read from the device.
  std::size_t outputs_of_sample() const;
  std::size_t outputs_read() const;
  /// Returns the values of all ranks, `of_rank` values from each.
  std::vector<float> gather(std::vector<float> own, std::size_t of_rank);

  Backend& backend_;
  Communicator& communicator_;
  const Job& job_;
  ReplicaMemory& memory_;
  PassMemory& passes_;
  InputStaging& staging_;
  RepeatedCalls& repeated_;
  DeviceMemory loss_, prediction_, sums_, metrics_, outputs_;  ///< results of a micro-batch
  DeviceMemory folded_, folded16_;                             ///< null if nothing is folded
};

}  // namespace dpt
