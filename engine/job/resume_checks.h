// Checks before a run resumes: its data, its counters, its learning rates.
#pragma once

#include <string>
#include <vector>

#include "engine/checkpoints/checkpoint.h"
#include "engine/job/job.h"

namespace dpt {

/// Throws ErrorKind::data, naming file, key, what was expected and found, when the counters of the
/// checkpoint `path` cannot be those of a run with this job's samples and batches.
void check_fits(const std::string& path, const RunState& state, const Job& job);

/// Sets the schedule of a resumed run whose train.epochs was raised to the one that
/// train.on_more_epochs requests, continued from `before` and the checkpoint's `state`. Throws
/// ErrorKind::usage if nothing is requested and the learning rate would change. Returns a sentence
/// about the effect of the request; empty without one.
std::string continue_schedule(Job& job, const TrainSpec& before, const RunState& state);

/// Returns a sentence with both learning rates if, from `step` on, they differ from those of
/// `before`, the config when the checkpoint was made. Empty if they are the same, if `before` had
/// no further step, or if continue_schedule has reported it (more epochs). Compares a few thousand
/// steps, however long the run is.
std::string learning_rate_change(const Job& job, const TrainSpec& before, const RunState& state);

/// In exact mode, a sentence where bits that are meant to be equal are not: because the replicas
/// are of several kinds (CPU replicas of one thread, of two, ..., GPUs), or because the checkpoint
/// was made on another kind, `before` (device names; empty for a fresh run). Empty elsewhere.
std::string inexact_devices(const Job& job, const std::vector<std::string>& before);

/// In exact mode, a sentence where libraries or processors are not those of the checkpoint:
/// `before` and `now` are what made_by says, of which only the part counts that computes on the
/// job's kind of device. Empty elsewhere, and where `before` does not say.
std::string inexact_makers(const Job& job, const std::string& before, const std::string& now);

}  // namespace dpt
