// Which checkpoint dpt train resumes: what --resume names, or the newest good one of the run
// folder.
#pragma once

#include <optional>
#include <string>

#include "app/commands.h"
#include "engine/checkpoints/checkpoint.h"
#include "engine/training/progress.h"

namespace dpt {

/// The checkpoint to resume, which was read and verified.
struct ResumeChoice {
  VerifiedCheckpoint file;
  bool is_named = false;  ///< by --resume, not only as the newest of the run folder
};

/// Finds it for the run in `folder`; nothing for a fresh start. `progress` gets a warning for each
/// damaged file that is skipped. Throws ErrorKind::usage for a name that is none, with those that
/// exist, and ErrorKind::data for damaged files, with what is good and the command to resume it.
std::optional<ResumeChoice> choose_checkpoint(const TrainOptions& options,
                                              const std::string& folder, const Plan& plan,
                                              Progress& progress);

}  // namespace dpt
