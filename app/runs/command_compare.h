#pragma once

#include <string>
#include <vector>

namespace dpt {

struct CompareOptions {
  std::vector<std::string> runs;
  std::string sort;  ///< name of a result or config key; empty: keep the order
  bool json = false, csv = false;
};

int run_compare(const CompareOptions& options);

}  // namespace dpt
