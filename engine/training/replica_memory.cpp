#include "engine/training/replica_memory.h"

namespace dpt {

DeviceMemory ReplicaMemory::allocate(std::size_t bytes, const std::string& what) {
  bytes_ += bytes;
  return backend_.allocate(bytes, what);
}

void ReplicaMemory::grow(DeviceMemory& memory, std::size_t bytes, const std::string& what) {
  if (memory.bytes() >= bytes) return;
  bytes_ -= memory.bytes();
  // Work that is queued may still use the old one.
  backend_.synchronize();
  memory = DeviceMemory();
  memory = allocate(bytes, what);
  ++moves_;
}

}  // namespace dpt
