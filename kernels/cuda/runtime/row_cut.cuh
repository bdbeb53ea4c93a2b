// Partition of a matrix for sums over its rows: which block and thread adds which elements. The
// partition depends only on the shape, and so does the order of additions. For .cu files only.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/runtime/context.h"
#include "kernels/cuda/runtime/is_last_block.h"
#include "kernels/cuda/runtime/pack.h"

namespace dpt {

inline constexpr int kCutThreads = 256;  ///< threads of a block

/// Partition of a matrix into tiles of columns and chunks of rows. There is a block for each pair
/// of a tile and a chunk. In a block, each thread has a pack of neighbouring columns and every
/// `lanes`-th row of the chunk.
struct Cut {
  int width;  ///< columns per pack
  int packs;  ///< packs per tile
  int lanes;  ///< rows processed at a time
  unsigned tiles, chunks;
  std::int64_t rows_per_chunk;
};

/// Returns the partition of a matrix. A pack has at most `max_width` columns, a power of two.
inline Cut make_cut(std::int64_t rows, std::int64_t columns, int max_width) {
  Cut cut = {};
  cut.width = max_width;
  while (columns % cut.width != 0) cut.width /= 2;
  const std::int64_t packs = columns / cut.width;
  // Use tiles of at most 64 packs, as equal as possible: 1 KiB of a row is read at once.
  cut.tiles = static_cast<unsigned>((packs + 63) / 64);
  cut.packs = static_cast<int>(ceil_div(packs, cut.tiles));
  cut.lanes = kCutThreads / cut.packs;
  // Use enough blocks for a large GPU, but give each enough rows to justify handing over its sums.
  const std::int64_t min_rows = std::int64_t{16} * cut.lanes;
  const std::int64_t most_chunks = std::max<std::int64_t>(1, 512 / cut.tiles);
  const std::int64_t chunks =
      cut.tiles > kBlockCounters
          ? 1
          : std::clamp<std::int64_t>(ceil_div(rows, min_rows), 1, most_chunks);
  cut.rows_per_chunk = ceil_div(rows, chunks);
  cut.chunks = static_cast<unsigned>(std::max<std::int64_t>(1, ceil_div(rows, cut.rows_per_chunk)));
  return cut;
}

/// Returns the sum over the lanes of a block, by halving; valid in lane 0.
template <int kWidth>
__device__ inline Pack<float, kWidth> sum_lanes(Pack<float, kWidth> mine, int packs, int lanes) {
  __shared__ Pack<float, kWidth> sums[kCutThreads];
  const int thread = static_cast<int>(threadIdx.x);
  __syncthreads();
  sums[thread] = mine;
  for (int left = lanes; left > 1;) {
    const int half = (left + 1) / 2;
    __syncthreads();
    if (thread < (left - half) * packs) {
      const Pack<float, kWidth> other = sums[thread + half * packs];
      for (int c = 0; c < kWidth; ++c) mine.v[c] += other.v[c];
      sums[thread] = mine;
    }
    left = half;
  }
  return mine;
}

/// Place of a thread in the partition. Block i has tile i / chunks and chunk i % chunks.
struct CutPlace {
  unsigned tile, chunk;
  int lane;
  std::int64_t column;  ///< first column of the thread's pack
  bool works;           ///< false for a thread without columns

  __device__ CutPlace(const Cut& cut, std::int64_t columns)
      : tile(blockIdx.x / cut.chunks),
        chunk(blockIdx.x % cut.chunks),
        lane(static_cast<int>(threadIdx.x) / cut.packs),
        column((static_cast<std::int64_t>(tile) * cut.packs +
                static_cast<int>(threadIdx.x) % cut.packs) *
               cut.width),
        works(lane < cut.lanes && column < columns) {}
};

}  // namespace dpt
