// Waits for a GPU's work that always end. The driver's own waits (cudaEventSynchronize,
// cudaStreamSynchronize) never return if the GPU hangs, so these functions poll instead.
#pragma once

#include <cuda_runtime.h>

#include "kernels/base/lost_device.h"
#include "kernels/cuda/runtime/context.h"

namespace dpt {

/// Return when the work before the event's record, or all work of the stream, is complete. Throw
/// ErrorKind::device if the GPU has met an error. Throw LostDevice if the work takes longer than
/// BackendOptions::wait_limit, or if it does not end soon after another replica has failed.
void wait_for_event(const CudaContext& context, cudaEvent_t event);
void wait_for_stream(const CudaContext& context, cudaStream_t stream);

/// Calls release(args...), which frees something of a GPU. Skips the call if a GPU is lost.
template <class Release, class... Args>
void release_unless_lost(Release release, Args... args) noexcept {
  if (!is_device_lost()) release(args...);
}

}  // namespace dpt
