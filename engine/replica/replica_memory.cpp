#include "engine/replica/replica_memory.h"

#include <algorithm>

#include "engine/graph/param_places.h"
#include "engine/job/job.h"
#include "kernels/devices.h"

namespace dpt {

std::int64_t first_gradient_of(const Job& job) {
  const bool has_gpu =
      std::any_of(job.placement.devices.begin(), job.placement.devices.end(),
                  [](const DeviceName& device) { return device.kind != DeviceName::Kind::cpu; });
  return has_gpu && job.spec.train.grad_clip_norm ? 0 : gradient_begin(job.model.plan);
}

DeviceMemory ReplicaMemory::allocate(std::size_t bytes, const std::string& what) {
  bytes_ += bytes;
  return backend_.allocate(bytes, what);
}

void ReplicaMemory::grow(DeviceMemory& memory, std::size_t bytes, const std::string& what) {
  if (memory.bytes() >= bytes) return;
  bytes_ -= memory.bytes();
  // Queued work may still use the old memory.
  backend_.synchronize();
  memory = DeviceMemory();
  memory = allocate(bytes, what);
  ++moves_;
}

}  // namespace dpt
