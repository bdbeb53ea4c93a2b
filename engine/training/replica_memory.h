// The device memory that the parts of a replica allocate, counted.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/backend.h"

namespace dpt {

/// Used by the thread of its backend.
class ReplicaMemory {
 public:
  explicit ReplicaMemory(Backend& backend) : backend_(backend) {}

  DeviceMemory allocate(std::size_t bytes, const std::string& what);
  /// Grows `memory` to `bytes` if it is smaller; its contents are lost then.
  void grow(DeviceMemory& memory, std::size_t bytes, const std::string& what);

  /// Held, in bytes.
  std::size_t bytes() const { return bytes_; }
  /// Counts how often `grow` moved memory, which invalidates earlier addresses.
  std::int64_t moves() const { return moves_; }

 private:
  Backend& backend_;
  std::size_t bytes_ = 0;
  std::int64_t moves_ = 0;
};

}  // namespace dpt
