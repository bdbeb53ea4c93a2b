// A command as one of the processes of a world, or alone.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "app/base/process_options.h"
#include "engine/processes/control_types.h"
#include "engine/processes/process_group.h"

namespace dpt {

/// Returns what a process says of its run where that has neither a name nor a token: the command,
/// the path and the content of its config or other target, and the overrides that must be the same
/// on all processes.
RunIdentity identity_of(const std::string& command, const std::string& target,
                        const std::vector<std::string>& overrides);

/// Tells the other processes of a run that this one was started with a wrong command line, whose
/// words are given, and waits for them as long as the run would (--join-timeout). Does nothing if
/// the words belong to another command than those that run in several processes, or do not say
/// which process this is.
void report_wrong_words(const std::vector<std::string>& words, const std::string& problem);

/// Finds out which process of how many this is, joins the others, and runs `body` with the group
/// (null: alone), whose result is the exit code. `run`: see RunIdentity. An error becomes known to
/// all processes; on those that did not make it, it is the first cause in the world.
int run_in_world(const ProcessOptions& options, const RunIdentity& run,
                 const std::function<int(ProcessGroup*)>& body);

}  // namespace dpt
