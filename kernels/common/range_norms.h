// The order in which every backend adds up the squares of a range (RangeNormsOp), so that the norm
// has the same bits on all of them. A range is cut into tiles. Element i of a tile goes to lane
// i % kNormLanes; the lanes of each group of kNormGroup are added in halves, then the groups one
// after the other; then the tiles one after the other. All in double, where the square of a float
// is exact.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/base/host_device.h"

namespace dpt {

inline constexpr int kNormLanes = 256;  ///< the threads of a block on a GPU
inline constexpr int kNormGroup = 32;   ///< those of a warp
inline constexpr std::int64_t kNormTile = std::int64_t{64} * kNormLanes;

DPT_HOST_DEVICE inline double exact_square(float value) {
  return static_cast<double>(value) * static_cast<double>(value);
}

DPT_HOST_DEVICE inline float norm_of_squares(double sum) {
  return static_cast<float>(sqrt(sum));
}

}  // namespace dpt
