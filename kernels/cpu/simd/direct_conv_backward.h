// Direct convolution, backward, one sample at a time so that x, dy and dx stay in the cache:
//  1. the gradient of the convolution's output is computed from that of y (pooling, ReLU mask),
//  2. weight gradient: tiles of dw summed over pixels, lanes over the run of (kw, ic) or over oc,
//  3. data gradient: for each row of x, lanes over the run of (kw, ic), summed over kh and oc in
//     registers; then each pixel of x collects its kw terms. No product is wasted.
#pragma once

#include "kernels/cpu/simd/direct_conv_forward.h"

namespace dpt::direct {

/// Computes the convolution's dy (pixels, channels) from dy after pooling and ReLU; adds up dbias.
template <class V>
void unfold_gradient(const Conv& c, const ConvLayout<V>& layout, const float* dy, const float* y,
                     const std::uint8_t* saved, float* to, float* dbias) {
  constexpr std::int64_t kMaskBytes = V::kLanes / 8;
  const auto tail = V::first(c.out_c - (layout.vectors - 1) * V::kLanes);
  const std::int64_t windows = c.out_h * c.out_w;
  const std::int64_t row = c.conv_w * layout.channels;
  const bool average = c.pool == FusedPool::average;
  for (std::int64_t i = 0; i < windows; ++i, dy += c.out_c) {
    float* pixel = to + (c.pool == FusedPool::none
                             ? i * layout.channels
                             : i / c.out_w * 2 * row + i % c.out_w * 2 * layout.channels);
    for (std::int64_t j = 0; j < layout.vectors; ++j, pixel += V::kLanes) {
      const std::int64_t at = j * V::kLanes;
      const bool last = j + 1 == layout.vectors;
      V g = last ? V::load(dy + at, tail) : V::load(dy + at);
      V sum = V::load(dbias + at);
      if (c.pool == FusedPool::none) {
        if (c.relu)
          g = g.keep_positive(last ? V::load(y + i * c.out_c + at, tail)
                                   : V::load(y + i * c.out_c + at));
        g.store(pixel);
        (sum + g).store(dbias + at);
        continue;
      }
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

/// Size in floats of a strip of rows of the convolution's output, chosen so that these rows and the
/// corresponding rows of x stay in the first-level cache.
inline constexpr std::int64_t kStripFloats = 7168;

/// Computes dw[o + r][kh][first + j-th vector] += sum over the strip's pixels of dy[o + r] x[...].
template <class V, int R, int N, bool kWhole>
void weight_tile(const Conv& c, const float* x, const float* dy, std::int64_t channels,
                 std::int64_t rows, float* dw, bool add, typename V::Mask mask) {
  V acc[R][N];
  const float* a[R];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    a[r] = dy + r;
#pragma GCC unroll 8
    for (int j = 0; j < N; ++j) acc[r][j] = V::zero();
  }
  for (std::int64_t h = 0; h < rows; ++h) {
    if constexpr (kWhole) {
      accumulate<V, R, N>(acc, a, channels, x, c.stride_w * c.in_c, c.conv_w);
    } else {
      accumulate_masked<V, R, N>(acc, a, channels, x, c.stride_w * c.in_c, c.conv_w, mask);
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) a[r] += c.conv_w * channels;
    x += c.stride_h * c.padded_row();
  }
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
void weight_gradient(const Conv& c, const ConvLayout<V>& layout, const float* x, const float* dy,
                     std::int64_t rows, float* dw, bool add) {
  const Split tiles(layout.run_vectors, kMaxVectors);
  for (std::int64_t kh = 0; kh < c.kernel_h; ++kh) {
    for (std::int64_t t = 0; t < tiles.parts; ++t) {
      const std::int64_t column = tiles.begin(t) * V::kLanes, wide = tiles.size(t);
      const std::int64_t left = c.run() - column - (wide - 1) * V::kLanes;
      const auto mask = V::first(left < V::kLanes ? left : V::kLanes);
      const Split outputs(c.out_c, most_rows<V>(wide));
      const float* from = x + kh * c.padded_row() + column;
      for (std::int64_t p = 0; p < outputs.parts; ++p) {
        const std::int64_t o = outputs.begin(p);
        float* to = dw + o * c.depth() + kh * c.run() + column;
        with_tile<V>(outputs.size(p), wide, [&]<int R, int N>() {
          if (left >= V::kLanes) {
            weight_tile<V, R, N, true>(c, from, dy + o, layout.channels, rows, to, add, mask);
          } else {
            weight_tile<V, R, N, false>(c, from, dy + o, layout.channels, rows, to, add, mask);
          }
        });
      }
    }
  }
}

/// Computes gradient[k + r][j-th vector of oc] += sum over the strip's pixels of x[... + r]
/// dy[...].
template <class V, int R, int N>
void transposed_weight_tile(const Conv& c, const float* x, const float* dy, std::int64_t channels,
                            std::int64_t rows, float* gradient) {
  V acc[R][N];
  const float* a[R];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    a[r] = x + r;
#pragma GCC unroll 8
    for (int j = 0; j < N; ++j) acc[r][j] = V::load(gradient + r * channels + j * V::kLanes);
  }
  for (std::int64_t h = 0; h < rows; ++h) {
    accumulate<V, R, N>(acc, a, c.stride_w * c.in_c, dy, channels, c.conv_w);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) a[r] += c.stride_h * c.padded_row();
    dy += c.conv_w * channels;
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int j = 0; j < N; ++j) acc[r][j].store(gradient + r * channels + j * V::kLanes);
  }
}

/// Computes the weight gradient with lanes over oc, for short runs (few input channels). The sums
/// stay in scratch as (depth, channels).
template <class V>
void transposed_weight_gradient(const Conv& c, const ConvLayout<V>& layout, const float* x,
                                const float* dy, std::int64_t rows, float* gradient) {
  const Split tiles(layout.vectors, kMaxVectors);
  for (std::int64_t t = 0; t < tiles.parts; ++t) {
    const std::int64_t channel = tiles.begin(t) * V::kLanes, wide = tiles.size(t);
    const Split taps(c.run(), most_rows<V>(wide));
    for (std::int64_t kh = 0; kh < c.kernel_h; ++kh) {
      for (std::int64_t p = 0; p < taps.parts; ++p) {
        const std::int64_t k = taps.begin(p);
        with_tile<V>(taps.size(p), wide, [&]<int R, int N>() {
          transposed_weight_tile<V, R, N>(
              c, x + kh * c.padded_row() + k, dy + channel, layout.channels, rows,
              gradient + (kh * c.run() + k) * layout.channels + channel);
        });
      }
    }
  }
}

/// Packs weights (oc, kh, run) into a panel [kh][oc][lanes] for each tile of the run; unused lanes
/// are zero.
template <class V>
void pack_backward(const Conv& c, const ConvLayout<V>& layout, const float* weight, float* to) {
  const Split tiles(layout.run_vectors, kMaxVectors);
  for (std::int64_t t = 0; t < tiles.parts; ++t) {
    const std::int64_t column = tiles.begin(t) * V::kLanes, wide = tiles.size(t);
    const std::int64_t left = c.run() - column - (wide - 1) * V::kLanes;
    const auto mask = V::first(left < V::kLanes ? left : V::kLanes);
    for (std::int64_t kh = 0; kh < c.kernel_h; ++kh) {
      for (std::int64_t o = 0; o < c.out_c; ++o) {
        const float* from = weight + o * c.depth() + kh * c.run() + column;
        for (std::int64_t j = 0; j + 1 < wide; ++j, to += V::kLanes) {
          V::load(from + j * V::kLanes).store(to);
        }
        V::load(from + (wide - 1) * V::kLanes, mask).store(to);
        to += V::kLanes;
      }
    }
  }
}

/// Computes columns[r][j-th vector], the contribution of R neighbouring pixels of dy to one row of
/// dx, summed over `count` corresponding rows of dy and of the kernel.
template <class V, int R, int N>
void column_tile(const Conv& c, const float* dy, std::int64_t channels, std::int64_t dy_step,
                 const float* panel, std::int64_t panel_step, std::int64_t count, float* columns,
                 std::int64_t columns_step) {
  V acc[R][N];
  const float* a[R];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    a[r] = dy + r * channels;
#pragma GCC unroll 8
    for (int j = 0; j < N; ++j) acc[r][j] = V::zero();
  }
  for (std::int64_t i = 0; i < count; ++i) {
    accumulate<V, R, N>(acc, a, 1, panel, N * V::kLanes, c.out_c);
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
void collect_row(const Conv& c, const ConvLayout<V>& layout, const float* columns, float* dx) {
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
void data_gradient(const Conv& c, const ConvLayout<V>& layout, const float* dy,
                   const float* weights, float* columns, float* dx) {
  const Split tiles(layout.run_vectors, kMaxVectors);
  const std::int64_t dy_row = c.conv_w * layout.channels;
  const std::int64_t columns_row = c.conv_w * layout.run_columns;
  for (std::int64_t first = 0; first < c.in_h; first += layout.column_rows) {
    const std::int64_t end =
        first + layout.column_rows < c.in_h ? first + layout.column_rows : c.in_h;
    for (std::int64_t t = 0; t < tiles.parts; ++t) {
      const std::int64_t column = tiles.begin(t) * V::kLanes, wide = tiles.size(t);
      const std::int64_t panel_kh = c.out_c * wide * V::kLanes;
      const float* panel = weights + c.kernel_h * c.out_c * column;
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
void conv_backward(const Conv& c, const ConvCall& args) {
  const ConvLayout<V> layout(c);
  // Sum dbias over each sample before adding it to the total, to reduce the rounding of large sums.
  float* dbias = args.scratch + layout.bias;
  float* sample_dbias = args.scratch + layout.partial;
  float* dy = args.scratch + layout.dy;
  float* gradient = args.scratch + layout.gradient;
  for (std::int64_t i = 0; i < layout.channels; ++i) dbias[i] = 0;
  if (layout.lanes_are_outputs) {
    for (std::int64_t i = 0; i < c.depth() * layout.channels; ++i) gradient[i] = 0;
  }
  if (c.input_gradient) pack_backward<V>(c, layout, args.weight, args.scratch + layout.weights);
  const std::int64_t row_floats = c.stride_h * c.padded_row() + c.conv_w * layout.channels;
  const std::int64_t fit = (kStripFloats - c.kernel_h * c.padded_row()) / row_floats;
  const Split strips(c.conv_h, fit > 1 ? fit : 1);
  const std::int64_t in_floats = c.in_h * c.in_w * c.in_c;
  const std::int64_t out_floats = c.out_h * c.out_w * c.out_c;
  for (std::int64_t n = 0; n < c.batch; ++n) {
    const float* x = bordered_image<V>(c, args.x + n * in_floats, args.scratch + layout.image);
    for (std::int64_t i = 0; i < layout.channels; ++i) sample_dbias[i] = 0;
    unfold_gradient<V>(c, layout, args.dy + n * out_floats,
                       args.y ? args.y + n * out_floats : nullptr,
                       args.saved ? args.saved + n * layout.mask_bytes : nullptr, dy, sample_dbias);
    for (std::int64_t i = 0; i < layout.channels; ++i) dbias[i] += sample_dbias[i];
    for (std::int64_t s = 0; s < strips.parts; ++s) {
      const std::int64_t oh = strips.begin(s), rows = strips.size(s);
      const float* from = x + oh * c.stride_h * c.padded_row();
      const float* strip = dy + oh * c.conv_w * layout.channels;
      if (layout.lanes_are_outputs) {
        transposed_weight_gradient<V>(c, layout, from, strip, rows, gradient);
      } else {
        const bool add = args.add || n > 0 || s > 0;
        weight_gradient<V>(c, layout, from, strip, rows, args.dweight, add);
      }
    }
    if (c.input_gradient) {
      data_gradient<V>(c, layout, dy, args.scratch + layout.weights, args.scratch + layout.columns,
                       args.dx + n * in_floats);
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

template <class V>
std::size_t conv_scratch_bytes(const Conv& c) {
  return static_cast<std::size_t>(ConvLayout<V>(c).total) * sizeof(float);
}
template <class V>
std::size_t conv_saved_bytes(const Conv& c) {
  return static_cast<std::size_t>(ConvLayout<V>(c).mask_bytes * c.batch);
}

}  // namespace dpt::direct
