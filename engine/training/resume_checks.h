// What is checked before a run resumes: its data, its counters, its learning rates.
#pragma once

#include <string>
#include <vector>

#include "engine/checkpoints/checkpoint.h"
#include "engine/training/job.h"

namespace dpt {

/// Throws ErrorKind::data, naming file, key, what was expected and found, when the counters of the
/// checkpoint `path` cannot be those of a run with this job's samples and batches.
void check_fits(const std::string& path, const RunState& state, const Job& job);

/// Where the learning rates from `step` on are others than those that `before`, the config as it
/// was when the checkpoint was made, would have given: a sentence that says so, with both. Empty
/// when they are the same, or when `before` had no further step. Compares a few thousand steps,
/// however long the run is.
std::string learning_rate_change(const Job& job, const TrainSpec& before, std::int64_t step);

/// In exact mode, a sentence where bits that are meant to be equal are not: because the replicas
/// are of several kinds (CPU replicas of one thread, of two, ..., GPUs), or because the checkpoint
/// was made on another kind, `before` (device names; empty for a fresh run). Empty elsewhere.
std::string inexact_devices(const Job& job, const std::vector<std::string>& before);

}  // namespace dpt
