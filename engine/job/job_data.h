// The samples of a Job, and how the input kernel prepares them.
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
  Splits splits;          ///< transformed by data.transforms.train, or .eval for val and test
  Split evaluated_train;  ///< the training samples, transformed by data.transforms.eval
  /// Source of evaluated_train, with substitutes for unreadable samples as in training. Null if an
  /// unreadable sample ends the run.
  std::shared_ptr<const DataSource> evaluated_substitutes;
  InputDesc train_input,
      eval_input;    ///< kernels for training and evaluation transforms, without mixing
  InputDraws draws;  ///< random draws of train_input and of mixed batches
  std::shared_ptr<BadSamples> bad_samples;  ///< samples left out by this process; null if an
                                            ///< unreadable sample ends the run
  std::int64_t steps_per_epoch = 0;

  /// Returns the input kernel of training steps: train_input with the mixing of batches.
  InputDesc mixed_input() const {
    InputDesc input = train_input;
    input.mix = draws.mixes();
    return input;
  }
};

/// Makes the data of a job. make_job sets `draws`, which depend on the loss. Throws
/// ErrorKind::usage if parts of the spec and the data do not fit together.
JobData make_job_data(const TrainSpec& spec, const Plan& plan, const DataSets& sets);

/// Returns what a model requires of its data. The plan determines the number of classes.
DataRequirements data_requirements(const TrainSpec& spec, const Plan& plan);

/// Throws ErrorKind::usage if data.on_bad_sample is skip and the targets are floats. A sample with
/// such targets cannot be replaced.
void check_can_skip(const DataSpec& data, const DataSource& train);

/// Throws ErrorKind::usage if early stopping or plateau monitors validation samples that the data
/// set turns out not to have.
void check_monitored(const TrainSpec& spec, std::int64_t val_samples);

/// Returns the order of training samples that a spec requests.
SamplingOptions sampling_of(const TrainSpec& spec);

}  // namespace dpt
