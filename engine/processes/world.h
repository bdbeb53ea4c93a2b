// Which process of how many this one is. A world of one process is what `dpt` is without a
// launcher.
#pragma once

#include <string>
#include <vector>

namespace dpt {

/// Limit of the processes of a world: what they need of connections and memory grows with it.
inline constexpr int kMaxProcesses = 1 << 16;

struct World {
  int rank = 0, size = 1;              ///< rank of this process, and number of processes
  int local_rank = 0, local_size = 1;  ///< the same among those on this machine
  std::string host;                    ///< this machine's name
  std::string launcher;                ///< "torchrun", "Slurm", ...; empty = none, a world of one
  std::string coordinator;             ///< name or address of the machine of rank 0
  /// Ports at which rank 0 may listen, in the order in which every process tries them. Any other
  /// program that listens there does not know the token.
  std::vector<int> ports;
  /// The launcher's name of this job, or empty. It is no secret: it keeps two jobs apart, not
  /// strangers out.
  std::string job;
  /// Secret of all processes of the job (DPT_TOKEN); empty if none was given.
  std::string token;

  bool alone() const { return size == 1; }
};

/// For the log: "rank 1 of 4 (torchrun), local rank 1 of 2 on host b, rank 0 at a:29401".
std::string describe(const World& world);

}  // namespace dpt
