// Facts that must be the same on all processes of a job. They are compared before the first sum,
// because a difference would otherwise cause sums of unequal sizes or a silently wrong result.
#pragma once

#include <string>
#include <vector>

#include "engine/processes/facts.h"

namespace dpt {

struct Job;

/// Returns the facts of a job. `options` are facts that the command line adds to the config.
Facts facts_of(const Job& job, const Facts& options = {});

/// Compares the facts of a job's processes and connects the processes. Collective; call it before
/// the first sum. Does nothing for a single process. Throws the errors of ProcessGroup::compare and
/// connect.
void compare_and_connect(const Job& job, const Facts& options);

}  // namespace dpt
