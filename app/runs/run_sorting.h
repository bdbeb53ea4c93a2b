// Sorts runs in lists by a result or by a config key.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "app/runs/run_comparison.h"

namespace dpt {

struct ComparedRun {
  RunFacts facts;
  RunConfig config;
  std::vector<std::pair<std::string, double>> numbers;  ///< result of numbers_of
};

/// Sorts by `name`: results best first, other values in ascending order; runs without the value
/// come last. An empty name changes nothing. Throws ErrorKind::usage if no run has a value of this
/// name.
void sort_runs(std::vector<ComparedRun>& runs, const std::string& name);

}  // namespace dpt
