// Position of this process among the processes of a job. Without a launcher, `dpt` is a world of
// one process.
#pragma once

#include <string>
#include <vector>

namespace dpt {

/// Maximum number of processes in a world, which limits its connections and memory.
inline constexpr int kMaxProcesses = 1 << 16;

struct World {
  int rank = 0, size = 1;              ///< rank of this process, and number of processes
  int local_rank = 0, local_size = 1;  ///< the same among the processes on this machine
  std::string host;                    ///< this machine's name
  std::string launcher;                ///< "torchrun", "Slurm", ...; empty = none, a world of one
  std::string coordinator;             ///< name or address of the machine of rank 0
  /// Ports at which rank 0 may listen, in the order in which every process tries them. Another
  /// program that listens at one of them does not know the token, so processes pass it over.
  std::vector<int> ports;
  /// The launcher's name for this job, or empty. It is not secret: it tells two jobs apart, but
  /// does not keep other programs out.
  std::string job;
  /// Shared secret of all processes of the job (DPT_TOKEN); empty if none was given.
  std::string token;

  bool alone() const { return size == 1; }
};

/// Returns a line for the log: "rank 1 of 4 (torchrun), local rank 1 of 2 on host b, rank 0 at
/// a:29401".
std::string describe(const World& world);

}  // namespace dpt
