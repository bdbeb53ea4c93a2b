// 3x3 convolution with stride 1 by Winograd's minimal filtering F(2x2, 3x3): 16 multiplications for
// four outputs instead of 36. The source, whose letters are used here, is Lavin and Gray, Fast
// Algorithms for Convolutional Neural Networks, 2015 (arXiv:1509.09308). With tiles d of 4x4
// inputs,
//   y = A' [ (G g G') * (B' d B) ] A,
// where * is elementwise. The sum of the products over input channels is sixteen matrix products.
// All matrices hold only 0, 1, -1 and 1/2, so the results differ from a direct sum by a few
// roundings. In bf16, only the gradients use this file, and their operands are rounded to bf16
// after the transform; winograd4_forward.h has the forward pass. The gradients follow from the same
// formula:
//   x: the same convolution of dy with the weights turned by 180 degrees,
//   g: G' [ (A dy A') * (B' d B), summed over tiles ] G.
// Like direct_tile.h, this file has templates over a vector type, compiled once per instruction
// set. The channels fill whole vectors.
#pragma once

#include <cstdint>

#include "kernels/cpu/simd/conv_table.h"
#include "kernels/cpu/simd/direct_tile.h"

namespace dpt::winograd {

using direct::accumulate;
using direct::Conv;
using direct::ConvCall;
using direct::Split;

/// Size of tiles: the side of a tile of outputs, and the elements of a transformed tile or kernel.
struct TileSize {
  std::int64_t side;
  int elements;
};
inline constexpr int kTransformed = 16;  ///< TileSize::elements of F(2x2, 3x3)
inline constexpr TileSize kTileSize{2, kTransformed};

/// Returns the distance, in values, from one element of transformed tiles to the next. A unit holds
/// `terms` values. The distance is not a power of two, because the streams of a transform would
/// then share few sets of the cache.
[[gnu::always_inline]] inline std::int64_t element_step(std::int64_t tiles, std::int64_t channels,
                                                        std::int64_t terms = 1) {
  return ((tiles + terms - 1) / terms * channels + 16) * terms;
}
/// Target size in values of a block's transformed tiles, which should stay in the second-level
/// cache together with the weights.
inline constexpr std::int64_t kBlockValues = 48 * 1024;
/// Target size in bytes for the weight gradient. Each block loads and stores its sums, so longer
/// blocks are faster even if they take most of the cache.
inline constexpr std::int64_t kSumBlockBytes = 768 * 1024;

/// Width of a register tile in vectors. Loads limit the speed of these products, and wide tiles
/// need the fewest.
inline constexpr std::int64_t kTileVectors = 4;

/// The tiles of a batch's pixels, in row order, image after image. A block is a range of
/// consecutive tiles.
struct Tiles {
  std::int64_t side, high, wide, count, block;
  [[gnu::always_inline]] Tiles(const TileSize& size, std::int64_t batch, std::int64_t h,
                               std::int64_t w, std::int64_t channels, std::int64_t block_values)
      : side(size.side),
        high((h + side - 1) / side),
        wide((w + side - 1) / side),
        count(batch * high * wide),
        block(block_values / size.elements / channels / 8 * 8) {
    // Each block reads all weights: the more weights, the larger the minimum block.
    const std::int64_t minimum = 24 + channels * channels / 2048 / 24 * 24;
    if (block < minimum) block = minimum;
    if (block > count) block = count;
  }
};

/// Iterator over the tiles of a block.
struct TileAt {
  const Tiles& tiles;
  std::int64_t image, row, column;  ///< the pixel at the tile's upper left corner
  [[gnu::always_inline]] TileAt(const Tiles& of, std::int64_t index)
      : tiles(of),
        image(index / (of.high * of.wide)),
        row(index / of.wide % of.high * of.side),
        column(index % of.wide * of.side) {}
  [[gnu::always_inline]] void next() {
    column += tiles.side;
    if (column < tiles.side * tiles.wide) return;
    column = 0;
    row += tiles.side;
    if (row < tiles.side * tiles.high) return;
    row = 0;
    ++image;
  }
};

/// Activations of a batch.
struct Images {
  std::int64_t h, w, c;
  [[gnu::always_inline]] std::int64_t at(std::int64_t image, std::int64_t row,
                                         std::int64_t column) const {
    return ((image * h + row) * w + column) * c;
  }
};

/// Stores the transformed tiles of a block. The units (direct_tile.h) of the matrix products hold
/// either neighbouring channels of a tile, or one channel of neighbouring tiles.
template <class V, bool kPairsTiles>
struct TileStore {
  using Value = typename V::Value;
  static constexpr std::int64_t kTerms = kPairsTiles ? V::kTerms : 1;

