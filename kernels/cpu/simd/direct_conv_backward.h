// Direct convolution, backward. Samples are processed one at a time, so that x, dy and dx stay in
// the cache:
//  1. The gradient of the convolution's output is computed from that of y (pooling, ReLU mask).
//  2. Weight gradient: tiles of dw are summed over pixels, with lanes over the run of (kw, ic) or
//     over oc. If a unit (direct_tile.h) has two terms, they belong to neighbouring pixels, which
//     are paired in copies of x and dy.
//  3. Data gradient: for each row of x, sums over kh and oc stay in registers, with lanes over the
//     run of (kw, ic). Each pixel of x then collects its kw terms. No product is wasted.
#pragma once

#include "kernels/cpu/simd/direct_conv_forward.h"

namespace dpt::direct {

/// Returns true if the convolution's dy is the layer's dy: nothing is fused, and no lane is unused.
template <class V>
bool takes_dy(const Conv& c) {
  return c.pool == FusedPool::none && !c.relu && c.out_c % V::kLanes == 0;
}

/// Computes the convolution's dy (pixels, channels) from the gradient after ReLU, unless the two
/// are the same. Adds up dbias.
template <class V>
void unfold_unpooled(const Conv& c, const ConvLayout<V>& layout, const typename V::Value* dy,
                     const typename V::Value* y, typename V::Value* to, float* dbias) {
  const bool stores = !takes_dy<V>(c);
  if (!stores && !c.bias) return;
  for (std::int64_t j = 0; j < layout.vectors; ++j) {
    const std::int64_t at = j * V::kLanes, left = c.out_c - at;
    const auto mask = V::first(left < V::kLanes ? left : V::kLanes);
    V sum = V::load(dbias + at);
    for (std::int64_t i = 0; i < c.pixels(); ++i) {
      V g = V::load(dy + i * c.out_c + at, mask);
      if (c.relu) g = g.keep_positive(V::load(y + i * c.out_c + at, mask));
      if (stores) g.store(to + i * layout.channels + at);
      sum = sum + g;
    }
    sum.store(dbias + at);
  }
}

/// Computes the gradient of the convolution's own output (pixels, channels) from that of the output
/// after pooling and ReLU, and adds up dbias.
template <class V>
void unfold_pooled(const Conv& c, const ConvLayout<V>& layout, const typename V::Value* dy,
                   const std::uint8_t* saved, typename V::Value* to, float* dbias) {
  constexpr std::int64_t kMaskBytes = V::kLanes / 8;
  const auto tail = V::first(c.out_c - (layout.vectors - 1) * V::kLanes);
  const std::int64_t windows = c.out_h * c.out_w;
  const std::int64_t row = c.conv_w * layout.channels;
  const bool average = c.pool == FusedPool::average;
  for (std::int64_t i = 0; i < windows; ++i, dy += c.out_c) {
    auto* pixel = to + i / c.out_w * 2 * row + i % c.out_w * 2 * layout.channels;
    for (std::int64_t j = 0; j < layout.vectors; ++j, pixel += V::kLanes) {
      const std::int64_t at = j * V::kLanes;
      V g = j + 1 == layout.vectors ? V::load(dy + at, tail) : V::load(dy + at);
      V sum = V::load(dbias + at);
      if (average) g = g * V::filled(0.25F);
#pragma GCC unroll 8
      for (int r = 0; r < 4; ++r) {
        V part = g;
        if (layout.mask_bytes != 0) {
          part = g.keep(get_bits<V>(saved + ((i * 4 + r) * layout.vectors + j) * kMaskBytes));
        }
        part.store(pixel + (r / 2) * row + (r % 2) * layout.channels);
        sum = sum + part;
      }
      sum.store(dbias + at);
    }
  }
}

/// Stores one vector of units: values of `first` and, if a unit has two terms, values of `second`.
/// If `second` is null, its values are zeros.
template <class V>
[[gnu::always_inline]] inline void store_units(const typename V::Value* first,
                                               const typename V::Value* second,
                                               typename V::Mask mask, typename V::Value* to) {
  if constexpr (V::kTerms == 1) {
    V::load(first, mask).store(to);
  } else {
    V::paired(first, second, mask).store_operand(to);
  }
}

/// Stores `count` units of two terms: a value of `first` and a value of `second`, or zero if
/// `second` is null.
template <class V>
void pair_values(const typename V::Value* first, const typename V::Value* second,
                 std::int64_t count, typename V::Value* to) {
  for (std::int64_t i = 0; i < count; i += V::kLanes) {
    const auto mask = V::first(count - i < V::kLanes ? count - i : V::kLanes);
    V::paired(first + i, second ? second + i : nullptr, mask)
        .store_operand(to + i * V::kTerms, mask);
  }
}

/// Writes the bordered image `x` to `to` in units along the rows, and returns `to`. Unit i holds
/// values i and i + d, where d is the distance in x of neighbouring pixels of dy. If a unit has one
/// term, returns `x`.
template <class V>
const typename V::Value* paired_image(const Conv& c, const typename V::Value* x,
                                      typename V::Value* to) {
  if constexpr (V::kTerms == 1) {
    return x;
  } else {
    const std::int64_t step = c.stride_w * c.in_c, row = c.padded_row(), run = c.run();
    const std::int64_t rows = (c.conv_h - 1) * c.stride_h + c.kernel_h;
    for (std::int64_t h = 0; h < rows; ++h) {
      const auto* from = x + h * row;
      auto* at = to + h * row * V::kTerms;
      if (run >= 2 * step) {
        pair_values<V>(from, from + step, row - step, at);
        pair_values<V>(from + row - step, nullptr, step, at + (row - step) * V::kTerms);
        continue;
      }
      for (std::int64_t ow = 0; ow < c.conv_w; ow += 2) {
        const auto* pixel = from + ow * step;
        pair_values<V>(pixel, ow + 1 < c.conv_w ? pixel + step : nullptr, run,
                       at + ow * step * V::kTerms);
      }
    }
    return to;
  }
}

/// Writes dy (pixels, channels) to `to` with V::kTerms neighbouring pixels of a row interleaved,
/// and returns `to`. If V::kTerms is 1, writes nothing and returns `dy`.
template <class V>
const typename V::Value* paired_gradient(const Conv& c, std::int64_t channels,
                                         const typename V::Value* dy, typename V::Value* to) {
  if constexpr (V::kTerms == 1) {
    return dy;
  } else {
    auto* at = to;
    for (std::int64_t h = 0; h < c.conv_h; ++h, dy += c.conv_w * channels) {
      for (std::int64_t ow = 0; ow < c.conv_w; ow += 2, at += channels * V::kTerms) {
        const auto* pixel = dy + ow * channels;
        pair_values<V>(pixel, ow + 1 < c.conv_w ? pixel + channels : nullptr, channels, at);
      }
    }
    return to;
  }
}

/// Part of x and dy over which a tile of weight gradients is summed in registers: some rows of one
/// sample, or several whole samples. x and dy are in units (paired_image, paired_gradient).
template <class V>
struct Block {
  const typename V::Value *x, *dy;
  std::int64_t samples, rows;
  std::int64_t x_sample, dy_sample;  ///< distances between samples

