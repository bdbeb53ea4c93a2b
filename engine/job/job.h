// A Job: everything that follows from a config before any device is touched, as five values. The
// ranks share it and never change it. A class or function takes the one value that it needs, or the
// whole Job if it needs most of them.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "engine/config/train_spec.h"
#include "engine/data/data_sets.h"
#include "engine/data/loader.h"
#include "engine/job/job_data.h"
#include "engine/job/job_model.h"
#include "engine/job/job_update.h"
#include "engine/job/placement.h"

namespace dpt {

struct Job {
  TrainSpec spec;
  JobModel model;
  JobData data;
  JobUpdate update;
  Placement placement;
  std::string resolved_config;  ///< YAML of `spec` as written to the run folder and checkpoints

  /// Returns the maximum number of samples in an evaluation's micro-batch. It depends on the config
  /// alone if an evaluation normalises with the statistics of its micro-batches.
  std::int64_t eval_batch() const;
  /// Returns the samples of step `index` of an epoch, as positions in the epoch's order.
  Range batch_range(std::int64_t index) const;
};

/// Makes a job from `spec` and its `plan`. The devices are those of `processes`, if not null.
/// Throws ErrorKind::usage if parts of the spec do not fit together, such as a wrong number of
/// classes or more replicas than shards.
Job make_job(TrainSpec spec, Plan plan, const DataSets& sets, std::string resolved_config,
             ProcessGroup* processes = nullptr);

/// Adds accuracy_top5 to an evaluation's metrics if samples have labels and the model has more than
/// 5 outputs, unless the config measures it already or has no room for another metric.
void measure_top5(Job& job);

/// Returns the options for reading a job's data (decoder threads and prefetch), except order and
/// batch size.
Loader::Options loader_options(const Job& job);

/// Returns `train.stall_timeout`.
std::chrono::milliseconds stall_timeout(const TrainSpec& spec);

}  // namespace dpt
