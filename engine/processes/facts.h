// Facts about a process of a job that must be the same on all processes.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace dpt {

/// Names and values as texts; the resolved config comes last.
using Facts = std::vector<std::pair<std::string, std::string>>;

/// Name of the fact that contains the resolved config.
inline constexpr const char* kConfigFact = "the config";

/// Returns the fields of the config that may differ between processes: each process has its own
/// devices, and may read the data from another place and in another way. The data's fingerprint is
/// compared instead.
const std::vector<std::string>& fields_of_process();

/// Returns the first difference between the facts of processes on these hosts, as an error that
/// names the fact (for a config, the fields), the ranks and both values; empty if there is none.
std::string difference_of_facts(const std::vector<Facts>& facts,
                                const std::vector<std::string>& hosts);

}  // namespace dpt
