// The part of the self check for the kernels of a step that are not operations of the network.
#pragma once

#include <vector>

#include "engine/job/job.h"
#include "engine/self_check/operation_check.h"

namespace dpt {

/// Runs the kernels of a job's training step, other than those of its network, on a GPU and on the
/// CPU: the input kernel, the loss, the optimizer, the running statistics, and sums and norms of
/// gradients. Returns the kernels whose results differ. Throws ErrorKind::device if the device
/// fails.
std::vector<OperationCheck> check_step_kernels(const Job& job, Backend& gpu);

}  // namespace dpt
