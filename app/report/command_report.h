#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dpt {

struct ReportOptions {
  std::vector<std::string> words;  ///< run folders, and overrides of their configs
  std::string out, devices;        ///< `out` is empty: where it is expected
  std::int64_t mistakes = 12;      ///< the most in each list; 0: nothing is evaluated
};

int run_report(const ReportOptions& options);

}  // namespace dpt
