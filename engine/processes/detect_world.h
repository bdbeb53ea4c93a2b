// Determines the rank of this process and the size of its world, once, from the launcher's
// environment or from flags.
#pragma once

#include <string>

#include "engine/processes/environment.h"
#include "engine/processes/world.h"

namespace dpt {

/// Flags `--rank`, `--world-size` and `--coordinator HOST:PORT`, which override the environment.
struct WorldFlags {
  int rank = -1, size = -1;  ///< -1 = not given
  std::string coordinator;
};

/// Returns the world of this process. Throws ErrorKind::usage for an incomplete set of variables
/// (listing those found), values that contradict each other, more than kMaxProcesses processes, and
/// a world of several machines without an address of rank 0. Each error says what to do. An
/// incomplete set that can only mean one process (a size of 1, LOCAL_RANK=0 alone) is ignored.
/// docs/guide/cluster.md lists the variables of each launcher.
World detect_world(const Environment& environment, const WorldFlags& flags = {});
/// Does the same with the environment of this process.
World detect_world(const WorldFlags& flags = {});

/// Throws ErrorKind::usage if this process runs in a batch script of several tasks but is not one
/// of the tasks: it would do the work of one task and leave the others idle. For long-running
/// commands (training). `world` is the result of detect_world.
void require_started_tasks(const Environment& environment, const World& world);
void require_started_tasks(const World& world);

/// Throws ErrorKind::usage if a launcher started this process as one of several, because `--nproc`
/// would multiply each of them. A batch script of several tasks may start its processes with
/// `--nproc`.
void refuse_nested_launch(const Environment& environment);
void refuse_nested_launch();

}  // namespace dpt
