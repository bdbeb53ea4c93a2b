// The samples of a Job, and what the input kernel does with them.
#pragma once

#include <cstdint>
#include <memory>

#include "engine/config/train_spec.h"
#include "engine/data/bad_samples.h"
#include "engine/data/data_sets.h"
#include "engine/data/input_draws.h"
#include "engine/data/sampling.h"
#include "engine/data/source.h"
#include "engine/data/split.h"
#include "engine/graph/plan.h"
#include "kernels/ops.h"

namespace dpt {

struct JobData {
  Splits splits;          ///< training as steps see it, validation and test as evaluations do
  Split evaluated_train;  ///< the training samples as an evaluation sees them
  /// Source of these samples with substitutes for those that cannot be read, as training has them;
  /// null if such a sample ends the run.
  std::shared_ptr<const DataSource> evaluated_substitutes;
  InputDesc train_input, eval_input;        ///< input kernel of each list; without mixing
  InputDraws draws;                         ///< for train_input, and for mixing batches
  std::shared_ptr<BadSamples> bad_samples;  ///< left out by this process; null if they end it
  std::int64_t steps_per_epoch = 0;

  /// Returns the input kernel of training steps: train_input with the mixing of batches.
  InputDesc mixed_input() const {
    InputDesc input = train_input;
    input.mix = draws.mixes();
    return input;
  }
};

/// Makes the data of a job. make_job fills in `draws`, which depend on the loss. Throws
/// ErrorKind::usage if parts of the spec and the data do not fit together.
JobData make_job_data(const TrainSpec& spec, const Plan& plan, const DataSets& sets);

/// Returns the requirements of this model on its data (the plan decides the range of labels).
DataRequirements data_requirements(const TrainSpec& spec, const Plan& plan);

/// Refuses data.on_bad_sample: skip for samples with targets of floats, which it cannot replace.
/// Throws ErrorKind::usage.
void check_can_skip(const DataSpec& data, const DataSource& train);

/// Refuses to monitor validation samples (early stopping, plateau) that the data set turns out not
/// to have. Throws ErrorKind::usage.
void check_monitored(const TrainSpec& spec, std::int64_t val_samples);

/// Returns the order of training samples that a spec asks for.
SamplingOptions sampling_of(const TrainSpec& spec);

}  // namespace dpt
