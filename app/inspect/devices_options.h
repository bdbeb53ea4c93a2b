// The options of dpt devices.
#pragma once

#include <string>

namespace dpt {

struct DevicesOptions {
  bool json = false;
  bool check = false;   ///< checks the devices instead of listing them
  std::string devices;  ///< devices to check, separated by commas; empty: the CPU and every GPU
  double seconds = 0;   ///< duration of the repeated check; 0: one pass
};

}  // namespace dpt
