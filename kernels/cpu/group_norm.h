// Normalisation of each sample by itself, on the CPU.
#pragma once

#include <memory>

#include "kernels/backend.h"

namespace dpt {

std::unique_ptr<Op> make_cpu_group_norm(const GroupNormDesc& desc, int threads);

}  // namespace dpt
