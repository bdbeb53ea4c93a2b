#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dpt {

struct ReportOptions {
  std::vector<std::string> words;  ///< run folders, and overrides of their configs
  std::string out, devices;        ///< empty `out`: the default place
  std::int64_t mistakes = 12;      ///< maximum length of each list; 0: evaluate nothing
};

int run_report(const ReportOptions& options);

}  // namespace dpt