  Value* to;
  std::int64_t channels, step;  ///< step: distance of elements

  [[gnu::always_inline]] TileStore(Value* at, std::int64_t count, std::int64_t c)
      : to(at), channels(c), step(element_step(count, c, V::kTerms)) {}

  /// Stores one vector of element `element` of tile `t`, from channel `k` on. The tiles of a unit
  /// must be stored in order.
  [[gnu::always_inline]] void put(int element, std::int64_t t, std::int64_t k, V value) const {
    Value* at = to + element * step + (t / kTerms * channels + k) * kTerms;
    if (t % kTerms == 0) {
      value.store(at);
    } else if constexpr (kTerms > 1) {
      V::paired(at, value).store_operand(at);
    }
  }
  /// Fills the unit that contains the last of `count` tiles with zeros.
  [[gnu::always_inline]] void end(std::int64_t count) const {
    if (count % kTerms == 0) return;
    for (int element = 0; element < kTransformed; ++element) {
      for (std::int64_t k = 0; k < channels; k += V::kLanes) put(element, count, k, V::zero());
    }
  }
};

/// Computes B' d B of one vector of channels; load(i, j) returns the pixel of row i and column j of
/// the tile, and put(element, value) stores the result.
template <class V, class Load, class Put>
[[gnu::always_inline]] inline void transform_input(const Load& load, const Put& put) {
  V t[4][4];
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const V d0 = load(0, j), d1 = load(1, j), d2 = load(2, j), d3 = load(3, j);
    t[0][j] = d0 - d2;
    t[1][j] = d1 + d2;
    t[2][j] = d2 - d1;
    t[3][j] = d1 - d3;
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    put(4 * i, t[i][0] - t[i][2]);
    put(4 * i + 1, t[i][1] + t[i][2]);
    put(4 * i + 2, t[i][2] - t[i][1]);
    put(4 * i + 3, t[i][1] - t[i][3]);
  }
}

/// Computes B' d B for `count` tiles as to[element][tile][c]. The inputs of a tile begin pad_h rows
/// and pad_w columns before it. Pixels outside the image count as zero.
template <class V, bool kPairsTiles>
void transform_inputs(const typename V::Value* x, const Images& images, std::int64_t pad_h,
                      std::int64_t pad_w, TileAt tile, std::int64_t count, typename V::Value* to) {
  // Not a structured binding, because the lambdas below capture these variables.
  const std::int64_t h = images.h, w = images.w, c = images.c, row = w * c;
  const TileStore<V, kPairsTiles> store(to, count, c);
  for (std::int64_t t = 0; t < count; ++t, tile.next()) {
    const std::int64_t top = tile.row - pad_h, left = tile.column - pad_w;
    const auto* from = x + images.at(tile.image, top, left);
    if (top >= 0 && left >= 0 && top + 4 <= h && left + 4 <= w) {
      for (std::int64_t k = 0; k < c; k += V::kLanes) {
        transform_input<V>([&](int i, int j) { return V::load(from + i * row + j * c + k); },
                           [&](int element, V value) { store.put(element, t, k, value); });
      }
      continue;
    }
    for (std::int64_t k = 0; k < c; k += V::kLanes) {
      transform_input<V>(
          [&](int i, int j) {
            const bool inside = top + i >= 0 && top + i < h && left + j >= 0 && left + j < w;
            return inside ? V::load(from + i * row + j * c + k) : V::zero();
          },
          [&](int element, V value) { store.put(element, t, k, value); });
    }
  }
  store.end(count);
}

