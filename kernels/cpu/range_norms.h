// The 2-norms of ranges of a flat buffer on a CPU, with the same bits on every instruction set.
#pragma once

#include <memory>
#include <span>

#include "kernels/backend.h"

namespace dpt {

std::unique_ptr<RangeNormsOp> make_cpu_range_norms(std::span<const Range> ranges);

}  // namespace dpt
