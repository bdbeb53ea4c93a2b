// Forward pass of a 3x3 convolution with stride 1 by Winograd's filtering F(4x4, 3x3): 36
// multiplications for sixteen outputs instead of 144. winograd_kernels.h explains the formula and
// its letters. Here the tiles d have 6x6 inputs, and the matrices are those of Lavin and Gray for
// the points 0, 1, -1, 2, -2. x, weights and y are bf16, and all arithmetic is fp32. The larger
// constants of these matrices make the error about ten times that of a direct sum in fp32. This is
// still far below the error of rounding y to bf16.
#pragma once

#include <cstdint>

#include "kernels/cpu/simd/winograd_kernels.h"

namespace dpt::winograd4 {

using direct::Conv;
using direct::ConvCall;
using direct::Split;
using winograd::element_step;
using winograd::Images;
using winograd::TileAt;
using winograd::Tiles;

inline constexpr int kSide = 4;   ///< side of a tile of outputs
inline constexpr int kInput = 6;  ///< side of a tile of inputs
inline constexpr int kTransformed = kInput * kInput;
inline constexpr winograd::TileSize kTileSize{kSide, kTransformed};

/// Computes B' d for one column of d.
template <class F>
[[gnu::always_inline]] inline void transform_input_line(const F (&d)[kInput], F (&to)[kInput]) {
  const F four = F::filled(4), minus_four = F::filled(-4), minus_five = F::filled(-5);
  const F even = F::fma(minus_four, d[2], d[4]), odd = F::fma(minus_four, d[1], d[3]);
  const F even2 = d[4] - d[2], odd2 = (d[3] - d[1]) * F::filled(2);
  to[0] = F::fma(four, d[0], F::fma(minus_five, d[2], d[4]));
  to[1] = even + odd;
  to[2] = even - odd;
  to[3] = even2 + odd2;
  to[4] = even2 - odd2;
  to[5] = F::fma(four, d[1], F::fma(minus_five, d[3], d[5]));
}

/// Computes A' m for one column of m.
template <class F>
[[gnu::always_inline]] inline void transform_output_line(const F (&m)[kInput], F (&to)[kSide]) {
  const F sum1 = m[1] + m[2], difference1 = m[1] - m[2];
  const F sum2 = m[3] + m[4], difference2 = m[3] - m[4];
  to[0] = m[0] + sum1 + sum2;
  to[1] = F::fma(F::filled(2), difference2, difference1);
  to[2] = F::fma(F::filled(4), sum2, sum1);
  to[3] = F::fma(F::filled(8), difference2, difference1) + m[5];
}

/// Computes G g for one column of g.
template <class F>
[[gnu::always_inline]] inline void transform_kernel_line(const F& g0, const F& g1, const F& g2,
                                                         F (&to)[kInput]) {
  const F even = (g0 + g2) * F::filled(-1.0F / 6), odd = g1 * F::filled(-1.0F / 6);
  const F even2 = F::fma(g0, F::filled(1.0F / 24), g2 * F::filled(1.0F / 6));
  const F odd2 = g1 * F::filled(1.0F / 12);
  to[0] = g0 * F::filled(0.25F);
  to[1] = even + odd;
  to[2] = even - odd;
  to[3] = even2 + odd2;
  to[4] = even2 - odd2;
  to[5] = g2;
}

/// Computes B' d B of one vector of channels; load(i, j) returns the pixel of row i and column j of
/// the tile. Elements are `step` floats apart.
template <class F, class Load>
[[gnu::always_inline]] inline void transform_input(const Load& load, float* to, std::int64_t step) {
  F t[kInput][kInput];
#pragma GCC unroll 6
  for (int j = 0; j < kInput; ++j) {
    const F d[kInput] = {load(0, j), load(1, j), load(2, j), load(3, j), load(4, j), load(5, j)};
    F column[kInput];
    transform_input_line(d, column);
#pragma GCC unroll 6
    for (int i = 0; i < kInput; ++i) t[i][j] = column[i];
  }
#pragma GCC unroll 6
  for (int i = 0; i < kInput; ++i) {
    F row[kInput];
    transform_input_line(t[i], row);
#pragma GCC unroll 6
    for (int j = 0; j < kInput; ++j) row[j].store(to + (i * kInput + j) * step);
  }
}

/// Computes B' d B for `count` tiles as to[element][tile][c]. The inputs of a tile begin pad_h rows
/// and pad_w columns before it. Pixels outside the image are read from `zeros` (c values).
template <class V>
void transform_inputs(const typename V::Value* x, const typename V::Value* zeros,
                      const Images& images, std::int64_t pad_h, std::int64_t pad_w, TileAt tile,
                      std::int64_t count, float* to) {
  using F = typename V::Floats;
  const std::int64_t h = images.h, w = images.w, c = images.c, row = w * c;
  const std::int64_t step = element_step(count, c);
  for (std::int64_t t = 0; t < count; ++t, to += c, tile.next()) {
    const std::int64_t top = tile.row - pad_h, left = tile.column - pad_w;
    const auto* from = x + images.at(tile.image, top, left);
    if (top >= 0 && left >= 0 && top + kInput <= h && left + kInput <= w) {
      for (std::int64_t k = 0; k < c; k += V::kLanes) {
        transform_input<F>([&](int i, int j) { return V::load(from + i * row + j * c + k); },
                           to + k, step);
      }
      continue;
    }
    const typename V::Value* pixels[kInput][kInput];
    for (int i = 0; i < kInput; ++i) {
      for (int j = 0; j < kInput; ++j) {
        const bool inside = top + i >= 0 && top + i < h && left + j >= 0 && left + j < w;
        pixels[i][j] = inside ? from + i * row + j * c : zeros;
      }
    }
    for (std::int64_t k = 0; k < c; k += V::kLanes) {
      transform_input<F>([&](int i, int j) { return V::load(pixels[i][j] + k); }, to + k, step);
    }
  }
}

/// Computes y = A' m A of `count` tiles, adds `bias` unless it is null, and applies ReLU if `relu`.
template <class V>
void transform_outputs(const float* m, const Images& images, TileAt tile, std::int64_t count,
                       const float* bias, bool relu, typename V::Value* y) {
  using F = typename V::Floats;
  const auto [h, w, c] = images;
  const std::int64_t step = element_step(count, c);
  for (std::int64_t t = 0; t < count; ++t, tile.next()) {
    const std::int64_t rows = h - tile.row, columns = w - tile.column;
    auto* to = y + images.at(tile.image, tile.row, tile.column);
    for (std::int64_t k = 0; k < c; k += V::kLanes, m += V::kLanes, to += V::kLanes) {
      F half[kSide][kInput];
#pragma GCC unroll 6
      for (int j = 0; j < kInput; ++j) {
        F column[kInput], out[kSide];
#pragma GCC unroll 6
        for (int i = 0; i < kInput; ++i) column[i] = F::load(m + (i * kInput + j) * step);
        transform_output_line(column, out);
#pragma GCC unroll 4
        for (int i = 0; i < kSide; ++i) half[i][j] = out[i];
      }
      const F b = bias ? F::load(bias + k) : F::zero();
#pragma GCC unroll 4
      for (int i = 0; i < kSide; ++i) {
        F out[kSide];
        transform_output_line(half[i], out);
#pragma GCC unroll 4
        for (int j = 0; j < kSide; ++j) {
          if (i >= rows || j >= columns) continue;
          V value = bias ? out[j] + b : out[j];
          if (relu) value = value.relu();
          value.store(to + (i * w + j) * c);
        }
      }
    }
  }
}

/// Transforms weights (k, 3, 3, c), and writes them as to[element][c][k]. `wide` (k, 9, c) and
/// `transposed` (9, c, k) are scratch memory.
template <class V>
void transform_weights(const typename V::Value* weight, std::int64_t k, std::int64_t c, float* wide,
                       float* transposed, float* to) {
  using F = typename V::Floats;
  for (std::int64_t i = 0; i < k * 9 * c; i += V::kLanes) {
    const F values = V::load(weight + i);
    values.store(wide + i);
  }
  winograd::transpose_weights<F>(wide, k, c, transposed);
  const std::int64_t step = c * k;
  for (std::int64_t at = 0; at < step; at += V::kLanes) {
    F t[kInput][3];
#pragma GCC unroll 3
    for (int j = 0; j < 3; ++j) {
      F column[kInput];
      transform_kernel_line<F>(F::load(transposed + j * step + at),
                               F::load(transposed + (3 + j) * step + at),
                               F::load(transposed + (6 + j) * step + at), column);
#pragma GCC unroll 6
      for (int i = 0; i < kInput; ++i) t[i][j] = column[i];
    }
#pragma GCC unroll 6
    for (int i = 0; i < kInput; ++i) {
      F row[kInput];
      transform_kernel_line<F>(t[i][0], t[i][1], t[i][2], row);
#pragma GCC unroll 6
      for (int j = 0; j < kInput; ++j) row[j].store(to + (i * kInput + j) * step + at);
    }
  }
}

/// Layout of scratch memory: offsets in floats. The transformed weights are at the beginning.
struct Layout {
  Images in, out;
  Tiles y;
  std::int64_t zeros, inputs, products, end;
  [[gnu::always_inline]] explicit Layout(const Conv& c)
      : in{c.in_h, c.in_w, c.in_c},
        out{c.out_h, c.out_w, c.out_c},
        y(kTileSize, c.batch, c.out_h, c.out_w, c.in_c + c.out_c, winograd::kBlockValues),
        zeros(kTransformed * c.in_c * c.out_c),
        inputs(zeros + (c.in_c + 15) / 16 * 16),
        products(inputs + kTransformed * element_step(y.block, c.in_c)),
        end(products + kTransformed * element_step(y.block, c.out_c)) {
    // transform_weights uses the memory of the tiles as scratch.
    const std::int64_t weights = inputs + 18 * c.in_c * c.out_c;
    if (end < weights) end = weights;
  }
};

template <class V>
std::size_t scratch_bytes(const Conv& c) {
  return static_cast<std::size_t>(Layout(c).end) * sizeof(float);
}

template <class V>
void forward(const Conv& c, const ConvCall<typename V::Value>& args) {
  using F = typename V::Floats;
  const Layout at(c);
  float* weights = args.scratch;
  float* inputs = args.scratch + at.inputs;
  float* products = args.scratch + at.products;
  transform_weights<V>(args.weight, c.out_c, c.in_c, inputs, inputs + 9 * c.in_c * c.out_c,
                       weights);
  for (std::int64_t i = at.zeros; i < at.inputs; ++i) args.scratch[i] = 0;
  const auto* zeros = reinterpret_cast<const typename V::Value*>(args.scratch + at.zeros);
  const Split blocks(at.y.count, at.y.block);
  for (std::int64_t b = 0; b < blocks.parts; ++b) {
    const TileAt tile(at.y, blocks.begin(b));
    const std::int64_t count = blocks.size(b);
    winograd4::transform_inputs<V>(args.x, zeros, at.in, c.pad_h, c.pad_w, tile, count, inputs);
    winograd::multiply<F>(kTransformed, inputs, weights, count, c.in_c, c.out_c, products);
    winograd4::transform_outputs<V>(products, at.out, tile, count, c.bias ? args.bias : nullptr,
                                    c.relu, args.y);
  }
}

}  // namespace dpt::winograd4