  Block at(std::int64_t x_value, std::int64_t dy_value) const {
    return {x + x_value, dy + dy_value, samples, rows, x_sample, dy_sample};
  }
};

/// Maximum size in units of a block. Blocks with units of one term stay in the first-level cache.
/// With two terms, blocks are larger and stay in the second-level cache, so that their sums are
/// added to memory less often.
template <class V>
inline constexpr std::int64_t kBlockUnits = V::kTerms == 1 ? 7168 : 32768;

/// Computes acc[r][j] += sum over the block's pixels of a's unit r times b's j-th vector. One of a
/// and b is x, the other is dy. The steps are the distances, in values, from one unit of pixels,
/// one row and one sample to the next.
template <class V, int R, int N, bool kWhole>
[[gnu::always_inline]] inline void sum_over_block(V (&acc)[R][N], const typename V::Value* a,
                                                  const std::int64_t (&a_steps)[3],
                                                  const typename V::Value* b,
                                                  const std::int64_t (&b_steps)[3],
                                                  std::int64_t samples, std::int64_t rows,
                                                  std::int64_t count, typename V::Mask mask) {
  for (std::int64_t n = 0; n < samples; ++n) {
    const typename V::Value* at[R];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) at[r] = a + n * a_steps[2] + r * V::kTerms;
    const auto* right = b + n * b_steps[2];
    for (std::int64_t h = 0; h < rows; ++h) {
      if constexpr (kWhole) {
        accumulate<V, R, N>(acc, at, a_steps[0], right, b_steps[0], count);
      } else {
        accumulate_masked<V, R, N>(acc, at, a_steps[0], right, b_steps[0], count, mask);
      }
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) at[r] += a_steps[1];
      right += b_steps[1];
    }
  }
}

