// dpt train, after the run: its results, what they must meet, and how to go on.
#pragma once

#include <string>
#include <vector>

#include "app/command_support.h"
#include "app/commands.h"
#include "engine/training/run_folder.h"
#include "engine/training/run_log.h"
#include "engine/training/trainer.h"

namespace dpt {

/// The results as summary.json keeps them; what `--require` reads. Only what was measured is in it.
Json summary_of(const Job& job, const RunFolder& folder, const TrainOutcome& outcome);

/// Throws ErrorKind::requirement unless all are met.
void check_requirements(const std::vector<Requirement>& requirements, const Json& summary);

/// Words as a shell needs them to run them again.
std::string shell_command(const std::vector<std::string>& words);

/// How a run that ended early goes on: "the same command goes on", or the command that does.
std::string how_to_go_on(const TrainOptions& options, const Job& job, const RunFolder& folder,
                         RunEnd end);

}  // namespace dpt