/// Computes A dy A' for `count` tiles as to[element][tile][c], in units of tiles.
template <class V>
void transform_gradients(const typename V::Value* dy, const Images& images, TileAt tile,
                         std::int64_t count, typename V::Value* to) {
  const auto [h, w, c] = images;
  const TileStore<V, true> store(to, count, c);
  for (std::int64_t t = 0; t < count; ++t, tile.next()) {
    const bool below = tile.row + 1 < h, right = tile.column + 1 < w;
    const auto* from = dy + images.at(tile.image, tile.row, tile.column);
    for (std::int64_t k = 0; k < c; k += V::kLanes, from += V::kLanes) {
      const V zero = V::zero(), a = V::load(from);
      const V b = right ? V(V::load(from + c)) : zero, d = below ? V(V::load(from + w * c)) : zero;
      const V e = below && right ? V(V::load(from + w * c + c)) : zero;
      const V left_column[4] = {a, a + d, a - d, zero - d},
              right_column[4] = {b, b + e, b - e, zero - e};
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        store.put(4 * i, t, k, left_column[i]);
        store.put(4 * i + 1, t, k, left_column[i] + right_column[i]);
        store.put(4 * i + 2, t, k, left_column[i] - right_column[i]);
        store.put(4 * i + 3, t, k, zero - right_column[i]);
      }
    }
  }
  store.end(count);
}

/// Computes y = A' m A of `count` tiles, adds `bias` unless it is null, and applies ReLU if `relu`.
template <class V>
void transform_outputs(const float* m, const Images& images, TileAt tile, std::int64_t count,
                       const float* bias, bool relu, typename V::Value* y) {
  const auto [h, w, c] = images;
  const std::int64_t step = element_step(count, c);
  for (std::int64_t t = 0; t < count; ++t, tile.next()) {
    const bool below = tile.row + 1 < h, right = tile.column + 1 < w;
    auto* to = y + images.at(tile.image, tile.row, tile.column);
    for (std::int64_t k = 0; k < c; k += V::kLanes, m += V::kLanes, to += V::kLanes) {
      V upper[4], lower[4];
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        const V m0 = V::load(m + j * step), m1 = V::load(m + (4 + j) * step),
                m2 = V::load(m + (8 + j) * step), m3 = V::load(m + (12 + j) * step);
        upper[j] = m0 + m1 + m2;
        lower[j] = m1 - m2 - m3;
      }
      const V b = bias ? V::load(bias + k) : V::zero();
      const auto put = [&](V value, typename V::Value* at) {
        if (bias) value = value + b;
        if (relu) value = value.relu();
        value.store(at);
      };
      put(upper[0] + upper[1] + upper[2], to);
      if (right) put(upper[1] - upper[2] - upper[3], to + c);
      if (!below) continue;
      put(lower[0] + lower[1] + lower[2], to + w * c);
      if (right) put(lower[1] - lower[2] - lower[3], to + w * c + c);
    }
  }
}

/// Computes G g G' of one vector; g[i][j] is at from + (3 i + j) * from_step, and put(element,
/// value) stores the result.
template <class V, class Put>
[[gnu::always_inline]] inline void transform_kernel(const typename V::Value* from,
                                                    std::int64_t from_step, const Put& put) {
  const V half = V::filled(0.5F);
  V t[4][3];
#pragma GCC unroll 3
  for (int j = 0; j < 3; ++j) {
    const V g0 = V::load(from + j * from_step), g1 = V::load(from + (3 + j) * from_step),
            g2 = V::load(from + (6 + j) * from_step);
    const V even = (g0 + g2) * half, odd = g1 * half;
    t[0][j] = g0;
    t[1][j] = even + odd;
    t[2][j] = even - odd;
    t[3][j] = g2;
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const V even = (t[i][0] + t[i][2]) * half, odd = t[i][1] * half;
    put(4 * i, t[i][0]);
    put(4 * i + 1, even + odd);
    put(4 * i + 2, even - odd);
    put(4 * i + 3, t[i][2]);
  }
}

