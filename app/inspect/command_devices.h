#pragma once

#include "app/inspect/devices_options.h"

namespace dpt {

int run_devices(const DevicesOptions& options);

}  // namespace dpt