/// Steps of x and dy for sum_over_block.
template <class V>
struct Steps {
  std::int64_t count;  ///< number of units in a row of dy
  std::int64_t x[3], dy[3];

  Steps(const Conv& c, std::int64_t channels, const Block<V>& block)
      : count(units<V>(c.conv_w)),
        x{V::kTerms * c.stride_w * c.in_c * V::kTerms, c.stride_h * c.padded_row() * V::kTerms,
          block.x_sample},
        dy{channels * V::kTerms, count * channels * V::kTerms, block.dy_sample} {}
};

/// Computes dw[o + r][kh][first + j-th vector] = or += sum over the block's pixels of dy[o + r]
/// x[...].
template <class V, int R, int N, bool kWhole>
void weight_tile(const Conv& c, const Block<V>& block, std::int64_t channels, float* dw, bool add,
                 typename V::Mask mask) {
  const Steps<V> steps(c, channels, block);
  V acc[R][N];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int j = 0; j < N; ++j) acc[r][j] = V::zero();
  }
  sum_over_block<V, R, N, kWhole>(acc, block.dy, steps.dy, block.x, steps.x, block.samples,
                                  block.rows, steps.count, mask);
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    float* to = dw + r * c.depth();
#pragma GCC unroll 8
    for (int j = 0; j < N; ++j) {
      float* at = to + j * V::kLanes;
      if (kWhole || j + 1 < N) {
        (add ? V::load(at) + acc[r][j] : acc[r][j]).store(at);
      } else {
        (add ? V::load(at, mask) + acc[r][j] : acc[r][j]).store(at, mask);
      }
    }
  }
}

/// Computes the weight gradient with lanes over (kw, ic), and writes dw directly.
template <class V>
void weight_gradient(const Conv& c, const ConvLayout<V>& layout, const Block<V>& block, float* dw,
                     bool add) {
  const Split tiles(layout.run_vectors, kMaxVectors);
  for (std::int64_t kh = 0; kh < c.kernel_h; ++kh) {
    for (std::int64_t t = 0; t < tiles.parts; ++t) {
      const std::int64_t column = tiles.begin(t) * V::kLanes, wide = tiles.size(t);
      const std::int64_t left = c.run() - column - (wide - 1) * V::kLanes;
      const auto mask = V::first(left < V::kLanes ? left : V::kLanes);
      const Split outputs(c.out_c, most_rows<V>(wide));
      for (std::int64_t p = 0; p < outputs.parts; ++p) {
        const std::int64_t o = outputs.begin(p);
        float* to = dw + o * c.depth() + kh * c.run() + column;
        const Block<V> part = block.at((kh * c.padded_row() + column) * V::kTerms, o * V::kTerms);
        with_tile<V>(outputs.size(p), wide, [&]<int R, int N>() {
          if (left >= V::kLanes) {
            weight_tile<V, R, N, true>(c, part, layout.channels, to, add, mask);
          } else {
            weight_tile<V, R, N, false>(c, part, layout.channels, to, add, mask);
          }
        });
      }
    }
  }
}

/// Computes gradient[k + r][j-th vector of oc] += sum over the block's pixels of x[... + r]
/// dy[...].
template <class V, int R, int N>
void transposed_weight_tile(const Conv& c, const Block<V>& block, std::int64_t channels,
                            float* gradient) {
  const Steps<V> steps(c, channels, block);
  V acc[R][N];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int j = 0; j < N; ++j) acc[r][j] = V::load(gradient + r * channels + j * V::kLanes);
  }
  sum_over_block<V, R, N, true>(acc, block.x, steps.x, block.dy, steps.dy, block.samples,
                                block.rows, steps.count, V::first(V::kLanes));
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int j = 0; j < N; ++j) acc[r][j].store(gradient + r * channels + j * V::kLanes);
  }
}

