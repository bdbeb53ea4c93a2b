// Starting point of training: initial weights or a checkpoint, shared by all processes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "engine/checkpoints/checkpoint.h"
#include "engine/job/job.h"
#include "kernels/base/held_path.h"

namespace dpt {

/// Start of a run: the first step of a fresh run, or a checkpoint.
struct StartingPoint {
  RunState state;
  std::vector<float> params;
  std::vector<std::pair<std::string, std::vector<float>>> optimizer;  ///< empty = zeros
  std::string config, checksum, folder;  ///< parts of the checkpoint; empty for a fresh run
  std::vector<std::string> devices;      ///< devices on which the checkpoint was made
  std::string made_by;                   ///< made_by() at the time of the checkpoint
  /// Step and file of other checkpoints that a rollback needs: the checkpoint of rollback_step, and
  /// the best one at that step.
  std::vector<std::pair<std::int64_t, HeldPath>> ancestors;
  bool is_saved = false;      ///< true if the run folder has a checkpoint of exactly this state
  bool keep_forever = false;  ///< true if retention never removes that checkpoint
};

/// Calls `make` on the process that writes the run folder. Sends the result to the other processes,
/// except the members that concern files. Collective over the processes of a job. With a single
/// process, returns `make()`.
StartingPoint share_start(const Job& job, const std::function<StartingPoint()>& make);

/// Returns a fresh run's starting point, with initial weights according to the plan.
StartingPoint fresh_start(const Job& job);

/// Reads a checkpoint as a starting point. Throws ErrorKind::data if it does not fit the job.
StartingPoint start_from_checkpoint(const Job& job, const std::string& path);
/// Does the same with a checkpoint that was already read. Takes its content.
StartingPoint start_from_checkpoint(const Job& job, VerifiedCheckpoint& file);

/// Gives the job the device weights of a checkpoint's state, if dpt 0.1 measured any.
void adopt_device_weights(const RunState& state, Job& job);

/// Returns a description of what computes a result: the libraries, the processor's instruction set
/// and vendor, and the devices. It is stored in checkpoints and env.json.
std::string made_by(const Job& job);

}  // namespace dpt
