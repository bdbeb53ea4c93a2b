// The baseline of a gate, and the files from which it can be read.
#pragma once

#include <string>

#include "app/runs/run_results.h"

namespace dpt {

/// Results that conditions are compared with.
struct Baseline {
  std::string path;           ///< path on the command line; empty if there is no baseline
  std::string file, val_key;  ///< the file that was read, and its key for the results "val"
  RunResults results;
};

/// Reads a run folder, its summary.json or the output of `dpt eval --json`. Throws ErrorKind::data
/// for another file, and for a run that has not ended.
Baseline load_baseline(const std::string& path);

}  // namespace dpt
