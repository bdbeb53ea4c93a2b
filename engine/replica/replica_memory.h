// The device memory that the parts of a replica allocate, counted.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/backend.h"

namespace dpt {

struct Job;

/// Returns the first float of the flat buffer that has a gradient and optimizer state on the job's
/// replicas: gradient_begin() of its plan. It is 0 if a GPU clips by the norm: the order of that
/// sum depends on its length, and the bits of runs must not change.
std::int64_t first_gradient_of(const Job& job);

/// Returns the address at which a flat buffer would begin whose floats from `begin` on are in
/// `memory`: adding an offset of at least `begin` gives an address in it.
inline DevPtr flat_base(const DeviceMemory& memory, std::int64_t begin) {
  return {memory.ptr().address - static_cast<std::uintptr_t>(begin) * sizeof(float)};
}

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
