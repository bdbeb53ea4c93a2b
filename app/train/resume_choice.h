// Choice of the checkpoint that dpt train resumes: the one that --resume names, or the newest good
// one of the run folder.
#pragma once

#include <optional>
#include <string>

#include "app/train/train_options.h"
#include "engine/checkpoints/checkpoint.h"
#include "engine/run/progress.h"

namespace dpt {

/// Checkpoint to resume, already read and verified.
struct ResumeChoice {
  VerifiedCheckpoint file;
  bool is_named = false;  ///< named by --resume, not just the newest of the run folder
};

/// Returns the checkpoint from which the run in `folder` continues, or nothing for a fresh start.
/// Warns through `progress` of each damaged file that is skipped. Throws ErrorKind::usage for an
/// unknown name; the message lists the known ones. Throws ErrorKind::data for damaged files; the
/// message names an intact one and the command that resumes it.
std::optional<ResumeChoice> choose_checkpoint(const TrainOptions& options,
                                              const std::string& folder, const Plan& plan,
                                              Progress& progress);

}  // namespace dpt
