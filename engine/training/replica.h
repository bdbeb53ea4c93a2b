// A Replica: the model on one device, with its memory. It runs one rank's part of a step.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/collectives/communicator.h"
#include "engine/graph/executor.h"
#include "engine/training/input_staging.h"
#include "engine/training/job.h"
#include "engine/training/lockstep.h"
#include "engine/training/work_partition.h"

namespace dpt {

/// The numbers of one step, of the whole batch: equal on every rank.
struct StepResult {
  std::int64_t step = 0;  ///< counted from 1 over the whole run
  StepMetrics metrics;
  double lr = 0;
  std::optional<double> grad_norm;  ///< before clipping; when it was asked for
  UpdateOutcome outcome = UpdateOutcome::applied;
};

/// The inputs of a step.
struct StepPlan {
  std::int64_t step = 0;          ///< counted from 1
  std::int64_t skipped = 0;       ///< earlier steps that made no update (see divergence.h)
  std::int64_t epoch = 0;         ///< counted from 0: key of the augmentation
  std::int64_t global_batch = 0;  ///< samples over all ranks
  double lr = 0;
  bool vote_stop = false;
  bool want_grad_norm = false;
  bool measure = false;  ///< time this rank's own work; waits for the device before and after it
};

/// Per-sample results of an evaluation, in the order asked for.
struct SampleResults {
  std::vector<float> loss;
  std::vector<std::int32_t> prediction, label;
  /// This rank ran each of its micro-batches as one launch. A device that captures replays from the
  /// third micro-batch of a size on.
  bool replayed = false;
  /// A rank was asked to stop before it was done: there are no results, on any rank.
  bool interrupted = false;
};

/// Asked between micro-batches, on every rank: whether to leave an evaluation.
using StopQuestion = std::function<bool()>;

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
  Range rank_samples(std::int64_t global_batch) { return partition_for(global_batch).samples; }

  /// How batches are partitioned from now on. REQUIRES: no result pending, because its work may
  /// still read what earlier partitions have on the device.
  void set_device_weights(const DeviceWeights& device_weights);

  /// Queues one step: this rank's samples, the sum over all ranks, the update. The result comes
  /// from take_result, now or steps later.
  void train_step(const StepPlan& plan, const HostBatch& batch);
  /// The result of the oldest step not yet taken; waits for it if it must.
  StepResult take_result();
  std::int64_t results_pending() const { return queued_ - taken_; }
  /// After a step whose update was refused or broken: forgets the results of the steps queued after
  /// it, none of which changed anything, and lets the next ones write again.
  void drop_results();
  /// Most results that may be pending when a step is queued.
  static constexpr std::int64_t kMostPending = InputStaging::kSlots - 1;

  /// Of the last step with StepPlan::measure: from its upload up to the sum over the ranks. Sums
  /// over ranks, which wait for others, are left out, those of statistics too.
  double own_seconds() const { return own_seconds_; }

  /// Samples of `source` by index, in micro-batches that do not depend on the number of ranks. When
  /// `wants_stop` says so on any rank, all give up together.
  SampleResults evaluate(const DataSource& source, std::span<const std::int64_t> indices,
                         Loader& loader, const StopQuestion& wants_stop = {});

  /// Device memory held, in bytes.
  std::size_t memory_bytes() const {
    return memory_bytes_ + staging_.memory_bytes() + lockstep_.memory_bytes();
  }
  /// How steps run: "graph" where one launch runs a whole step, "graphs" where the sum over ranks
  /// stands between two, "calls" where the device captures nothing. Known after the second step.
  std::string launches() const;
  /// How many shards of exact mode are worked on at the same time, at most. Known after a step.
  int branches() const;
  /// Where the samples are, as InputStaging::placement.
  std::string data_placement() const { return staging_.placement(); }
  /// How gradients are added over ranks: "tree", or "overlapped with backward, in N buckets"; why a
  /// large gradient of fast mode is not.
  const std::string& sums() const { return sums_; }
  std::vector<std::string> implementations() const;

