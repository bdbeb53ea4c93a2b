// Checks that layers with batch statistics get enough samples for them, which a job knows before it
// runs.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "engine/job/job.h"

namespace dpt {

/// Names the layer for which some batch leaves one value per channel, in a shard or, with `sync`,
/// altogether: that is no sample of a distribution (PyTorch refuses it too). Empty where there is
/// none.
std::string problem_of_statistics(const Job& job);

/// A sentence where shards of whole batches are so small that their statistics are mostly noise.
/// Empty elsewhere.
std::string small_shards(const Job& job);

/// Returns a sentence if each replica normalises by the statistics of its own part of the batch, so
/// that the result depends on the number of replicas: for a new run with several, and for one that
/// is resumed on a number other than the `before` of its checkpoint. Empty otherwise, and in exact
/// mode.
std::string replica_statistics(const TrainSpec& spec, const Plan& plan, std::size_t replicas,
                               std::optional<std::size_t> before);

}  // namespace dpt
