// The 2-norms of ranges on a GPU, in the order of kernels/common/range_norms.h: a block adds up a
// tile, then a thread adds up the tiles of a range.
#include "kernels/cuda/range_norms.h"

#include <algorithm>
#include <vector>

#include "kernels/common/range_norms.h"
#include "kernels/cuda/runtime/block_sum.h"
#include "kernels/cuda/runtime/launch.h"

namespace dpt {
namespace {

/// Indices of the tiles of a range.
struct NormTiles {
  int first, count;
};

__global__ void __launch_bounds__(kNormLanes)
    tile_squares_kernel(const float* values, const Range* tiles, int tile_count, double* sums) {
  for (int t = static_cast<int>(blockIdx.x); t < tile_count; t += static_cast<int>(gridDim.x)) {
    const Range tile = tiles[t];
    double sum = 0;
    for (std::int64_t i = tile.begin + threadIdx.x; i < tile.end; i += kNormLanes) {
      sum += exact_square(values[i]);
    }
    sum = block_sum<kNormLanes>(sum);
    if (threadIdx.x == 0) sums[t] = sum;
  }
}

__global__ void __launch_bounds__(kNormLanes)
    range_norms_kernel(const NormTiles* ranges, int range_count, const double* sums, float* norms) {
  const std::int64_t r = global_thread();
  if (r >= range_count) return;
  const NormTiles range = ranges[r];
  double sum = 0;
  for (int t = range.first; t < range.first + range.count; ++t) sum += sums[t];
  norms[r] = norm_of_squares(sum);
}

class CudaRangeNorms final : public RangeNormsOp {
 public:
  CudaRangeNorms(DeviceQueue& queue, const CudaContext& context, std::span<const Range> ranges)
      : context_(context) {
    std::vector<Range> tiles;
    std::vector<NormTiles> of_ranges;
    for (const Range& range : ranges) {
      const int first = static_cast<int>(tiles.size());
      for (std::int64_t begin = range.begin; begin < range.end; begin += kNormTile) {
        tiles.push_back({begin, std::min(begin + kNormTile, range.end)});
      }
      of_ranges.push_back({first, static_cast<int>(tiles.size()) - first});
    }
    tile_count_ = static_cast<int>(tiles.size());
    range_count_ = static_cast<int>(of_ranges.size());
    if (tile_count_ == 0) return;
    tiles_ = uploaded(queue, tiles);
    ranges_ = uploaded(queue, of_ranges);
    sums_ = queue.allocate(tiles.size() * sizeof(double), kWhat);
    queue.synchronize();  // the lists must outlive the copies
  }

  void run(DevPtr values, DevPtr norms) override {
    if (tile_count_ == 0) return;
    const std::int64_t most = std::int64_t{8} * context_.multiprocessors;
    launch(tile_squares_kernel, blocks_for(tile_count_, 1, most), kNormLanes, 0, context_.stream,
           device<const float>(values), device<const Range>(tiles_.ptr()), tile_count_,
           device<double>(sums_.ptr()));
    launch(range_norms_kernel, blocks_for(range_count_, kNormLanes), kNormLanes, 0, context_.stream,
           device<const NormTiles>(ranges_.ptr()), range_count_, device<const double>(sums_.ptr()),
           device<float>(norms));
  }

 private:
  static constexpr const char* kWhat = "the norms of parameters";

  template <class T>
  static DeviceMemory uploaded(DeviceQueue& queue, const std::vector<T>& values) {
    DeviceMemory memory = queue.allocate(values.size() * sizeof(T), kWhat);
    queue.upload(memory.ptr(), values.data(), memory.bytes());
    return memory;
  }

  const CudaContext& context_;
  DeviceMemory tiles_, ranges_, sums_;
  int tile_count_ = 0, range_count_ = 0;
};

}  // namespace

std::unique_ptr<RangeNormsOp> make_cuda_range_norms(DeviceQueue& queue, const CudaContext& context,
                                                    std::span<const Range> ranges) {
  return std::make_unique<CudaRangeNorms>(queue, context, ranges);
}

}  // namespace dpt
