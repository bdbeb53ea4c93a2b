// Checks before a run resumes: its data, its counters, its learning rates.
#pragma once

#include <string>
#include <vector>

#include "engine/checkpoints/checkpoint.h"
#include "engine/job/job.h"

namespace dpt {

/// Throws ErrorKind::data if the counters of the checkpoint `path` are impossible for a run with
/// this job's samples and batches. The error states the file, the key, and the expected and the
/// found value.
void check_fits(const std::string& path, const RunState& state, const Job& job);

/// Sets the schedule of a resumed run whose train.epochs was raised, as train.on_more_epochs
/// requests. The schedule continues from `before` and the checkpoint's `state`. Returns a sentence
/// about the effect of the request, or an empty string if there is no effect. Throws
/// ErrorKind::usage if nothing is requested and the learning rate would change.
std::string continue_schedule(Job& job, const TrainSpec& before, const RunState& state);

/// Compares the schedule after the checkpoint of `state` with that of `before`, the config at the
/// time of the checkpoint. Returns a sentence with both learning rates if they differ. Empty if the
/// schedules are equal, if no step is left, or if continue_schedule has already reported the
/// difference. Compares at most a few thousand steps.
std::string learning_rate_change(const Job& job, const TrainSpec& before, const RunState& state);

/// Throws ErrorKind::usage if, in exact mode, this process has GPUs of different kinds (kind_of).
/// (compare_and_connect compares the GPUs of different processes.)
void check_kinds_of_gpus(const Job& job);

/// Returns a warning if, in exact mode, the devices cannot give equal bits. Either the replicas are
/// of several kinds (GPUs, or CPUs with a given number of threads), or the checkpoint was made on
/// devices of another kind. `before` has the names of its devices, and is empty for a fresh run.
/// Returns an empty string otherwise.
std::string inexact_devices(const Job& job, const std::vector<std::string>& before);

/// Returns a warning if, in exact mode, libraries or processors differ from those of the
/// checkpoint. `before` and `now` are made_by() texts, of which only the part for the job's kind of
/// device is compared. Empty otherwise, and also if `before` is empty.
std::string inexact_makers(const Job& job, const std::string& before, const std::string& now);

}  // namespace dpt
