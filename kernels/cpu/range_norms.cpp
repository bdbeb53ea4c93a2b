#include "kernels/cpu/range_norms.h"

#include <algorithm>
#include <vector>

#include "kernels/common/range_norms.h"
#include "kernels/cpu/check.h"

namespace dpt {
namespace {

/// Returns the sum of the squares of a tile.
double tile_sum(const float* values, std::int64_t count) {
  double lanes[kNormLanes] = {};
  std::int64_t i = 0;
  for (; i + kNormLanes <= count; i += kNormLanes) {
    for (int lane = 0; lane < kNormLanes; ++lane) lanes[lane] += exact_square(values[i + lane]);
  }
  for (; i < count; ++i) lanes[i % kNormLanes] += exact_square(values[i]);
  double sum = 0;
  for (int group = 0; group < kNormLanes; group += kNormGroup) {
    for (int half = kNormGroup / 2; half > 0; half /= 2) {
      for (int j = group; j < group + half; ++j) lanes[j] += lanes[j + half];
    }
    sum += lanes[group];
  }
  return sum;
}

class CpuRangeNorms final : public RangeNormsOp {
 public:
  explicit CpuRangeNorms(std::span<const Range> ranges) : ranges_(ranges.begin(), ranges.end()) {}

  void run(DevPtr values, DevPtr norms) override {
    const float* all = host(values);
    float* to = host(norms);
    for (const Range& range : ranges_) {
      double sum = 0;
      for (std::int64_t begin = range.begin; begin < range.end; begin += kNormTile) {
        sum += tile_sum(all + begin, std::min(kNormTile, range.end - begin));
      }
      *to++ = norm_of_squares(sum);
    }
  }

 private:
  std::vector<Range> ranges_;
};

}  // namespace

std::unique_ptr<RangeNormsOp> make_cpu_range_norms(std::span<const Range> ranges) {
  return std::make_unique<CpuRangeNorms>(ranges);
}

}  // namespace dpt
