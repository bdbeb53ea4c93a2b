// Loss of a device: a GPU that no longer finishes its work, for example because it has fallen off
// the bus.
#pragma once

#include <string>

#include "kernels/base/error.h"

namespace dpt {

/// The error for a device of this process that stopped responding. It is the cause of failures on
/// other ranks, not a consequence. The exit code is that of a lost rank.
class LostDevice : public Error {
 public:
  explicit LostDevice(const std::string& text) : Error(ErrorKind::peer, text) {}
};

/// Returns true if a device of this process is lost. Calls that free GPU resources may then block
/// forever, so destructors skip them. The process then ends with _exit, which skips the driver's
/// own clean-up. Thread-safe.
bool is_device_lost() noexcept;
/// Sets what is_device_lost returns. Only tests set it to false.
void set_device_lost(bool lost) noexcept;

}  // namespace dpt
