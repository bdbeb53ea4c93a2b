#pragma once

#include <memory>

#include "kernels/backend.h"

namespace dpt {

/// As Backend::dropout.
std::unique_ptr<Op> make_cpu_dropout(const DropoutDesc& desc, int threads);

}  // namespace dpt
