// The memory of a step, and the table of `dpt model summary`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/config/train_spec.h"
#include "engine/graph/plan.h"

namespace dpt {

/// Quantities that determine the memory of a step.
struct StepSize {
  std::int64_t batch = 0;    ///< samples of the largest batch, over all replicas
  std::int64_t at_once = 0;  ///< samples of the largest micro-batch of a replica
  std::int64_t pieces = 1;   ///< micro-batches that go through a pass together
};
/// Returns the sizes for `samples` training samples, on replicas that run at most `limit` samples
/// at once (micro_batch_limit). In exact mode, a micro-batch belongs to one shard, and
/// micro-batches that a GPU runs concurrently are not counted.
StepSize step_size(const TrainSpec& spec, int replicas, std::int64_t samples, std::int64_t limit);
/// Estimates the memory that a replica needs for steps of this size, in bytes, without the kernels'
/// workspaces, the data and evaluation. `optimizer_buffers` is as in summary_text.
std::int64_t step_bytes(const TrainSpec& spec, const Plan& plan, const StepSize& step,
                        int optimizer_buffers);

/// Returns the table of `dpt model summary`, or its JSON form. `optimizer_buffers` is the number of
/// the optimizer's state tensors (OptimizerSpec::states). Without it, the state tensors are not
/// counted, and the text says so. Without `step`, a replica runs its part of `data.batch_size` at
/// once.
std::string summary_text(const TrainSpec& spec, const Plan& plan, int replicas,
                         std::optional<int> optimizer_buffers = std::nullopt,
                         std::optional<StepSize> step = std::nullopt);
std::string summary_json(const TrainSpec& spec, const Plan& plan, int replicas,
                         std::optional<int> optimizer_buffers = std::nullopt,
                         std::optional<StepSize> step = std::nullopt);

}  // namespace dpt
