// Allocates the device memory of a replica's parts and counts its bytes.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/backend.h"

namespace dpt {

struct Job;

/// Returns the index of the first float of the flat buffer that has a gradient and optimizer state
/// on the job's replicas: gradient_begin() of its plan. Returns 0 if a GPU clips by the norm: the
/// order of additions in that norm depends on its length, and the bits of existing runs must not
/// change.
std::int64_t first_gradient_of(const Job& job);

/// Returns the base address of a flat buffer whose floats from `begin` on are in `memory`. Adding
/// an offset of at least `begin` gives an address in `memory`.
inline DevPtr flat_base(const DeviceMemory& memory, std::int64_t begin) {
  return {memory.ptr().address - static_cast<std::uintptr_t>(begin) * sizeof(float)};
}

/// Used by the replica's thread only.
class ReplicaMemory {
 public:
  explicit ReplicaMemory(Backend& backend) : backend_(backend) {}

  DeviceMemory allocate(std::size_t bytes, const std::string& what);
  /// Grows `memory` to `bytes` if it is smaller. Growing discards its contents.
  void grow(DeviceMemory& memory, std::size_t bytes, const std::string& what);

  /// Returns the device memory held, in bytes.
  std::size_t bytes() const { return bytes_; }
  /// Returns how often `grow` has moved memory. Each move invalidates earlier addresses.
  std::int64_t moves() const { return moves_; }

 private:
  Backend& backend_;
  std::size_t bytes_ = 0;
  std::int64_t moves_ = 0;
};

}  // namespace dpt
