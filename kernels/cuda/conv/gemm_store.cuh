// Converts sums to y or dx and stores them: bias, ReLU, pooling, types.
//
// `sums` provides pairs of neighbouring columns: sums.for_pairs(use) calls use(row, column, left,
// right) in all lanes of a warp alike.
#pragma once

#include "kernels/cuda/conv/gemm_operands.cuh"

namespace dpt::gemm {

__device__ inline float relu(float value) {
  return value <= 0 ? 0 : value;  // NaN stays NaN.
}

/// Stores one or two neighbours in the type of the tensor.
__device__ inline void store_pair(float* to, float first, float second) {
  *reinterpret_cast<float2*>(to) = {first, second};
}
__device__ inline void store_pair(Bf16* to, float first, float second) {
  *reinterpret_cast<std::uint32_t*>(to) =
      to_bf16(first).bits | static_cast<std::uint32_t>(to_bf16(second).bits) << 16;
}

/// Stores y or dx: `pixel_of` returns the position of a row, `first` is the first column.
template <class Element, class Sums, class PixelOf>
__device__ inline void store_activations(const ConvGemm& g, int group, const PixelOf& pixel_of,
                                         int first, const Sums& sums) {
  auto* out = static_cast<Element*>(g.out);
  sums.for_pairs([&](int row, int column, float left, float right) {
    const Place pixel = pixel_of(row);
    column += first;
    if (pixel.h == kNowhere || column >= g.columns) return;
    const bool both = column + 1 < g.columns;
    if (g.bias) {
      const float* bias = g.bias + group * g.columns + column;
      left += bias[0];
      if (both) right += bias[1];
    }
    if (g.relu) {
      left = relu(left);
      right = relu(right);
    }
    Element* to = out + pixel.extra + static_cast<std::uint32_t>(column);
    if (g.pairs && both) {
      store_pair(to, left, right);
    } else {
      store(to[0], left);
      if (both) store(to[1], right);
    }
  });
}

/// Pooled value of a window and the window's byte of ConvArgs::open, the same in all four lanes of
/// the window. The neighbour along w is kApart lanes away, the neighbour along h twice as far. As
/// in the other poolings, the first of equal maxima wins, and the last of several NaNs.
struct PooledValue {
  float value;
  unsigned open;
};
template <unsigned kApart>
__device__ inline PooledValue pool_window(const ConvGemm& g, float value, int corner) {
  constexpr unsigned kAll = 0xFFFFFFFFU;
  const auto is_open = [&](float x) { return !(g.relu && x <= 0); };
  if (!g.pool.max) {
    unsigned open = is_open(value) ? 1U << corner : 0;
    float sum = g.relu ? relu(value) : value;
    sum += __shfl_xor_sync(kAll, sum, kApart);
    sum += __shfl_xor_sync(kAll, sum, 2 * kApart);
    open |= __shfl_xor_sync(kAll, open, kApart);
    open |= __shfl_xor_sync(kAll, open, 2 * kApart);
    return {sum * g.pool.scale, open};
  }
  int where = corner;
#pragma unroll
  for (int side = 1; side <= 2; ++side) {
    const unsigned apart = static_cast<unsigned>(side) * kApart;
    const float other = __shfl_xor_sync(kAll, value, apart);
    const int other_where = __shfl_xor_sync(kAll, where, apart);
    const bool later = (corner & side) != 0;
    const float first = later ? other : value, second = later ? value : other;
    const bool second_wins = second > first || second != second;
    where = second_wins == later ? where : other_where;
    value = second_wins ? second : first;
  }
  return {g.relu ? relu(value) : value, is_open(value) ? 1U << where : 0};
}

/// Stores the pooled y and its mask bytes; the parameters are those of store_activations.
template <class Element, class Sums, class PixelOf>
__device__ inline void store_pooled(const ConvGemm& g, int group, const PixelOf& pixel_of,
                                    int first, const Sums& sums) {
  auto* out = static_cast<Element*>(g.out);
  sums.for_pairs([&](int row, int column, float left, float right) {
    const Place pixel = pixel_of(row);
    const int corner = window_corner(row);
    column += first;
    const bool one = column < g.columns, both = column + 1 < g.columns;
    if (g.bias) {
      const float* bias = g.bias + group * g.columns + column;
      if (one) left += bias[0];
      if (both) right += bias[1];
    }
    // All lanes of a warp exchange values before any of them returns.
    const PooledValue a = pool_window<Sums::kLanesApart>(g, left, corner);
    const PooledValue b = pool_window<Sums::kLanesApart>(g, right, corner);
    if (corner != 0 || pixel.h == kNowhere || !one) return;
    const std::uint32_t at = pixel.extra + static_cast<std::uint32_t>(column);
    std::uint8_t* open = g.pool.open ? g.pool.open + at : nullptr;
    if (g.pairs && both) {
      store_pair(out + at, a.value, b.value);
      if (open) *reinterpret_cast<std::uint16_t*>(open) = a.open | b.open << 8;
    } else {
      store(out[at], a.value);
      if (both) store(out[at + 1], b.value);
      if (open) open[0] = static_cast<std::uint8_t>(a.open);
      if (open && both) open[1] = static_cast<std::uint8_t>(b.open);
    }
  });
}

}  // namespace dpt::gemm
