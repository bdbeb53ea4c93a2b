#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dpt {

struct DataShowOptions {
  std::string config, out, split = "train";
  std::vector<std::string> overrides;
  std::int64_t samples = 0, columns = 0;  ///< 0: chosen for a sheet of convenient size
  std::int64_t epoch = 1, versions = 1;
  bool overwrite = false;
};

int run_data_show(const DataShowOptions& options);

}  // namespace dpt