 private:
  /// What comes back from a step, in host memory that the device writes to.
  struct Returned {
    StepMetrics metrics;
    StepScalars scalars;  ///< with grad_norm, when it was asked for
  };
  struct Ring {
    StepPlan plan;
    HostMemory returned{nullptr, nullptr};
    std::uint64_t mark = 0;
  };
  /// A part of the step that is the same sequence of calls each time: run call by call the first
  /// time, captured the second time, replayed from then on.
  struct Repeated {
    enum class State : std::uint8_t { fresh, seen, recorded, calls } state = State::fresh;
    std::unique_ptr<CapturedGraph> graph;
  };
  enum class Part : std::uint8_t { whole, gradients, update, evaluation };
  struct RepeatedKey {
    Part part;
    std::int64_t samples;   ///< of the whole batch in training, of the micro-batch in an evaluation
    std::uintptr_t pixels;  ///< where the samples are read: a data set, or one of two buffers
    bool norm;
    auto operator<=>(const RepeatedKey&) const = default;
  };

  DeviceMemory allocate(std::size_t bytes, const std::string& what);
  /// Grows `memory` to `bytes` if it is smaller; its contents are lost then.
  void ensure(DeviceMemory& memory, std::size_t bytes, const std::string& what);
  Executor& executor(std::int64_t batch, bool training);
  const WorkPartition& partition_for(std::int64_t global_batch);
  void need_gradient_buffers(int count);
  /// How many branches of the queue work on the shards of a partition, which has a buffer for each,
  /// at the same time: as many as there is memory for.
  int branches_for(const WorkPartition& partition);
  /// How many actions from `first` on go through a pass together.
  std::size_t together_from(const WorkPartition& partition, std::size_t first) const;
  /// Memory that the pieces of a partition keep, where the most go through a pass together.
  std::size_t kept_bytes(const WorkPartition& partition);
  void begin_buffer(const WorkPartition& partition, const WorkAction& action,
                    const StagedBatch& staged);
  /// Throws when the device has no room for the activations of `executor`.
  void require_room(const Executor& executor, bool training);
  /// Captured graphs hold addresses: they end when memory moves.
  void forget_graphs();
  template <class Work>
  bool repeat(const RepeatedKey& key, const Work& work);
  StagedBatch stage(int slot, const StepScalars& scalars, const StepMetrics& metrics,
                    const HostBatch& batch, const DataSource& source,
                    std::span<const UpdateStep> update = {});
  void compute_gradients(const WorkPartition& partition, const StagedBatch& staged);
  void train(const WorkPartition& partition, const std::function<void(int)>& after_node);
  /// Room for what the pieces of so many branches keep.
  void need_kept(int branches, std::size_t bytes);
  void set_up_sums();
  void sum_bucket(const GradientBucket& bucket);
  void sum_gradients(const WorkPartition& partition);
  void update_params(const StagedBatch& staged, bool norm);
  std::size_t metrics_bytes() const {
    return static_cast<std::size_t>(job_.plan.grad_floats() - job_.plan.param_floats) *
           sizeof(float);
  }
  DevPtr metrics_of(DevPtr grads) const {
    return grads + static_cast<std::size_t>(job_.plan.param_floats) * sizeof(float);
  }

  Backend& backend_;
  Communicator& communicator_;
  const Job& job_;
  std::size_t memory_bytes_ = 0;
  DeviceMemory params_, params16_, arena_;
  DeviceMemory guard_;                       ///< UpdateGuard
  std::vector<DeviceMemory> branch_arenas_;  ///< of branches 1, 2, ...
  std::vector<DeviceMemory> kept_;           ///< of every branch: what pieces keep between phases
  Lockstep lockstep_;
  std::vector<Piece> pieces_;  ///< of the present pass
  InputStaging staging_;
  std::int64_t staging_moves_ = 0;
  std::vector<DeviceMemory> gradients_;
  std::vector<DeviceMemory> state_;
  std::unique_ptr<OptimizerOp> optimizer_;
  std::vector<UpdateStep> update_steps_;  ///< of the present step, one for each group
  DeviceMemory eval_loss_, eval_prediction_, eval_metrics_;
  std::map<std::pair<std::int64_t, bool>, std::unique_ptr<Executor>> executors_;
  DeviceWeights device_weights_;
  std::map<std::int64_t, WorkPartition> partitions_;
  double own_seconds_ = 0;
  std::vector<GradientBucket> buckets_;  ///< empty: sums come after backward, in the tree
  std::string sums_ = "tree";
  std::vector<PartialSum> parts_;  ///< of the present step; kept so that a step allocates nothing
  std::array<Ring, InputStaging::kSlots> ring_;
  std::map<RepeatedKey, Repeated> repeated_;
  std::int64_t queued_ = 0, taken_ = 0;
};

}  // namespace dpt
