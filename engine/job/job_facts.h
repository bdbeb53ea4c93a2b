// Facts that must be the same on all processes of a job, compared before the first sum: a
// difference would show as sums of unlike sizes, or as a wrong result that looks like a right one.
#pragma once

#include <string>
#include <vector>

#include "engine/processes/facts.h"

namespace dpt {

struct Job;

/// `options`: what the command line adds to the config.
Facts facts_of(const Job& job, const Facts& options = {});

/// Collective over the processes of a job, before its first sum: compares their facts and connects
/// them. Nothing to do for one process alone. Throws as ProcessGroup::compare and connect.
void compare_and_connect(const Job& job, const Facts& options);

}  // namespace dpt
