// The loops of an optimizer over flat buffers, for an instruction set (optimizer_avx2.h).
#pragma once

#include <cstdint>

#include "kernels/flat.h"

namespace dpt {

/// Buffers that a loop of an optimizer works on: elements from 0 on, all in host memory.
struct OptimizerBuffers {
  float* params = nullptr;
  const float* grads = nullptr;
  float* states[kMostOptimizerStates] = {};
};

/// Sums of the squares of what a layer-wise formula prepares, element i in sum i % 16: the same
/// additions in the same order for every width of vectors.
struct LayerSums {
  static constexpr int kLanes = 16;
  double a[kLanes] = {}, b[kLanes] = {};
};

/// The passes of a formula over the first elements of `buffers`, as many as fit whole vectors; they
/// return how many of `count` those are, and set `finite` to false when a value that they wrote is
/// not finite.
struct FormulaLoops {
  /// Null unless the formula is layer-wise.
  std::int64_t (*prepare)(const UpdateStep& step, float clip, const OptimizerBuffers& buffers,
                          std::int64_t count, LayerSums& sums, bool& finite);
  /// `ratio` is for layer-wise formulas.
  std::int64_t (*update)(const UpdateStep& step, float clip, float ratio,
                         const OptimizerBuffers& buffers, std::int64_t count, bool& finite);
};

}  // namespace dpt
