// Reads which process of how many this one is, once, from the launcher's environment or from flags.
#pragma once

#include <string>

#include "engine/processes/environment.h"
#include "engine/processes/world.h"

namespace dpt {

/// `--rank`, `--world-size`, `--coordinator HOST:PORT`; they come before the environment.
struct WorldFlags {
  int rank = -1, size = -1;  ///< -1 = not given
  std::string coordinator;
};

/// Throws ErrorKind::usage for half a set of variables (listing what was found), values that
/// contradict each other, more than kMaxProcesses, and a world of several machines without an
/// address of rank 0: each text says what to do. Half a set that can only mean one process (a size
/// of 1, LOCAL_RANK=0 alone) is ignored. docs/guide/cluster.md has the variables of each launcher.
World detect_world(const Environment& environment, const WorldFlags& flags = {});
/// Does the same with this process' environment.
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

}  // namespace dpt
