// Elementwise losses on the CPU.
#pragma once

#include <memory>

#include "kernels/backend.h"

namespace dpt {

std::unique_ptr<LossOp> make_cpu_element_loss(const ElementLossDesc& desc);

}  // namespace dpt
