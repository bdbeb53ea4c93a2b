#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/base/process_options.h"
#include "app/gate/gate.h"

namespace dpt {

struct TrainOptions {
  std::string config, run_dir, resume = "auto", weights, devices, max_time;
  std::vector<std::string> overrides, expect_missing, expect_left_over;
  GateOptions gate;
  std::int64_t max_steps = 0;  ///< 0: no limit
  std::int64_t overfit = 0;    ///< number of batches to memorise, without a run folder; 0: train
  bool dry_run = false, overwrite = false, smoke = false, allow_other_data = false;
  ProcessOptions processes;
  std::vector<std::string> command;  ///< the words of the whole command line
};

}  // namespace dpt
