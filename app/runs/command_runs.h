#pragma once

#include <string>

namespace dpt {

struct RunsOptions {
  std::string folder = "runs";
  std::string restore;  ///< run folder to restore, instead of printing a list
  std::string sort;     ///< see CompareOptions; empty: by folder
  bool json = false, csv = false;
};

int run_runs(const RunsOptions& options);

}  // namespace dpt
