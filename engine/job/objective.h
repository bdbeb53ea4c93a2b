// Parts of a config that depend on the targets of the data: the loss, the metrics and the monitors.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/config/train_spec.h"
#include "engine/data/split.h"
#include "engine/losses/loss.h"
#include "engine/metrics/metric.h"

namespace dpt {

/// The loss and the metrics of a spec.
struct Objective {
  Loss loss;
  std::optional<Loss> mixed_loss;  ///< loss of mixed batches; unset if batches are not mixed
  MetricSet metrics;
};
/// Makes the objective for this data and a model with `outputs` outputs. Throws ErrorKind::usage if
/// the spec, the model and the data do not fit together.
Objective make_objective(const TrainSpec& spec, std::int64_t outputs, const Splits& splits);

/// Returns the loss of mixed batches, or nothing if data.transforms.batch is empty. `loss` and
/// `context` are those of unmixed batches. Throws ErrorKind::usage if targets cannot be mixed.
std::optional<Loss> make_mixed_loss(const TrainSpec& spec, LossContext context, const Loss& loss);

/// Changes the default monitor to val/loss if the data's targets have no accuracy. Throws
/// ErrorKind::usage if the config names accuracy as a monitor. Call it before using the spec for
/// anything else.
void adopt_targets(TrainSpec& spec, const DataSource& source);

}  // namespace dpt
