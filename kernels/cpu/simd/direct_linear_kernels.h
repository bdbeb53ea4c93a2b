// Direct linear layer. No operand is packed or transposed. The forward pass computes dot products
// over the contiguous `in` of both operands, and both backward products have lanes over `in`. Batch
// 1 has wider tiles, because a single row has too few accumulators.
#pragma once

#include "kernels/cpu/simd/direct_tile.h"
#include "kernels/cpu/simd/linear_table.h"

namespace dpt::direct {

/// Number of vectors in a tile of a single row.
inline constexpr int kSingleRow = 8;
/// Size in floats of a block of x that stays in the first-level cache while the weights stream
/// past.
inline constexpr std::int64_t kBlockFloats = 6400;

/// Computes y of R samples x N outputs.
template <class V, int R, int N>
void linear_forward_tile(const Linear& l, const float* x, const float* weight, const float* bias,
                         float* y) {
  V acc[R][N];
  const float* a[R];
  const float* b[N];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    a[r] = x + r * l.in;
#pragma GCC unroll 8
    for (int j = 0; j < N; ++j) acc[r][j] = V::zero();
  }
#pragma GCC unroll 8
  for (int j = 0; j < N; ++j) b[j] = weight + j * l.in;
  accumulate_dots<V, R, N>(acc, a, b, l.in);
#pragma GCC unroll 8
  for (int j = 0; j < N; ++j) {
    const float shift = l.bias ? bias[j] : 0.0F;
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const float sum = acc[r][j].sum() + shift;
      y[r * l.out + j] = l.relu && sum <= 0 ? 0.0F : sum;
    }
  }
}

template <class V>
void linear_forward(const Linear& l, const LinearArgs& args) {
  if (l.batch == 1) {
    std::int64_t o = 0;
    for (; o + kSingleRow <= l.out; o += kSingleRow) {
      linear_forward_tile<V, 1, kSingleRow>(l, args.x, args.weight + o * l.in, args.bias + o,
                                            args.y + o);
    }
    for (; o < l.out; ++o) {
      linear_forward_tile<V, 1, 1>(l, args.x, args.weight + o * l.in, args.bias + o, args.y + o);
    }
    return;
  }
  const Split outputs(l.out, kMaxVectors);
  const std::int64_t fit = kBlockFloats / l.in;
  const Split blocks(l.batch, fit > 4 ? fit : 4);
  for (std::int64_t block = 0; block < blocks.parts; ++block) {
    for (std::int64_t t = 0; t < outputs.parts; ++t) {
      const std::int64_t o = outputs.begin(t), wide = outputs.size(t);
      const Split rows(blocks.size(block), most_rows<V>(wide));
      for (std::int64_t p = 0; p < rows.parts; ++p) {
        const std::int64_t n = blocks.begin(block) + rows.begin(p);
        with_tile<V>(rows.size(p), wide, [&]<int R, int N>() {
          linear_forward_tile<V, R, N>(l, args.x + n * l.in, args.weight + o * l.in, args.bias + o,
                                       args.y + n * l.out + o);
        });
      }
    }
  }
}

/// Masks dy by ReLU in place, and computes dbias.
template <class V>
void linear_bias_gradient(const Linear& l, const LinearArgs& args) {
  for (std::int64_t o = 0; o < l.out; o += V::kLanes) {
    const std::int64_t left = l.out - o;
    const auto mask = V::first(left < V::kLanes ? left : V::kLanes);
    V sum = V::zero();
    for (std::int64_t n = 0; n < l.batch; ++n) {
      const std::int64_t at = n * l.out + o;
      V g = V::load(args.dy + at, mask);
      if (l.relu) {
        g = g.keep_positive(V::load(args.y + at, mask));
        g.store(args.dy + at, mask);
      }
      sum = sum + g;
    }
    if (!l.bias) continue;
    if (args.add) sum = V::load(args.dbias + o, mask) + sum;
    sum.store(args.dbias + o, mask);
  }
}

