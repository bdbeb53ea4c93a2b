// Which process of how many this one is: read once, from the launcher's environment or from flags.
// A world of one process is what `dpt` is without a launcher.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace dpt {

/// Limit of the processes of a world: what they need of connections and memory grows with it.
inline constexpr int kMaxProcesses = 1 << 16;

struct World {
  int rank = 0, size = 1;              ///< of this process, and how many there are
  int local_rank = 0, local_size = 1;  ///< the same among those on this machine
  std::string host;                    ///< this machine's name
  std::string launcher;                ///< "torchrun", "Slurm", ...; empty = none, a world of one
  std::string coordinator;             ///< name or address of the machine of rank 0
  /// Where rank 0 may listen, in the order in which they are tried by all; what else listens there
  /// does not know the token.
  std::vector<int> ports;
  /// What the launcher calls this job, or empty. No secret: it keeps two jobs apart, not strangers
  /// out.
  std::string job;
  /// Of all processes of the job (DPT_TOKEN); empty = none was given.
  std::string token;

  bool alone() const { return size == 1; }
};

/// `--rank`, `--world-size`, `--coordinator HOST:PORT`; they come before the environment.
struct WorldFlags {
  int rank = -1, size = -1;  ///< -1 = not given
  std::string coordinator;
};

/// A variable of the environment, or null.
using Environment = std::function<const char*(const char* name)>;

/// Throws ErrorKind::usage for half a set of variables (listing what was found), values that
/// contradict each other, more than kMaxProcesses, and a world of several machines without an
/// address of rank 0: each text says what to do. Half a set that can only mean one process (a size
/// of 1, LOCAL_RANK=0 alone) is ignored. docs/guide/cluster.md has the variables of each launcher.
World detect_world(const Environment& environment, const WorldFlags& flags = {});
/// From this process' environment.
World detect_world(const WorldFlags& flags = {});

/// Throws ErrorKind::usage in a batch script of several tasks for which no step was started: this
/// process would do the work of one and leave the others idle. Meant for long-running commands
/// (training). `world` is the result of detect_world.
void require_started_tasks(const Environment& environment, const World& world);
void require_started_tasks(const World& world);

/// Throws ErrorKind::usage where a launcher started this process as one of several: `--nproc` would
/// make each of them several. A batch script of several tasks may start its processes this way.
void refuse_nested_launch(const Environment& environment);
void refuse_nested_launch();

/// For the log: "rank 1 of 4 (torchrun), local rank 1 of 2 on host b, rank 0 at a:29401".
std::string describe(const World& world);

}  // namespace dpt
