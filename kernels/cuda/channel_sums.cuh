// Several sums per column of a matrix at once: the gradients of the parameters of a normalisation
// or a scale. Rows are partitioned into chunks that depend only on the shape, and the chunks' sums
// are added in order. For .cu files only.
#pragma once

#include <algorithm>

#include "kernels/cuda/runtime/block_sum.h"
#include "kernels/cuda/runtime/context.h"
#include "kernels/cuda/runtime/launch.h"

namespace dpt {

// Number of columns of a block, and number of rows that it processes at a time.
inline constexpr int kSumColumns = 32, kSumLanes = 8;

/// Partition of the rows into chunks.
struct RowChunks {
  std::int64_t rows = 0, columns = 0;
  std::int64_t per_chunk = 0;
  int count = 0;

  std::size_t scratch_bytes(int sums) const {
    return static_cast<std::size_t>(count * sums * columns) * sizeof(float);
  }
};

inline RowChunks make_row_chunks(std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t kMinRows = 64, kMaxChunks = 256;
  RowChunks chunks;
  chunks.rows = rows;
  chunks.columns = columns;
  const std::int64_t wanted = std::clamp<std::int64_t>(ceil_div(rows, kMinRows), 1, kMaxChunks);
  chunks.per_chunk = ceil_div(rows, wanted);
  chunks.count = static_cast<int>(ceil_div(rows, chunks.per_chunk));
  return chunks;
}

/// Returns the sum over a block's lanes, in order; valid in lane 0.
__device__ inline float sum_of_lanes(float mine) {
  __shared__ float sums[kSumLanes][kSumColumns];
  __syncthreads();
  sums[threadIdx.y][threadIdx.x] = mine;
  __syncthreads();
  float total = 0;
  if (threadIdx.y == 0) {
    for (int lane = 0; lane < kSumLanes; ++lane) total += sums[lane][threadIdx.x];
  }
  return total;
}

/// Computes the sums of every chunk: (chunk, kSums, columns).
template <int kSums, class Terms>
__global__ void __launch_bounds__(kSumColumns* kSumLanes)
    chunk_sums_kernel(RowChunks chunks, Terms terms, float* partials) {
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kSumColumns + threadIdx.x;
  const bool works = column < chunks.columns;
  const std::int64_t chunk = blockIdx.y;
  float sums[kSums] = {};
  if (works) {
    const std::int64_t begin = chunk * chunks.per_chunk;
    const std::int64_t end = min(begin + chunks.per_chunk, chunks.rows);
    for (std::int64_t row = begin + threadIdx.y; row < end; row += kSumLanes) {
      terms.add(row, column, sums);
    }
  }
  for (int s = 0; s < kSums; ++s) {
    const float sum = sum_of_lanes(sums[s]);
    if (works && threadIdx.y == 0) partials[(chunk * kSums + s) * chunks.columns + column] = sum;
  }
}

/// Sets out[column] to the sum with index `which` (of `sums`) over all chunks, or adds it if `add`.
__global__ inline void __launch_bounds__(256)
    sum_chunks_kernel(RowChunks chunks, int sums, int which, const float* partials, float* out,
                      bool add) {
  const std::int64_t column = global_thread();
  if (column >= chunks.columns) return;
  float total = 0;
  for (std::int64_t chunk = 0; chunk < chunks.count; ++chunk) {
    total += partials[(chunk * sums + which) * chunks.columns + column];
  }
  out[column] = add ? out[column] + total : total;
}

/// Computes one sum over all chunks and columns, from one sum per column. Runs in one block.
__global__ inline void __launch_bounds__(256)
    sum_all_kernel(RowChunks chunks, const float* partials, float* out, bool add) {
  double mine = 0;
  for (std::int64_t i = threadIdx.x; i < chunks.count * chunks.columns; i += 256) {
    mine += static_cast<double>(partials[i]);
  }
  const auto total = static_cast<float>(block_sum<256>(mine));
  if (threadIdx.x == 0) *out = add ? *out + total : total;
}

/// Queues the sums of every chunk. terms.add(row, column, float[kSums]) adds one row's terms.
template <int kSums, class Terms>
void queue_chunk_sums(const CudaContext& context, const RowChunks& chunks, const Terms& terms,
                      DevPtr scratch) {
  const dim3 grid(static_cast<unsigned>(ceil_div(chunks.columns, std::int64_t{kSumColumns})),
                  static_cast<unsigned>(chunks.count));
  launch(chunk_sums_kernel<kSums, Terms>, grid, dim3(kSumColumns, kSumLanes), 0, context.stream,
         chunks, terms, device<float>(scratch));
}

/// Queues the sum of the chunks' sums; does nothing if `out` is null.
inline void queue_add_chunks(const CudaContext& context, const RowChunks& chunks, int sums,
                             int which, DevPtr scratch, DevPtr out, GradWrite write) {
  if (!out) return;
  launch(sum_chunks_kernel, blocks_for(chunks.columns, 256, chunks.columns), 256, 0, context.stream,
         chunks, sums, which, device<const float>(scratch), device<float>(out),
         write == GradWrite::add);
}

}  // namespace dpt
