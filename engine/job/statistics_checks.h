// Checks that layers with batch statistics get enough samples. They are made before a job runs.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "engine/job/job.h"

namespace dpt {

/// Returns a message that names the first layer for which some batch has only one value per
/// channel: in a shard or, with `sync`, in total. One value has no variance (PyTorch refuses this
/// too). Empty if there is no such layer.
std::string problem_of_statistics(const Job& job);

/// Returns a warning if shards of full batches are so small that their statistics are mostly noise;
/// otherwise an empty string.
std::string small_shards(const Job& job);

/// Returns a warning if each replica normalises by the statistics of its own part of the batch,
/// because the result then depends on the number of replicas. Applies to a new run with several
/// replicas, and to a run that resumes on another number of replicas than its checkpoint's
/// (`before`). Empty otherwise, and in exact mode.
std::string replica_statistics(const TrainSpec& spec, const Plan& plan, std::size_t replicas,
                               std::optional<std::size_t> before);

}  // namespace dpt