/// Writes weights (k, 9, c) as (9, c, k).
template <class V>
void transpose_weights(const float* weight, std::int64_t k, std::int64_t c, float* to) {
  for (std::int64_t e = 0; e < 9; ++e) {
    for (std::int64_t i = 0; i < k; i += 8) {
      for (std::int64_t j = 0; j < c; j += 8) {
        V::transpose8(weight + (i * 9 + e) * c + j, 9 * c, 8, to + (e * c + j) * k + i, k);
      }
    }
  }
}

/// Transforms weights (k, 3, 3, c), and writes them as to[element][c][k]. `transposed` (9, c, k) is
/// scratch memory.
template <class V>
void transform_weights(const float* weight, std::int64_t k, std::int64_t c, float* transposed,
                       float* to) {
  transpose_weights<V>(weight, k, c, transposed);
  for (std::int64_t at = 0; at < c * k; at += V::kLanes) {
    transform_kernel<V>(transposed + at, c * k,
                        [&](int element, V value) { value.store(to + element * c * k + at); });
  }
}

/// Transforms weights (k, 3, 3, c), turned by 180 degrees, and writes them as to[element][k][c], in
/// units of neighbouring k.
template <class V>
void transform_turned_weights(const typename V::Value* weight, std::int64_t k, std::int64_t c,
                              typename V::Value* to) {
  TileStore<V, true> store(to, k, c);
  store.step = k * c;
  for (std::int64_t i = 0; i < k; ++i) {
    for (std::int64_t j = 0; j < c; j += V::kLanes) {
      // Read the pixels of g in reverse order, which turns g by 180 degrees.
      transform_kernel<V>(weight + (i * 9 + 8) * c + j, -c,
                          [&](int element, V value) { store.put(element, i, j, value); });
    }
  }
}

/// Computes m[element][row][n] = a[element][row][k] b[element][k][n]; b is in units of neighbouring
/// k.
template <class V>
void multiply(int elements, const typename V::Value* a, const typename V::Value* b,
              std::int64_t rows, std::int64_t k, std::int64_t n, float* m) {
  const Split columns(n / V::kLanes, kTileVectors);
  for (int element = 0; element < elements; ++element) {
    for (std::int64_t p = 0; p < columns.parts; ++p) {
      const std::int64_t vectors = columns.size(p);
      const Split tiles(rows, direct::most_rows<V>(vectors));
      const auto* right = b + columns.begin(p) * V::kLanes * V::kTerms;
      for (std::int64_t t = 0; t < tiles.parts; ++t) {
        const auto* left = a + tiles.begin(t) * k;
        float* to = m + tiles.begin(t) * n + columns.begin(p) * V::kLanes;
        direct::with_tile<V>(tiles.size(t), vectors, [&]<int R, int N>() {
          V acc[R][N];
          const typename V::Value* row[R];
#pragma GCC unroll 8
          for (int r = 0; r < R; ++r) {
            row[r] = left + r * k;
#pragma GCC unroll 8
            for (int j = 0; j < N; ++j) acc[r][j] = V::zero();
          }
          accumulate<V, R, N>(acc, row, V::kTerms, right, n * V::kTerms, k / V::kTerms);
#pragma GCC unroll 8
          for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
            for (int j = 0; j < N; ++j) acc[r][j].store(to + r * n + j * V::kLanes);
          }
        });
      }
    }
    a += element_step(rows, k, V::kTerms);
    b += k * n;
    m += element_step(rows, n);
  }
}

