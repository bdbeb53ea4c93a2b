#pragma once

#include <string>

#include "engine/processes/detect_world.h"

namespace dpt {

/// Options of a command that several processes may run together.
struct ProcessOptions {
  int nproc = 0;  ///< number of processes to start on this machine; 0: start none
  WorldFlags flags;
  std::string join_timeout = "5m";
  bool rank_logs = false;
};

}  // namespace dpt
