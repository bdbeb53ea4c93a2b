#pragma once

#include <string>
#include <vector>

namespace dpt {

struct DataOptions {
  std::string config;
  std::vector<std::string> overrides;
  std::vector<std::string> allowed;  ///< check: kinds of findings that are not errors
  int workers = 0;                   ///< number of threads; 0: one for each core
  bool json = false;
};

int run_data_check(const DataOptions& options);
int run_data_stats(const DataOptions& options);

}  // namespace dpt
