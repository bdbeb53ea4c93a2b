// The product of two activations, on the CPU.
#pragma once

#include <memory>

#include "kernels/backend.h"

namespace dpt {

std::unique_ptr<Op> make_cpu_product(const ProductDesc& desc, int threads);

}  // namespace dpt
