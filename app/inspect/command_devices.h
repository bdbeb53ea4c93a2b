#pragma once

namespace dpt {

struct DevicesOptions {
  bool json = false;
};

int run_devices(const DevicesOptions& options);

}  // namespace dpt
