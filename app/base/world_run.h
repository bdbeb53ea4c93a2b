// Runs a command as one of the processes of a world, or alone.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "app/base/process_options.h"
#include "engine/processes/control_types.h"
#include "engine/processes/process_group.h"

namespace dpt {

/// Returns the identity by which the processes of a run recognise each other if the run has neither
/// a name nor a token: the command, the path and content of its config or other target, and the
/// overrides that must be the same on all processes.
RunIdentity identity_of(const std::string& command, const std::string& target,
                        const std::vector<std::string>& overrides);

/// Tells the other processes of a run that the command line `words` of this process is invalid, and
/// waits for them up to --join-timeout. Does nothing if the command does not run in several
/// processes, or if the words do not tell which process this is.
void report_wrong_words(const std::vector<std::string>& words, const std::string& problem);

/// Detects the World of this process, joins the others, and runs `body` with the group (null if
/// this process is the only one). Returns the exit code from `body`. `run`: see RunIdentity. If one
/// process fails, all others learn of its error and report it too.
int run_in_world(const ProcessOptions& options, const RunIdentity& run,
                 const std::function<int(ProcessGroup*)>& body);

}  // namespace dpt
