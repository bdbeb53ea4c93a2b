// What must be the same on all processes of a job, compared before the first sum: a difference
// would show as sums of unlike sizes, or as a wrong result that looks like a right one.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace dpt {

struct Job;

/// Names, and values as texts; the resolved config comes last.
using Facts = std::vector<std::pair<std::string, std::string>>;

/// Fields of the config that may differ between the processes: each brings its own devices, and
/// reads the same data (whose fingerprint is compared) from its own place, in its own way.
const std::vector<std::string>& fields_of_process();

/// `options`: what the command line adds to the config.
Facts facts_of(const Job& job, const Facts& options = {});

/// Collective over the processes of a job, before its first sum: compares their facts and connects
/// them. Nothing to do for one process alone. Throws as ProcessGroup::compare and connect.
void compare_and_connect(const Job& job, const Facts& options);

/// The first difference between the facts of processes on these hosts, as a message that names the
/// fact (of a config, the fields), the ranks and both values; empty if there is none.
std::string difference_of_facts(const std::vector<Facts>& facts,
                                const std::vector<std::string>& hosts);

}  // namespace dpt
