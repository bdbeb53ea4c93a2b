#pragma once

#include "app/inspect/devices_options.h"

namespace dpt {

/// Returns 0 if all kernels of all devices are right, otherwise ErrorKind::device.
int check_devices(const DevicesOptions& options);

}  // namespace dpt