/// Computes the weight gradient with lanes over oc, for short runs (few input channels). The sums
/// stay in scratch as (depth, channels).
template <class V>
void transposed_weight_gradient(const Conv& c, const ConvLayout<V>& layout, const Block<V>& block,
                                float* gradient) {
  const Split tiles(layout.vectors, kMaxVectors);
  for (std::int64_t t = 0; t < tiles.parts; ++t) {
    const std::int64_t channel = tiles.begin(t) * V::kLanes, wide = tiles.size(t);
    const Split taps(c.run(), most_rows<V>(wide));
    for (std::int64_t kh = 0; kh < c.kernel_h; ++kh) {
      for (std::int64_t p = 0; p < taps.parts; ++p) {
        const std::int64_t k = taps.begin(p);
        const Block<V> part = block.at((kh * c.padded_row() + k) * V::kTerms, channel * V::kTerms);
        with_tile<V>(taps.size(p), wide, [&]<int R, int N>() {
          transposed_weight_tile<V, R, N>(
              c, part, layout.channels, gradient + (kh * c.run() + k) * layout.channels + channel);
        });
      }
    }
  }
}

/// Packs weights (oc, kh, run) into a panel [kh][unit of oc][lanes][terms] for each tile of the
/// run; unused lanes and terms are zero.
template <class V>
void pack_backward(const Conv& c, const ConvLayout<V>& layout, const typename V::Value* weight,
                   typename V::Value* to) {
  const Split tiles(layout.run_vectors, kMaxVectors);
  for (std::int64_t t = 0; t < tiles.parts; ++t) {
    const std::int64_t column = tiles.begin(t) * V::kLanes, wide = tiles.size(t);
    const std::int64_t left = c.run() - column - (wide - 1) * V::kLanes;
    const auto mask = V::first(left < V::kLanes ? left : V::kLanes);
    for (std::int64_t kh = 0; kh < c.kernel_h; ++kh) {
      for (std::int64_t o = 0; o < c.out_c; o += V::kTerms) {
        const auto* from = weight + o * c.depth() + kh * c.run() + column;
        const auto* next = o + 1 < c.out_c ? from + c.depth() : nullptr;
        for (std::int64_t j = 0; j < wide; ++j, to += V::kLanes * V::kTerms) {
          const std::int64_t at = j * V::kLanes;
          store_units<V>(from + at, next ? next + at : nullptr,
                         j + 1 < wide ? V::first(V::kLanes) : mask, to);
        }
      }
    }
  }
}

/// Computes columns[r][j-th vector], the contribution of R neighbouring pixels of dy to one row of
/// dx, summed over `count` corresponding rows of dy and of the kernel.
template <class V, int R, int N>
void column_tile(const Conv& c, const typename V::Value* dy, std::int64_t channels,
                 std::int64_t dy_step, const typename V::Value* panel, std::int64_t panel_step,
                 std::int64_t count, float* columns, std::int64_t columns_step) {
  V acc[R][N];
  const typename V::Value* a[R];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    a[r] = dy + r * channels;
#pragma GCC unroll 8
    for (int j = 0; j < N; ++j) acc[r][j] = V::zero();
  }
  for (std::int64_t i = 0; i < count; ++i) {
    accumulate<V, R, N>(acc, a, V::kTerms, panel, N * V::kLanes * V::kTerms, units<V>(c.out_c));
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) a[r] += dy_step;
    panel += panel_step;
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int j = 0; j < N; ++j) acc[r][j].store(columns + r * columns_step + j * V::kLanes);
  }
}

