// A Job: all that follows from a config before any device is touched. Ranks share it and never
// change it.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/config/train_spec.h"
#include "engine/data/bad_samples.h"
#include "engine/data/input_draws.h"
#include "engine/data/loader.h"
#include "engine/data/split.h"
#include "engine/graph/evaluation_plan.h"
#include "engine/graph/plan.h"
#include "engine/job/device_weights.h"
#include "engine/losses/loss.h"
#include "engine/metrics/metric.h"
#include "engine/optimizers/optimizer.h"
#include "engine/optimizers/param_groups.h"
#include "engine/processes/process_group.h"
#include "engine/schedules/schedule.h"
#include "kernels/devices.h"

namespace dpt {

struct Job {
  TrainSpec spec;
  Plan plan;
  EvaluationPlan evaluation;  ///< of `plan`
  Splits splits;              ///< training as steps see it, validation and test as evaluations do
  Split evaluated_train;      ///< the training samples as an evaluation sees them
  /// The source of these with others in the place of samples that cannot be read, as training has
  /// them; null where such a sample ends the run.
  std::shared_ptr<const DataSource> evaluated_substitutes;
  Loss loss;
  std::optional<Loss> mixed_loss;  ///< of training batches, where they are mixed
  MetricSet metrics;
  OptimizerSpec optimizer;
  UpdatePlan update;
  /// The flat buffers that training keeps beside the parameters: the optimizer's, then the average
  /// of the weights.
  std::vector<OptimizerState> states;
  std::string average;  ///< its name, kEma or kSwa; empty = none is kept
  LrSchedule schedule;
  ScheduleSegments schedule_segments;  ///< of `schedule`
  InputDesc train_input, eval_input;   ///< of the first kernel, for each list; without mixing
  InputDraws draws;                    ///< for train_input, and of how batches are mixed
  std::vector<DeviceName> devices;     ///< one rank each, of all processes
  ProcessGroup* processes = nullptr;   ///< null where this process is the only one
  Range own_ranks;                     ///< those of this process
  DeviceWeights device_weights;        ///< of each rank, at the start
  BackendOptions backend_options;
  std::int64_t steps_per_epoch = 0, total_steps = 0;
  std::vector<std::int64_t>
      max_micro_batches;             ///< by rank: most samples that a replica runs at once
  std::int64_t max_micro_batch = 0;  ///< the least of them
  std::string resolved_config;       ///< YAML, as the run folder and checkpoints keep it

  // Fast mode on several GPUs or in several processes: gradients of this size and more are summed
  // in buckets, overlapped with backward.
  std::int64_t overlap_from_bytes = 2 << 20;
  std::int64_t bucket_bytes = 25 << 20;
  /// Steps whose results may still be on their way when the next is queued, equal on all ranks:
  /// none on the CPU, several where launching ahead keeps a GPU busy.
  std::int64_t steps_ahead = 0;

  std::shared_ptr<DecoderPool> decoders;    ///< of this process
  std::shared_ptr<BadSamples> bad_samples;  ///< left out by this process; null if they end it
  /// Evaluations keep the outputs of each sample, or that of its prediction alone.
  bool keeps_outputs = false, keeps_confidence = false;
  /// True if evaluations gather the outputs of all samples, for the caller or for metrics.
  bool gathers_outputs() const { return keeps_outputs || metrics.needs_outputs(); }

  /// Most samples of a micro-batch of an evaluation. Where an evaluation normalises with the
  /// statistics of its micro-batches, it follows from the config alone.
  std::int64_t eval_batch() const;
  // What training steps run in the place of `train_input` and `loss`.
  InputDesc mixed_input() const {
    InputDesc input = train_input;
    input.mix = draws.mixes();
    return input;
  }
  const Loss& train_loss() const { return mixed_loss ? *mixed_loss : loss; }
  std::vector<std::string> state_names() const;
  int ranks() const { return static_cast<int>(devices.size()); }
  std::vector<DeviceName> own_devices() const {
    return {devices.begin() + own_ranks.begin, devices.begin() + own_ranks.end};
  }
  /// The rank of this process that stands for it.
  int first_rank() const { return static_cast<int>(own_ranks.begin); }
  /// Whether this process writes the run folder, the log and results.
  bool writes() const { return own_ranks.begin == 0; }
  /// True if every update needs the norm of its gradient, not only those of logged steps.
  bool always_measures_norm() const;
  /// By rank, as a config names them: "cpu", "cpu:4", "cuda:0".
  std::vector<std::string> device_names() const;
  /// Samples of step `index` of an epoch, as positions in the epoch's order.
  Range batch_range(std::int64_t index) const;
};

/// `plan` is that of `spec`. Throws ErrorKind::usage for whatever in the spec does not fit
/// together: classes, more replicas than shards. The devices are those of `processes`, if there
/// are any.
Job make_job(TrainSpec spec, Plan plan, const DataSets& sets, std::string resolved_config,
             ProcessGroup* processes = nullptr);

/// Evaluations also measure accuracy_top5 where samples have labels and the model has more than 5
/// outputs. Nothing to do where the config says so, or where its metrics leave no room.
void measure_top5(Job& job);

/// The parameters of a plan, for plan_update.
std::vector<ParamPlace> param_places(const Plan& plan);

/// What the data set must look like for this model (the plan decides the label range).
DataRequirements data_requirements(const TrainSpec& spec, const Plan& plan);

/// Refuses data.on_bad_sample: skip for samples with targets of floats, which it cannot replace.
/// Throws ErrorKind::usage.
void check_can_skip(const DataSpec& data, const DataSource& train);

/// Refuses to monitor validation samples (early stopping, plateau) that the data set turns out not
/// to have. Throws ErrorKind::usage.
void check_monitored(const TrainSpec& spec, std::int64_t val_samples);

/// Where timed choices of CUDA kernels are kept: $XDG_CACHE_HOME/dpt/cuda-plans.json, or the same
/// below ~/.cache; empty when neither is known.
std::string plan_cache_path();

/// How a job orders its training samples.
SamplingOptions sampling_of(const TrainSpec& spec);

/// How a job reads its data, but for order and batch size: decoder threads and batches ahead.
Loader::Options loader_options(const Job& job);

/// Decoder threads of a process for `data.workers: auto`: as many as the cores that its replicas
/// leave free, and at least one for each replica. A CPU replica computes on its threads, and a GPU
/// keeps one core busy launching its work.
int auto_workers(int cores, const std::vector<DeviceName>& devices);

/// `train.stall_timeout`.
std::chrono::milliseconds stall_timeout(const Job& job);

/// The most samples to run at once: on a CPU so that their activations stay in a core's cache where
/// at least 32 do, on a GPU so that they leave room for other things. A function of the plan alone
/// and of the kind of device, because exact mode's bits depend on it.
std::int64_t micro_batch_limit(const Plan& plan, const DeviceTraits& device);

}  // namespace dpt
