#pragma once

#include <memory>

#include "kernels/backend.h"

namespace dpt {

/// As Backend::activation.
std::unique_ptr<Op> make_cpu_activation(const ActivationDesc& desc, int threads);

}  // namespace dpt
