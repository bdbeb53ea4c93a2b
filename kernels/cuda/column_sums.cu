// Column sums of a matrix on a GPU. A block adds some rows of some columns. If several blocks share
// a column, the last of them adds their sums. The partition and the order of additions depend only
// on the shape.
#include "kernels/cuda/column_sums.h"

#include <algorithm>

#include "kernels/cuda/runtime/is_last_block.h"
#include "kernels/cuda/runtime/pack.h"

namespace dpt {
namespace {

constexpr int kThreads = 256;

/// Partition of a matrix into tiles of columns and chunks of rows, with a block for each pair. In a
/// block, each thread has a pack of neighbouring columns and every `lanes`-th row of the chunk.
struct Cut {
  int width;  ///< columns per pack
  int packs;  ///< packs per tile
  int lanes;  ///< rows processed at a time
  unsigned tiles, chunks;
  std::int64_t rows_per_chunk;
};

Cut make_cut(std::int64_t rows, std::int64_t columns) {
  Cut cut = {};
  cut.width = columns % 4 == 0 ? 4 : columns % 2 == 0 ? 2 : 1;
  const std::int64_t packs = columns / cut.width;
  // Use tiles of at most 64 packs, as equal as possible: 1 KiB of a row is read at once.
  cut.tiles = static_cast<unsigned>((packs + 63) / 64);
  cut.packs = static_cast<int>(ceil_div(packs, cut.tiles));
  cut.lanes = kThreads / cut.packs;
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

/// Source that loads numbers unchanged.
template <class T>
struct Plain {
  const T* x;

  template <int kWidth>
  __device__ Pack<T, kWidth> load(std::int64_t i) const {
    return load_pack<kWidth>(x + i);
  }
};

/// Source of the gradients x before a ReLU with output y; writes them back as it loads them.
template <class T>
struct BeforeRelu {
  T* x;
  const T* y;

  template <int kWidth>
  __device__ Pack<T, kWidth> load(std::int64_t i) const {
    auto values = load_pack<kWidth>(x + i);
    const auto outputs = load_pack<kWidth>(y + i);
    for (int c = 0; c < kWidth; ++c) {
      if (to_float(outputs.v[c]) <= 0.0F) values.v[c] = T{};
    }
    store_pack<kWidth>(x + i, values);
    return values;
  }
};

/// Returns the sum of a thread's column pack over rows first, first + lanes, ... below end.
template <int kWidth, class Source>
__device__ inline Pack<float, kWidth> sum_rows(const Source& source, std::int64_t column,
                                               std::int64_t columns, std::int64_t first,
                                               std::int64_t end, int lanes) {
  // Use two sums, so that additions need not wait for each other.
  Pack<float, kWidth> even = {}, odd = {};
  std::int64_t row = first;
#pragma unroll 2
  for (; row + lanes < end; row += 2 * lanes) {
    const auto a = source.template load<kWidth>(row * columns + column);
    const auto b = source.template load<kWidth>((row + lanes) * columns + column);
    for (int c = 0; c < kWidth; ++c) {
      even.v[c] += to_float(a.v[c]);
      odd.v[c] += to_float(b.v[c]);
    }
  }
  if (row < end) {
    const auto a = source.template load<kWidth>(row * columns + column);
    for (int c = 0; c < kWidth; ++c) even.v[c] += to_float(a.v[c]);
  }
  for (int c = 0; c < kWidth; ++c) even.v[c] += odd.v[c];
  return even;
}

/// Returns the sum over the lanes of a block, by halving; valid in lane 0.
template <int kWidth>
__device__ inline Pack<float, kWidth> sum_lanes(Pack<float, kWidth> mine, int packs, int lanes) {
  __shared__ Pack<float, kWidth> sums[kThreads];
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

/// Computes the column sums. If `out` is null, stores no sums, but still loads all of the source,
/// which may modify its memory.
template <class Source, int kWidth>
__global__ void __launch_bounds__(kThreads)
    column_sums_kernel(Cut cut, Source source, std::int64_t rows, std::int64_t columns, float* out,
                       bool add, float* partials, unsigned* counters) {
  const unsigned tile = blockIdx.x / cut.chunks, chunk = blockIdx.x % cut.chunks;
  const int lane = static_cast<int>(threadIdx.x) / cut.packs;
  const std::int64_t column =
      (static_cast<std::int64_t>(tile) * cut.packs + static_cast<int>(threadIdx.x) % cut.packs) *
      kWidth;
  const bool works = lane < cut.lanes && column < columns;
  const std::int64_t begin = chunk * cut.rows_per_chunk;
  Pack<float, kWidth> sum = {};
  if (works) {
    sum = sum_rows<kWidth>(source, column, columns, begin + lane,
                           min(begin + cut.rows_per_chunk, rows), cut.lanes);
  }
  if (!out) return;
  sum = sum_lanes<kWidth>(sum, cut.packs, cut.lanes);
  if (cut.chunks > 1) {
    if (works && lane == 0) store_pack<kWidth>(partials + chunk * columns + column, sum);
    if (!is_last_block(counters + tile, cut.chunks)) return;
    sum = {};
    if (works) {
      sum = sum_rows<kWidth>(Plain<float>{partials}, column, columns, lane, cut.chunks, cut.lanes);
    }
    sum = sum_lanes<kWidth>(sum, cut.packs, cut.lanes);
  }
  if (!works || lane != 0) return;
  for (int c = 0; c < kWidth; ++c) {
    out[column + c] = add ? out[column + c] + sum.v[c] : sum.v[c];
  }
}

template <class Source>
void launch_column_sums(const CudaContext& context, const Source& source, std::int64_t rows,
                        std::int64_t columns, DevPtr out, GradWrite write, DevPtr scratch) {
  if (columns < 1) return;
  const Cut cut = make_cut(rows, columns);
  const auto kernel = cut.width == 4   ? column_sums_kernel<Source, 4>
                      : cut.width == 2 ? column_sums_kernel<Source, 2>
                                       : column_sums_kernel<Source, 1>;
  launch(kernel, cut.tiles * cut.chunks, kThreads, 0, context.stream, cut, source, rows, columns,
         device<float>(out), write == GradWrite::add, device<float>(scratch),
         block_counters(context));
}

}  // namespace

std::size_t column_sums_scratch(const CudaContext&, std::int64_t rows, std::int64_t columns) {
  const Cut cut = make_cut(rows, columns);
  if (cut.chunks == 1) return 0;
  return static_cast<std::size_t>(cut.chunks) * static_cast<std::size_t>(columns) * sizeof(float);
}

void column_sums(const CudaContext& context, DevPtr x, DType type, std::int64_t rows,
                 std::int64_t columns, DevPtr out, GradWrite write, DevPtr scratch) {
  if (type == DType::bf16) {
    launch_column_sums(context, Plain<Bf16>{device<const Bf16>(x)}, rows, columns, out, write,
                       scratch);
  } else {
    launch_column_sums(context, Plain<float>{device<const float>(x)}, rows, columns, out, write,
                       scratch);
  }
}

void relu_column_sums(const CudaContext& context, DevPtr x, DevPtr y, DType type, std::int64_t rows,
                      std::int64_t columns, DevPtr out, GradWrite write, DevPtr scratch) {
  if (type == DType::bf16) {
    launch_column_sums(context, BeforeRelu<Bf16>{device<Bf16>(x), device<const Bf16>(y)}, rows,
                       columns, out, write, scratch);
  } else {
    launch_column_sums(context, BeforeRelu<float>{device<float>(x), device<const float>(y)}, rows,
                       columns, out, write, scratch);
  }
}

}  // namespace dpt
