// The contract between the trainer and a device. A Backend object stands for one device: it owns
// memory, orders execution, and creates kernels ("describe once, execute many times").
//
// Rules every backend keeps:
//  - Only the replica's thread uses a Backend, except for functions whose comment allows other
//    threads.
//  - Everything that takes a DevPtr is *queued*: it runs in call order on the device's one stream,
//    and may not have run yet when the call returns. The host learns only from `synchronize` and
//    `wait` that work is complete.
//  - The host never dereferences a DevPtr. Only `upload` and `download` copy bytes between the two.
//  - Creating a kernel may allocate and take milliseconds; running one allocates nothing.
//  - Activations are NHWC, C fastest. Convolution weights are OHWI (out, kh, kw, in/groups), linear
//    weights [out][in]; biases [out]. Activations, their gradients and the weights that an
//    operation reads have the DType of the description; biases and the gradients of parameters are
//    fp32. If the description's type is bf16, a bias has a bf16 copy as well; a backend may use
//    either. Sums and statistics are kept in fp32 at least, whatever the type.
//  - In backward, an activation gradient is overwritten. A parameter gradient is overwritten or
//    added to, according to GradWrite.
//  - Results depend only on the description and the inputs: not on the thread or on what ran
//    before. (Exact mode relies on this: see docs/internals/exactness.md.) Timing may
//    choose between implementations only where BackendOptions allow it.
//  - Failures throw dpt::Error with ErrorKind::device. If the device cannot run a description, this
//    happens when the kernel is created; if the device fails, at the next call that notices it.
// A backend does not depend on dpt's YAML, files, layers or threads.
#pragma once

#include <memory>

#include "kernels/device_queue.h"
#include "kernels/flat.h"
#include "kernels/ops.h"

namespace dpt {

/// Interface of one device.
class Backend : public DeviceQueue, public OpFactory, public FlatKernels {};

/// Creates a backend that runs on `threads` threads of the CPU. Create and use it in the replica's
/// thread, because each such thread has its own OpenMP team.
std::unique_ptr<Backend> make_cpu_backend(int threads);

}  // namespace dpt