/// Computes sum[element][i][j] = or += sum over rows of a[element][row][i] b[element][row][j]; a
/// and b are in units of neighbouring rows.
template <class V>
void multiply_transposed(const typename V::Value* a, const typename V::Value* b, std::int64_t rows,
                         std::int64_t k, std::int64_t n, bool add, float* sum) {
  const Split columns(n / V::kLanes, kTileVectors);
  for (int element = 0; element < kTransformed; ++element) {
    for (std::int64_t p = 0; p < columns.parts; ++p) {
      const std::int64_t vectors = columns.size(p);
      const Split tiles(k, direct::most_rows<V>(vectors));
      const auto* right = b + columns.begin(p) * V::kLanes * V::kTerms;
      for (std::int64_t t = 0; t < tiles.parts; ++t) {
        const auto* left = a + tiles.begin(t) * V::kTerms;
        float* to = sum + tiles.begin(t) * n + columns.begin(p) * V::kLanes;
        direct::with_tile<V>(tiles.size(t), vectors, [&]<int R, int N>() {
          V acc[R][N];
          const typename V::Value* column[R];
#pragma GCC unroll 8
          for (int r = 0; r < R; ++r) {
            column[r] = left + r * V::kTerms;
#pragma GCC unroll 8
            for (int j = 0; j < N; ++j) {
              acc[r][j] = add ? V(V::load(to + r * n + j * V::kLanes)) : V(V::zero());
            }
          }
          accumulate<V, R, N>(acc, column, k * V::kTerms, right, n * V::kTerms,
                              direct::units<V>(rows));
#pragma GCC unroll 8
          for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
            for (int j = 0; j < N; ++j) acc[r][j].store(to + r * n + j * V::kLanes);
          }
        });
      }
    }
    a += element_step(rows, k, V::kTerms);
    b += element_step(rows, n, V::kTerms);
    sum += k * n;
  }
}

/// Computes dw (k, 3, 3, c) = or += G' u G, where u is from[element][k][c].
template <class V>
void write_weight_gradient(const float* from, std::int64_t k, std::int64_t c, bool add, float* dw) {
  const std::int64_t step = k * c;
  const V half = V::filled(0.5F);
  for (std::int64_t i = 0; i < k; ++i) {
    for (std::int64_t j = 0; j < c; j += V::kLanes) {
      const float* u = from + i * c + j;
      V t[3][4];
#pragma GCC unroll 4
      for (int e = 0; e < 4; ++e) {
        const V u0 = V::load(u + e * step), u1 = V::load(u + (4 + e) * step),
                u2 = V::load(u + (8 + e) * step), u3 = V::load(u + (12 + e) * step);
        const V both = (u1 + u2) * half;
        t[0][e] = u0 + both;
        t[1][e] = (u1 - u2) * half;
        t[2][e] = both + u3;
      }
      float* to = dw + i * 9 * c + j;
      const auto put = [&](V value) {
        (add ? V::load(to) + value : value).store(to);
        to += c;
      };
#pragma GCC unroll 3
      for (int e = 0; e < 3; ++e) {
        const V both = (t[e][1] + t[e][2]) * half;
        put(t[e][0] + both);
        put((t[e][1] - t[e][2]) * half);
        put(both + t[e][3]);
      }
    }
  }
}

/// Layout of scratch memory: offsets in floats. A transformed tile or kernel may take less memory
/// than its share, because a value may be smaller than a float.
template <class V>
struct Layout {
  Images in, out;
  Tiles y, x, sums;  ///< tiles of the outputs, the input's gradient and the weight gradient
  std::int64_t inputs, products, end;  ///< offsets of the regions after the weights; end: total
  [[gnu::always_inline]] explicit Layout(const Conv& c)
      : in{c.in_h, c.in_w, c.in_c},
        out{c.out_h, c.out_w, c.out_c},
        y(kTileSize, c.batch, c.out_h, c.out_w, c.in_c + c.out_c, kBlockValues),
        x(kTileSize, c.batch, c.in_h, c.in_w, c.in_c + c.out_c, kBlockValues),
        sums(kTileSize, c.batch, c.out_h, c.out_w, c.in_c + c.out_c,
             kSumBlockBytes / static_cast<std::int64_t>(sizeof(typename V::Value))),
        inputs(kTransformed * c.in_c * c.out_c) {
    std::int64_t block = y.block > x.block ? y.block : x.block;
    if (c.training && sums.block > block) block = sums.block;
    // One more tile fills a unit.
    ++block;
    products = inputs + kTransformed * element_step(block, c.in_c);
    end = products + kTransformed * element_step(block, c.out_c);
    // transform_weights uses the memory of the tiles as scratch.
    const std::int64_t turned = inputs + 9 * c.in_c * c.out_c;
    if (end < turned) end = turned;
  }
};

