// The order in which every backend adds up the squares of a range (RangeNormsOp), so that the norm
// has the same bits everywhere. A range is partitioned into tiles. Element i of a tile is added to
// lane i % kNormLanes. Then the lanes of each group of kNormGroup lanes are added by halving. Then
// the groups are added one after the other, and at last the tiles one after the other. All sums are
// in double, in which the square of a float is exact.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/base/host_device.h"

namespace dpt {

inline constexpr int kNormLanes = 256;  ///< threads of a GPU block
inline constexpr int kNormGroup = 32;   ///< threads of a warp
inline constexpr std::int64_t kNormTile = std::int64_t{64} * kNormLanes;

DPT_HOST_DEVICE inline double exact_square(float value) {
  return static_cast<double>(value) * static_cast<double>(value);
}

DPT_HOST_DEVICE inline float norm_of_squares(double sum) {
  return static_cast<float>(sqrt(sum));
}

}  // namespace dpt