/// Computes to[r][j-th vector] = or += sum over i < k of a[r][i * a_step] b[i * b_step + ...], for
/// both products of the backward pass. a_row and to_row are the distances between rows of `a` and
/// `to`.
template <class V, int R, int N, bool kWhole>
void product_tile(const float* a, std::int64_t a_row, std::int64_t a_step, const float* b,
                  std::int64_t b_step, std::int64_t k, float* to, std::int64_t to_row, bool add,
                  typename V::Mask mask) {
  V acc[R][N];
  const float* rows[R];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    rows[r] = a + r * a_row;
#pragma GCC unroll 8
    for (int j = 0; j < N; ++j) acc[r][j] = V::zero();
  }
  if constexpr (kWhole) {
    accumulate<V, R, N>(acc, rows, a_step, b, b_step, k);
  } else {
    accumulate_masked<V, R, N>(acc, rows, a_step, b, b_step, k, mask);
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int j = 0; j < N; ++j) {
      float* at = to + r * to_row + j * V::kLanes;
      if (kWhole || j + 1 < N) {
        (add ? V::load(at) + acc[r][j] : acc[r][j]).store(at);
      } else {
        (add ? V::load(at, mask) + acc[r][j] : acc[r][j]).store(at, mask);
      }
    }
  }
}

/// Computes a product of any size: `rows` rows of a and `to`, `columns` columns of b and `to`.
template <class V>
void product(std::int64_t rows, std::int64_t columns, const float* a, std::int64_t a_row,
             std::int64_t a_step, const float* b, std::int64_t b_step, std::int64_t k, float* to,
             std::int64_t to_row, bool add) {
  std::int64_t first = 0;
  if (rows == 1) {
    constexpr std::int64_t kWide = kSingleRow * V::kLanes;
    for (; first + kWide <= columns; first += kWide) {
      product_tile<V, 1, kSingleRow, true>(a, a_row, a_step, b + first, b_step, k, to + first,
                                           to_row, add, V::first(V::kLanes));
    }
  }
  const Split tiles((columns - first + V::kLanes - 1) / V::kLanes, kMaxVectors);
  for (std::int64_t t = 0; t < tiles.parts; ++t) {
    const std::int64_t column = first + tiles.begin(t) * V::kLanes, wide = tiles.size(t);
    const std::int64_t left = columns - column - (wide - 1) * V::kLanes;
    const auto mask = V::first(left < V::kLanes ? left : V::kLanes);
    const Split parts(rows, most_rows<V>(wide));
    for (std::int64_t p = 0; p < parts.parts; ++p) {
      const float* from = a + parts.begin(p) * a_row;
      float* at = to + parts.begin(p) * to_row + column;
      with_tile<V>(parts.size(p), wide, [&]<int R, int N>() {
        if (left >= V::kLanes) {
          product_tile<V, R, N, true>(from, a_row, a_step, b + column, b_step, k, at, to_row, add,
                                      mask);
        } else {
          product_tile<V, R, N, false>(from, a_row, a_step, b + column, b_step, k, at, to_row, add,
                                       mask);
        }
      });
    }
  }
}

template <class V>
void linear_backward(const Linear& l, const LinearArgs& args) {
  linear_bias_gradient<V>(l, args);
  // dw: rows are outputs; the sum is over samples, one block of samples at a time.
  constexpr std::int64_t kSamples = 128;
  const Split blocks(l.batch, kSamples);
  for (std::int64_t block = 0; block < blocks.parts; ++block) {
    const std::int64_t n = blocks.begin(block);
    product<V>(l.out, l.in, args.dy + n * l.out, 1, l.out, args.x + n * l.in, l.in,
               blocks.size(block), args.dweight, l.in, args.add || block > 0);
  }
  // dx: rows are samples; the sum is over outputs.
  if (l.input_gradient) {
    product<V>(l.batch, l.in, args.dy, l.out, 1, args.weight, l.in, l.out, args.dx, l.in, false);
  }
}

}  // namespace dpt::direct
