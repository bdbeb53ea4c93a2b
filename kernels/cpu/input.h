// The CPU's input kernel: raw samples -> activations.
#pragma once

#include <memory>

#include "kernels/backend.h"

namespace dpt {

/// Ready to run for batches of desc.batch on a team of `threads`. Throws ErrorKind::device for a
/// description that it cannot run. The result depends neither on the threads nor on how a batch is
/// cut.
std::unique_ptr<InputOp> make_cpu_input(const InputDesc& desc, int threads);

}  // namespace dpt