/// Computes one row of dx from its columns: pixel iw collects kw from the dy pixel (iw + pad - kw)
/// / stride.
template <class V>
void collect_row(const Conv& c, const ConvLayout<V>& layout, const float* columns,
                 typename V::Value* dx) {
  const auto tail = V::first(c.in_c % V::kLanes);
  for (std::int64_t iw = 0; iw < c.in_w; ++iw, dx += c.in_c) {
    const std::int64_t at = iw + c.pad_w;
    // Start at the first kw that falls on a pixel of dy, then take every stride-th kw while that
    // pixel exists.
    std::int64_t kw = at % c.stride_w, ow = at / c.stride_w;
    if (ow >= c.conv_w) {
      kw += (ow - c.conv_w + 1) * c.stride_w;
      ow = c.conv_w - 1;
    }
    const std::int64_t ways = (c.kernel_w - kw + c.stride_w - 1) / c.stride_w;
    const std::int64_t terms = kw >= c.kernel_w ? 0 : (ways < ow + 1 ? ways : ow + 1);
    const float* from = columns + ow * layout.run_columns + kw * c.in_c;
    const std::int64_t step = c.stride_w * c.in_c - layout.run_columns;
    std::int64_t i = 0;
    for (; i + V::kLanes <= c.in_c; i += V::kLanes) {
      V sum = V::zero();
      for (std::int64_t k = 0; k < terms; ++k) sum = sum + V::load(from + k * step + i);
      sum.store(dx + i);
    }
    if (i < c.in_c) {
      V sum = V::zero();
      for (std::int64_t k = 0; k < terms; ++k) sum = sum + V::load(from + k * step + i, tail);
      sum.store(dx + i, tail);
    }
  }
}

template <class V>
void data_gradient(const Conv& c, const ConvLayout<V>& layout, const typename V::Value* dy,
                   const typename V::Value* weights, float* columns, typename V::Value* dx) {
  const Split tiles(layout.run_vectors, kMaxVectors);
  const std::int64_t dy_row = c.conv_w * layout.channels;
  const std::int64_t columns_row = c.conv_w * layout.run_columns;
  for (std::int64_t first = 0; first < c.in_h; first += layout.column_rows) {
    const std::int64_t end =
        first + layout.column_rows < c.in_h ? first + layout.column_rows : c.in_h;
    for (std::int64_t t = 0; t < tiles.parts; ++t) {
      const std::int64_t column = tiles.begin(t) * V::kLanes, wide = tiles.size(t);
      const std::int64_t depth = units<V>(c.out_c) * V::kTerms;
      const std::int64_t panel_kh = depth * wide * V::kLanes;
      const auto* panel = weights + c.kernel_h * depth * column;
      const Split pixels(c.conv_w, most_rows<V>(wide));
      for (std::int64_t ih = first; ih < end; ++ih) {
        // kh increases in steps of the stride while the row of dy decreases by one.
        const std::int64_t at = ih + c.pad_h;
        std::int64_t kh = at % c.stride_h, oh = at / c.stride_h;
        if (oh >= c.conv_h) {
          kh += (oh - c.conv_h + 1) * c.stride_h;
          oh = c.conv_h - 1;
        }
        const std::int64_t ways = (c.kernel_h - kh + c.stride_h - 1) / c.stride_h;
        const std::int64_t count = kh >= c.kernel_h ? 0 : (ways < oh + 1 ? ways : oh + 1);
        for (std::int64_t p = 0; p < pixels.parts; ++p) {
          const std::int64_t ow = pixels.begin(p);
          with_tile<V>(pixels.size(p), wide, [&]<int R, int N>() {
            column_tile<V, R, N>(
                c, dy + oh * dy_row + ow * layout.channels, layout.channels, -dy_row,
                panel + (count > 0 ? kh * panel_kh : 0), c.stride_h * panel_kh, count,
                columns + (ih - first) * columns_row + ow * layout.run_columns + column,
                layout.run_columns);
          });
        }
      }
    }
    for (std::int64_t ih = first; ih < end; ++ih) {
      collect_row<V>(c, layout, columns + (ih - first) * columns_row, dx + ih * c.in_w * c.in_c);
    }
  }
}

