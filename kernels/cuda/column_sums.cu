// Column sums of a matrix on a GPU. Each block adds up some rows of some columns. If several blocks
// share a column, the last of them adds their sums. The partition and the order of additions depend
// only on the shape.
#include "kernels/cuda/column_sums.h"

#include "kernels/cuda/runtime/is_last_block.h"
#include "kernels/cuda/runtime/pack.h"
#include "kernels/cuda/runtime/row_cut.cuh"

namespace dpt {
namespace {

/// Source that loads numbers unchanged.
template <class T>
struct Plain {
  const T* x;

  template <int kWidth>
  __device__ Pack<T, kWidth> load(std::int64_t i) const {
    return load_pack<kWidth>(x + i);
  }
};

/// Source that loads gradients x of a ReLU's output y, masks them, and writes them back to x.
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

/// Computes the column sums. If `out` is null, stores no sums, but still loads all of the source,
/// because loading may modify its memory.
template <class Source, int kWidth>
__global__ void __launch_bounds__(kCutThreads)
    column_sums_kernel(Cut cut, Source source, std::int64_t rows, std::int64_t columns, float* out,
                       bool add, float* partials, unsigned* counters) {
  const CutPlace at(cut, columns);
  const std::int64_t begin = at.chunk * cut.rows_per_chunk;
  Pack<float, kWidth> sum = {};
  if (at.works) {
    sum = sum_rows<kWidth>(source, at.column, columns, begin + at.lane,
                           min(begin + cut.rows_per_chunk, rows), cut.lanes);
  }
  if (!out) return;
  sum = sum_lanes<kWidth>(sum, cut.packs, cut.lanes);
  if (cut.chunks > 1) {
    if (at.works && at.lane == 0) {
      store_pack<kWidth>(partials + at.chunk * columns + at.column, sum);
    }
    if (!is_last_block(counters + at.tile, cut.chunks)) return;
    sum = {};
    if (at.works) {
      sum = sum_rows<kWidth>(Plain<float>{partials}, at.column, columns, at.lane, cut.chunks,
                             cut.lanes);
    }
    sum = sum_lanes<kWidth>(sum, cut.packs, cut.lanes);
  }
  if (!at.works || at.lane != 0) return;
  for (int c = 0; c < kWidth; ++c) {
    float& to = out[at.column + c];
    to = add ? to + sum.v[c] : sum.v[c];
  }
}

template <class Source>
void launch_column_sums(const CudaContext& context, const Source& source, std::int64_t rows,
                        std::int64_t columns, DevPtr out, GradWrite write, DevPtr scratch) {
  if (columns < 1) return;
  const Cut cut = make_cut(rows, columns, 4);
  const auto kernel = cut.width == 4   ? column_sums_kernel<Source, 4>
                      : cut.width == 2 ? column_sums_kernel<Source, 2>
                                       : column_sums_kernel<Source, 1>;
  launch(kernel, cut.tiles * cut.chunks, kCutThreads, 0, context.stream, cut, source, rows, columns,
         device<float>(out), write == GradWrite::add, device<float>(scratch),
         block_counters(context));
}

}  // namespace

std::size_t column_sums_scratch(const CudaContext&, std::int64_t rows, std::int64_t columns) {
  const Cut cut = make_cut(rows, columns, 4);
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
