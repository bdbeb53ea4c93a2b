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
  std::vector<std::string> devices;      ///< that the checkpoint was made on
  std::string made_by;                   ///< made_by() when it was made
  /// Step and file of other checkpoints that a rollback needs: of rollback_step, and the best then.
  std::vector<std::pair<std::int64_t, HeldPath>> ancestors;
  bool is_saved = false;      ///< the run folder holds a checkpoint of just this state
  bool keep_forever = false;  ///< retention never removes that checkpoint
};

/// Collective over the processes of a job: what `make` gives on the process that writes, where
/// alone it is called. The others get what training needs of it, without files and folders. Alone,
/// it is `make()`.
StartingPoint share_start(const Job& job, const std::function<StartingPoint()>& make);

/// A fresh run's starting point: initial weights by the plan.
StartingPoint fresh_start(const Job& job);

/// The starting point of a checkpoint. Throws ErrorKind::data when it does not fit the job.
StartingPoint start_from_checkpoint(const Job& job, const std::string& path);
/// Does the same with a checkpoint that was already read, taking its content.
StartingPoint start_from_checkpoint(const Job& job, VerifiedCheckpoint& file);

/// Returns the origin of a result: libraries, instruction set and maker of the processor, devices.
/// Kept in checkpoints and env.json.
std::string made_by(const Job& job);

}  // namespace dpt