template <class V>
void conv_backward(const Conv& c, const ConvCall<typename V::Value>& args) {
  using Value = typename V::Value;
  const ConvLayout<V> layout(c);
  const auto values = [&](std::int64_t at) { return reinterpret_cast<Value*>(args.scratch + at); };
  // Sum dbias over each sample before adding it to the total, to reduce the rounding of large sums.
  float* dbias = args.scratch + layout.bias;
  float* sample_dbias = args.scratch + layout.sample_bias;
  Value* unfolded = values(layout.dy);
  float* gradient = args.scratch + layout.gradient;
  for (std::int64_t i = 0; i < layout.channels; ++i) dbias[i] = 0;
  if (layout.lanes_are_outputs) {
    for (std::int64_t i = 0; i < c.depth() * layout.channels; ++i) gradient[i] = 0;
  }
  if (c.input_gradient) pack_backward<V>(c, layout, args.weight, values(layout.weights));
  const std::int64_t row_units = c.stride_h * c.padded_row() + units<V>(c.conv_w) * layout.channels;
  const std::int64_t fit = (kBlockUnits<V> - c.kernel_h * c.padded_row()) / row_units;
  const Split strips(c.conv_h, fit > 1 ? fit : 1);
  const std::int64_t in_values = c.in_h * c.in_w * c.in_c;
  const std::int64_t out_values = c.out_h * c.out_w * c.out_c;
  for (std::int64_t n = 0; n < c.batch; ++n) {
    // Each sample of a group has its own place in the paired copies.
    const std::int64_t place = n % layout.group;
    const Value* bordered =
        bordered_image<V>(c, layout, args.x + n * in_values, values(layout.image));
    const Value* x = paired_image<V>(
        c, bordered, values(layout.paired_image) + place * layout.image_units * V::kTerms);
    for (std::int64_t i = 0; i < layout.channels; ++i) sample_dbias[i] = 0;
    const Value* dy_of_y = args.dy + n * out_values;
    if (c.pool == FusedPool::none) {
      unfold_unpooled<V>(c, layout, dy_of_y, args.y ? args.y + n * out_values : nullptr, unfolded,
                         sample_dbias);
    } else {
      unfold_pooled<V>(c, layout, dy_of_y,
                       args.saved ? args.saved + n * layout.mask_bytes : nullptr, unfolded,
                       sample_dbias);
    }
    const Value* dy = takes_dy<V>(c) ? dy_of_y : unfolded;
    for (std::int64_t i = 0; i < layout.channels; ++i) dbias[i] += sample_dbias[i];
    const Value* paired_dy = paired_gradient<V>(
        c, layout.channels, dy, values(layout.paired_dy) + place * layout.dy_units * V::kTerms);
    if (place + 1 == layout.group || n + 1 == c.batch) {
      const std::int64_t x_sample = layout.image_units * V::kTerms,
                         dy_sample = layout.dy_units * V::kTerms;
      for (std::int64_t s = 0; s < strips.parts; ++s) {
        const std::int64_t oh = strips.begin(s);
        const Block<V> block{
            x - place * x_sample + oh * c.stride_h * c.padded_row() * V::kTerms,
            paired_dy - place * dy_sample + oh * units<V>(c.conv_w) * layout.channels * V::kTerms,
            place + 1,
            strips.size(s),
            x_sample,
            dy_sample};
        if (layout.lanes_are_outputs) {
          transposed_weight_gradient<V>(c, layout, block, gradient);
        } else {
          const bool add = args.add || n > place || s > 0;
          weight_gradient<V>(c, layout, block, args.dweight, add);
        }
      }
    }
    if (c.input_gradient) {
      data_gradient<V>(c, layout, dy, values(layout.weights), args.scratch + layout.columns,
                       args.dx + n * in_values);
    }
  }
  if (layout.lanes_are_outputs) {
    for (std::int64_t o = 0; o < c.out_c; ++o) {
      for (std::int64_t k = 0; k < c.depth(); ++k) {
        float& to = args.dweight[o * c.depth() + k];
        const float sum = gradient[k * layout.channels + o];
        to = args.add ? to + sum : sum;
      }
    }
  }
  if (c.bias) {
    for (std::int64_t o = 0; o < c.out_c; ++o) {
      args.dbias[o] = args.add ? args.dbias[o] + dbias[o] : dbias[o];
    }
  }
}

}  // namespace dpt::direct
