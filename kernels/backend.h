// The contract between the trainer and a device. One Backend object per device; it owns memory,
// the order of execution, and makes ready-made kernels ("describe once, execute many times").
//
// Rules every backend keeps:
//  - One thread uses a Backend: the replica's own. Only the functions that say so may be called
//    from another thread.
//  - Everything that takes a DevPtr is *queued*: it runs in call order on the device's one stream,
//    and may not have run when the call returns. `synchronize` and `wait` are the only places
//    where the host learns that something is done.
//  - The host never dereferences a DevPtr. Only `upload` and `download` copy bytes between the two.
//  - Making a kernel may allocate and take milliseconds; running one allocates nothing.
//  - Activations are NHWC, C fastest. Convolution weights are OHWI (out, kh, kw, in/groups), linear
//    weights [out][in]; biases [out]. Activations, their gradients and the weights that an
//    operation reads have the DType of the description; biases and the gradients of parameters are
//    fp32. If the description's type is bf16, a bias has a bf16 copy as well; a backend may use
//    either. Sums and statistics are kept in fp32 at least, whatever the type.
//  - In backward, an activation gradient is overwritten, a parameter gradient is overwritten or
//    added to as GradWrite says.
//  - Results depend only on the description and the inputs: not on the thread or on what ran
//    before. (This is what makes exact mode exact: see docs/internals/exactness.md.) Timing may
//    choose between implementations only where BackendOptions allow it.
//  - Failures throw dpt::Error: a description that the device cannot run when the kernel is made
//    (ErrorKind::device), a device failure at the next call that notices it.
// It does not depend on our YAML, files, layers or threads.
#pragma once

#include <memory>

#include "kernels/device_queue.h"
#include "kernels/flat.h"
#include "kernels/ops.h"

namespace dpt {

/// All that a device can do. One object per device.
class Backend : public DeviceQueue, public OpFactory, public FlatKernels {};

/// A backend that runs on `threads` threads of the CPU (one OpenMP team per replica thread: make
/// and use it in the replica's thread).
std::unique_ptr<Backend> make_cpu_backend(int threads);

}  // namespace dpt