template <class V>
std::size_t scratch_bytes(const Conv& c) {
  return static_cast<std::size_t>(Layout<V>(c).end) * sizeof(float);
}
template <class V>
std::size_t saved_bytes(const Conv&) {
  return 0;
}

template <class V>
void forward(const Conv& c, const ConvCall<float>& args) {
  const Layout<V> at(c);
  float* weights = args.scratch;
  float* inputs = args.scratch + at.inputs;
  float* products = args.scratch + at.products;
  transform_weights<V>(args.weight, c.out_c, c.in_c, inputs, weights);
  const Split blocks(at.y.count, at.y.block);
  for (std::int64_t b = 0; b < blocks.parts; ++b) {
    const TileAt tile(at.y, blocks.begin(b));
    const std::int64_t count = blocks.size(b);
    transform_inputs<V, false>(args.x, at.in, c.pad_h, c.pad_w, tile, count, inputs);
    multiply<V>(kTransformed, inputs, weights, count, c.in_c, c.out_c, products);
    transform_outputs<V>(products, at.out, tile, count, c.bias ? args.bias : nullptr, c.relu,
                         args.y);
  }
}

/// Sets dy to zero where y did not pass ReLU, and sums dy for the gradient of the bias.
template <class V>
void mask_gradient(const Conv& c, const ConvCall<typename V::Value>& args) {
  if (!c.relu && !c.bias) return;
  const std::int64_t pixels = c.batch * c.out_h * c.out_w;
  for (std::int64_t k = 0; k < c.out_c; k += V::kLanes) {
    V sum = V::zero();
    for (std::int64_t p = 0; p < pixels; ++p) {
      auto* at = args.dy + p * c.out_c + k;
      V g = V::load(at);
      if (c.relu) {
        g = g.keep_positive(V::load(args.y + p * c.out_c + k));
        g.store(at);
      }
      sum = sum + g;
    }
    if (c.bias) (args.add ? V::load(args.dbias + k) + sum : sum).store(args.dbias + k);
  }
}

template <class V>
void backward(const Conv& c, const ConvCall<typename V::Value>& args) {
  const Layout<V> at(c);
  const auto values = [&](std::int64_t offset) {
    return reinterpret_cast<typename V::Value*>(args.scratch + offset);
  };
  mask_gradient<V>(c, args);

  float* sums = args.scratch;
  auto* inputs = values(at.inputs);
  auto* gradients = values(at.products);
  const Split blocks(at.sums.count, at.sums.block);
  for (std::int64_t b = 0; b < blocks.parts; ++b) {
    const TileAt tile(at.sums, blocks.begin(b));
    const std::int64_t count = blocks.size(b);
    transform_inputs<V, true>(args.x, at.in, c.pad_h, c.pad_w, tile, count, inputs);
    transform_gradients<V>(args.dy, at.out, tile, count, gradients);
    multiply_transposed<V>(gradients, inputs, count, c.out_c, c.in_c, b > 0, sums);
  }
  write_weight_gradient<V>(sums, c.out_c, c.in_c, args.add, args.dweight);

  if (!c.input_gradient) return;
  auto* weights = values(0);
  float* products = args.scratch + at.inputs;
  transform_turned_weights<V>(args.weight, c.out_c, c.in_c, weights);
  const Split input_blocks(at.x.count, at.x.block);
  for (std::int64_t b = 0; b < input_blocks.parts; ++b) {
    const TileAt tile(at.x, input_blocks.begin(b));
    const std::int64_t count = input_blocks.size(b);
    transform_inputs<V, false>(args.dy, at.out, 2 - c.pad_h, 2 - c.pad_w, tile, count, gradients);
    multiply<V>(kTransformed, gradients, weights, count, c.out_c, c.in_c, products);
    transform_outputs<V>(products, at.in, tile, count, nullptr, false, args.dx);
  }
}

}  // namespace dpt::winograd
