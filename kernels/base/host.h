// Cores and memory that this process may use, according to its CPU affinity and control groups.
// Most functions take the folder that contains proc and sys, so that a test can simulate a machine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dpt::host_system {

/// Returns the numbers of the logical processors that the calling process may run on, ascending.
std::vector<int> allowed_cpus();

/// Returns the number of physical cores among `cpus`. Processors that the kernel reports as
/// siblings count once. If the topology is not reported, every processor counts as a core.
int physical_cores(const std::vector<int>& cpus, const std::string& root = "");

/// Returns the number of processors that the CPU quotas of this process's control groups (v1 and
/// v2, all levels) allow, rounded down but at least 1; 0 = no limit.
int quota_cpus(const std::string& root = "");

struct Memory {
  std::uint64_t total = 0;  ///< memory of the machine, or the tightest control group's limit
  std::uint64_t free = 0;   ///< bytes still available without swapping
};
Memory memory(const std::string& root = "");

/// Returns the number of threads and processes that the tightest control group of this process
/// allows; 0 = no limit.
std::int64_t most_threads(const std::string& root = "");

/// Returns the processor's model ("AMD EPYC"), or "unknown processor".
std::string processor_model(const std::string& root = "");

}  // namespace dpt::host_system
