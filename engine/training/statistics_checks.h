// Whether layers with batch statistics have enough samples for them, which a job knows before it
// runs.
#pragma once

#include <string>

#include "engine/training/job.h"

namespace dpt {

/// Names the layer for which some batch leaves one value per channel, in a shard or, with `sync`,
/// altogether: that is no sample of a distribution (PyTorch refuses it too). Empty where there is
/// none.
std::string problem_of_statistics(const Job& job);

/// A sentence where shards of whole batches are so small that their statistics are mostly noise.
/// Empty elsewhere.
std::string small_shards(const Job& job);

}  // namespace dpt
