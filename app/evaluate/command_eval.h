#pragma once

#include <string>
#include <vector>

#include "app/base/process_options.h"
#include "app/gate/gate.h"

namespace dpt {

struct EvalOptions {
  std::string target, split, predictions, devices, use;
  std::vector<std::string> overrides;
  GateOptions gate;
  bool allow_other_data = false, allow_other_model = false, probabilities = false, json = false;
  bool table = false;  ///< print tables of classes even if stdout is not a terminal
  bool best_thresholds = false;
  ProcessOptions processes;
  std::vector<std::string> command;  ///< see TrainOptions
};

int run_eval(const EvalOptions& options);

}  // namespace dpt
