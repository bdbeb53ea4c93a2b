// Direct convolution, forward. The rows of a tile are output pixels, its lanes are output channels.
// Every call packs the weights into panels [kernel row][unit of the run][channels of the
// tile][terms]; x is read in place.
#pragma once

#include <cstring>

#include "kernels/cpu/simd/conv_table.h"
#include "kernels/cpu/simd/direct_tile.h"

namespace dpt::direct {

inline constexpr int kMaxOddChannels = 2;

/// Layout of scratch and saved memory, in floats (saved: in bytes).
template <class V>
struct ConvLayout {
  std::int64_t vectors;                   ///< number of vectors of output channels
  std::int64_t channels;                  ///< output channels, rounded up to whole vectors
  std::int64_t packed;                    ///< vectors of the forward pass's panels
  std::int64_t odd;                       ///< remaining channels, computed as dot products
  std::int64_t run_vectors, run_columns;  ///< like `vectors` and `channels`, for the run (kw, ic)
  bool lanes_are_outputs;                 ///< weight gradient: lanes over oc, not over (kw, ic)
  bool copies_image;  ///< x is copied, because of its border or to fill the last unit
  std::int64_t image, weights, bias, sample_bias, dy, columns, gradient, total;
  /// Copies of x and dy for the weight gradient, used if a unit has two terms: their sizes per
  /// sample, the number of samples that are summed together in registers, and their places.
  std::int64_t image_units = 0, dy_units = 0, group = 1, paired_image, paired_dy;
  std::int64_t column_rows;  ///< rows of dx whose columns are computed at a time
  std::int64_t mask_bytes;   ///< bytes of saved, per sample

  explicit ConvLayout(const Conv& c) {
    constexpr std::int64_t kLanes = V::kLanes;
    vectors = (c.out_c + kLanes - 1) / kLanes;
    channels = vectors * kLanes;
    // One or two remaining channels would cost a whole vector; lanes over (kw, ic) waste less.
    odd = c.out_c % kLanes;
    if (odd > kMaxOddChannels || c.out_c < kLanes || c.run() < 2 * kLanes) odd = 0;
    packed = odd > 0 ? vectors - 1 : vectors;
    run_vectors = (c.run() + kLanes - 1) / kLanes;
    run_columns = run_vectors * kLanes;
    lanes_are_outputs = c.run() * channels < run_columns * c.out_c;
    constexpr std::int64_t kColumnFloats = 16384;
    column_rows = kColumnFloats / (c.conv_w * run_columns);
    if (column_rows < 1) column_rows = 1;
    if (column_rows > c.padded_h()) column_rows = c.padded_h();
    const bool mask = c.relu || c.pool == FusedPool::max;
    mask_bytes = c.pool == FusedPool::none || !mask ? 0 : c.pixels() * vectors * (kLanes / 8);

    std::int64_t at = 0;
    const auto take = [&at](std::int64_t floats) {
      const std::int64_t begin = at;
      at += (floats + 15) / 16 * 16;
      return begin;
    };
    // Sizes of arrays of values are in whole units, and a unit is as large as a float.
    copies_image = c.padded() || c.run() % V::kTerms != 0;
    const std::int64_t pixels_of_x = c.padded_h() * c.padded_row();
    image = take(copies_image ? units<V>(pixels_of_x + V::kTerms - 1) : 0);
    const std::int64_t forward_weights = c.kernel_h * units<V>(c.run()) * channels;
    const std::int64_t backward_weights =
        c.input_gradient ? c.kernel_h * units<V>(c.out_c) * run_columns : 0;
    weights = take(forward_weights > backward_weights ? forward_weights : backward_weights);
    bias = take(channels);
    sample_bias = take(c.training ? channels : 0);
    dy = take(c.training ? units<V>(c.pixels() * channels) : 0);
    if (V::kTerms > 1 && c.training) {
      constexpr std::int64_t kGroupUnits = 65536;
      image_units = pixels_of_x;
      dy_units = c.conv_h * units<V>(c.conv_w) * channels;
      group = kGroupUnits / (image_units + dy_units);
      if (group > c.batch) group = c.batch;
      if (group < 1) group = 1;
    }
    paired_image = take(group * image_units);
    paired_dy = take(group * dy_units);
    columns = take(c.input_gradient ? column_rows * c.conv_w * run_columns : 0);
    gradient = take(c.training && lanes_are_outputs ? c.depth() * channels : 0);
    total = at;
  }
};

template <class V>
std::size_t conv_scratch_bytes(const Conv& c) {
  return static_cast<std::size_t>(ConvLayout<V>(c).total) * sizeof(float);
}
template <class V>
std::size_t conv_saved_bytes(const Conv& c) {
  return static_cast<std::size_t>(ConvLayout<V>(c).mask_bytes * c.batch);
}

/// Write and read the mask of one vector of one pixel.
template <class V>
[[gnu::always_inline]] inline void put_bits(std::uint8_t* to, std::uint32_t bits) {
  to[0] = static_cast<std::uint8_t>(bits);
  if constexpr (V::kLanes == 16) to[1] = static_cast<std::uint8_t>(bits >> 8);
}
template <class V>
[[gnu::always_inline]] inline std::uint32_t get_bits(const std::uint8_t* from) {
  if constexpr (V::kLanes == 16) {
    return from[0] | static_cast<std::uint32_t>(from[1]) << 8;
  } else {
    return from[0];
  }
}

/// Returns the image `x` with its zero border, copied to `to`, or `x` itself if no copy is needed.
template <class V>
const typename V::Value* bordered_image(const Conv& c, const ConvLayout<V>& layout,
                                        const typename V::Value* x, typename V::Value* to) {
  using Value = typename V::Value;
  if (!layout.copies_image) return x;
  const std::int64_t row = c.padded_row(), inner = c.in_w * c.in_c, side = c.pad_w * c.in_c;
  const auto clear = [](Value* at, std::int64_t count) {
    std::memset(static_cast<void*>(at), 0, static_cast<std::size_t>(count) * sizeof(Value));
  };
  clear(to, c.pad_h * row);
  Value* at = to + c.pad_h * row;
  for (std::int64_t h = 0; h < c.in_h; ++h, at += row, x += inner) {
    clear(at, side);
    std::memcpy(at + side, x, static_cast<std::size_t>(inner) * sizeof(Value));
    clear(at + side + inner, side);
  }
  clear(at, c.pad_h * row + V::kTerms - 1);
  return to;
}

/// Packs weights (oc, depth) into a panel for each tile of vectors; unused lanes and terms are
/// zero.
template <class V>
void pack_forward(const Conv& c, const ConvLayout<V>& layout, const typename V::Value* weight,
                  typename V::Value* to) {
  constexpr std::int64_t kTerms = V::kTerms;
  const std::int64_t depth = c.depth(), run = c.run(), count = units<V>(run);
  const Split tiles(layout.packed, kMaxVectors);
  for (std::int64_t t = 0; t < tiles.parts; ++t) {
    const std::int64_t first = tiles.begin(t) * V::kLanes, width = tiles.size(t) * V::kLanes;
    for (std::int64_t kh = 0; kh < c.kernel_h; ++kh, to += count * width * kTerms) {
      for (std::int64_t lane = 0; lane < width; lane += 8) {
        const auto* from = weight + (first + lane) * depth + kh * run;
        const std::int64_t left = c.out_c - first - lane;
        std::int64_t k = 0;
        for (; (k + 8) * kTerms <= run; k += 8) {
          V::transpose8(from + k * kTerms, depth, left, to + (k * width + lane) * kTerms, width);
        }
        for (; k < count; ++k) {
          for (std::int64_t i = 0; i < 8 * kTerms; ++i) {
            const std::int64_t o = i / kTerms, at = k * kTerms + i % kTerms;
            to[(k * width + lane) * kTerms + i] =
                o < left && at < run ? from[o * depth + at] : typename V::Value{};
          }
        }
      }
    }
  }
}

/// Computes acc (R pixels) = bias + the products of x and the weights.
template <class V, int R, int N>
[[gnu::always_inline]] inline void convolve(const Conv& c, V (&acc)[R][N],
                                            const typename V::Value* (&a)[R],
                                            const typename V::Value* panel, const float* bias) {
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int j = 0; j < N; ++j) acc[r][j] = V::load(bias + j * V::kLanes);
  }
  constexpr std::int64_t kStep = N * V::kLanes * V::kTerms;
  const std::int64_t count = units<V>(c.run()), row = c.padded_row();
  for (std::int64_t kh = 0; kh < c.kernel_h; ++kh) {
    accumulate<V, R, N>(acc, a, V::kTerms, panel, kStep, count);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) a[r] += row;
    panel += count * kStep;
  }
}

/// Stores y of R neighbouring pixels without pooling; `mask` selects the channels of the last
/// vector.
template <class V, int R, int N>
[[gnu::always_inline]] inline void finish_pixels(const Conv& c, V (&acc)[R][N],
                                                 typename V::Value* y, typename V::Mask mask) {
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    auto* to = y + r * c.out_c;
#pragma GCC unroll 8
    for (int j = 0; j < N; ++j) {
      const V value = c.relu ? acc[r][j].relu() : acc[r][j];
      if (j + 1 < N) {
        value.store(to + j * V::kLanes);
      } else {
        value.store(to + j * V::kLanes, mask);
      }
    }
  }
}

/// Computes y of one pooling window, whose 2x2 pixels are in registers. The convolution's output is
/// never stored. `bits` records the pixels that pass a gradient: [pixel][vector of the layer].
template <class V, int N>
[[gnu::always_inline]] inline void finish_window(const Conv& c, V (&acc)[4][N],
                                                 typename V::Value* y, std::uint8_t* bits,
                                                 std::int64_t bits_step, typename V::Mask mask) {
#pragma GCC unroll 4
  for (int j = 0; j < N; ++j) {
    const std::int64_t at = j * (V::kLanes / 8);
    V out;
    if (c.pool == FusedPool::average) {
      if (c.relu) {
        if (bits) {
#pragma GCC unroll 8
          for (int r = 0; r < 4; ++r)
            put_bits<V>(bits + at + r * bits_step, acc[r][j].positive_bits());
        }
#pragma GCC unroll 8
        for (int r = 0; r < 4; ++r) acc[r][j] = acc[r][j].relu();
      }
      out = (acc[0][j] + acc[1][j] + acc[2][j] + acc[3][j]) * V::filled(0.25F);
    } else {
      // The first of equal pixels wins, as in PyTorch; a later one must be greater, or NaN.
      std::uint32_t won[4];
      out = acc[0][j];
      won[0] = ~0U;
#pragma GCC unroll 8
      for (int r = 1; r < 4; ++r) {
        won[r] = V::winning_bits(acc[r][j], out);
#pragma GCC unroll 8
        for (int before = 0; before < r; ++before) won[before] &= ~won[r];
        out = V::winner(acc[r][j], out);
      }
      const std::uint32_t passes = c.relu ? out.positive_bits() : ~0U;
      if (c.relu) out = out.relu();
      if (bits) {
#pragma GCC unroll 8
        for (int r = 0; r < 4; ++r) put_bits<V>(bits + at + r * bits_step, won[r] & passes);
      }
    }
    if (j + 1 < N) {
      out.store(y + j * V::kLanes);
    } else {
      out.store(y + j * V::kLanes, mask);
    }
  }
}

template <class V, int R, int N>
void forward_tile(const Conv& c, const typename V::Value* x, const typename V::Value* panel,
                  const float* bias, typename V::Value* y, typename V::Mask mask) {
  V acc[R][N];
  const typename V::Value* pixels[R];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) pixels[r] = x + r * c.stride_w * c.in_c;
  convolve<V, R, N>(c, acc, pixels, panel, bias);
  finish_pixels<V, R, N>(c, acc, y, mask);
}

template <class V, int N>
void forward_window(const Conv& c, const typename V::Value* x, const typename V::Value* panel,
                    const float* bias, typename V::Value* y, std::uint8_t* bits,
                    std::int64_t bits_step, typename V::Mask mask) {
  V acc[4][N];
  const typename V::Value* pixels[4];
#pragma GCC unroll 4
  for (int r = 0; r < 4; ++r) {
    pixels[r] = x + (r / 2) * c.stride_h * c.padded_row() + (r % 2) * c.stride_w * c.in_c;
  }
  convolve<V, 4, N>(c, acc, pixels, panel, bias);
  finish_window<V, N>(c, acc, y, bits, bits_step, mask);
}

/// Computes four pixels of Q remaining channels as dot products with the unpacked weights. Lanes 0
/// to Q - 1 of acc are the channels; the others are zero.
template <class V, int Q>
[[gnu::always_inline]] inline void odd_channels(const Conv& c, const typename V::Value* (&a)[4],
                                                const typename V::Value* weight, const float* bias,
                                                V (&acc)[4][1]) {
  V dots[4][Q];
  const typename V::Value* b[Q];
#pragma GCC unroll 8
  for (int q = 0; q < Q; ++q) b[q] = weight + q * c.depth();
#pragma GCC unroll 8
  for (int r = 0; r < 4; ++r) {
#pragma GCC unroll 8
    for (int q = 0; q < Q; ++q) dots[r][q] = V::zero();
  }
  for (std::int64_t kh = 0; kh < c.kernel_h; ++kh) {
    accumulate_dots<V, 4, Q>(dots, a, b, c.run());
#pragma GCC unroll 8
    for (int r = 0; r < 4; ++r) a[r] += c.padded_row();
#pragma GCC unroll 8
    for (int q = 0; q < Q; ++q) b[q] += c.run();
  }
#pragma GCC unroll 8
  for (int r = 0; r < 4; ++r) {
    float lanes[V::kLanes] = {};
#pragma GCC unroll 8
    for (int q = 0; q < Q; ++q) lanes[q] = dots[r][q].sum() + bias[q];
    acc[r][0] = V::load(lanes);
  }
}

/// Computes the Q remaining channels of one sample. `y` and `bits` point to the first of them.
template <class V, int Q>
void forward_odd(const Conv& c, const typename V::Value* x, const typename V::Value* weight,
                 const float* bias, typename V::Value* y, std::uint8_t* bits,
                 std::int64_t bits_step) {
  const auto mask = V::first(Q);
  const std::int64_t step_h = c.stride_h * c.padded_row(), step_w = c.stride_w * c.in_c;
  V acc[4][1];
  const typename V::Value* a[4];
  for (std::int64_t oh = 0; oh < c.out_h; ++oh) {
    if (c.pool != FusedPool::none) {
      for (std::int64_t ow = 0; ow < c.out_w; ++ow) {
        const std::int64_t window = oh * c.out_w + ow;
        const auto* from = x + 2 * oh * step_h + 2 * ow * step_w;
#pragma GCC unroll 4
        for (int r = 0; r < 4; ++r) a[r] = from + (r / 2) * step_h + (r % 2) * step_w;
        odd_channels<V, Q>(c, a, weight, bias, acc);
        finish_window<V, 1>(c, acc, y + window * c.out_c,
                            bits ? bits + window * 4 * bits_step : nullptr, bits_step, mask);
      }
      continue;
    }
    for (std::int64_t ow = 0; ow < c.out_w; ow += 4) {
      const std::int64_t here = c.out_w - ow < 4 ? c.out_w - ow : 4;
#pragma GCC unroll 4
      for (int r = 0; r < 4; ++r) {
        // Past the row's end, compute the last pixel again without storing it.
        a[r] = x + oh * step_h + (ow + (r < here ? r : here - 1)) * step_w;
      }
      odd_channels<V, Q>(c, a, weight, bias, acc);
      auto* to = y + (oh * c.out_w + ow) * c.out_c;
      for (std::int64_t r = 0; r < here; ++r) {
        const V value = c.relu ? acc[r][0].relu() : acc[r][0];
        value.store(to + r * c.out_c, mask);
      }
    }
  }
}

/// Forward pass of one sample for one tile of output channels. The tile's weights stay in the
/// second-level cache, which is fast enough (docs/internals/performance.md).
template <class V>
struct ForwardTiles {
  using Value = typename V::Value;
  const Conv& c;
  std::int64_t wide;  ///< vectors of the tile
  const Value *x, *panel;
  const float* bias;
  Value* y;
  std::uint8_t* bits;
  std::int64_t bits_step;  ///< distance between the masks of neighbouring pixels; 0 = no masks
  typename V::Mask mask;

  void run_pixels() const {
    const Split pixels(c.conv_w, most_rows<V>(wide));
    for (std::int64_t oh = 0; oh < c.out_h; ++oh) {
      for (std::int64_t p = 0; p < pixels.parts; ++p) {
        const std::int64_t ow = pixels.begin(p);
        const Value* from = x + oh * c.stride_h * c.padded_row() + ow * c.stride_w * c.in_c;
        Value* to = y + (oh * c.out_w + ow) * c.out_c;
        with_tile<V>(pixels.size(p), wide, [&]<int R, int N>() {
          forward_tile<V, R, N>(c, from, panel, bias, to, mask);
        });
      }
    }
  }

  template <int N>
  void run_windows() const {
    for (std::int64_t oh = 0; oh < c.out_h; ++oh) {
      for (std::int64_t ow = 0; ow < c.out_w; ++ow) {
        const std::int64_t window = oh * c.out_w + ow;
        const Value* from = x + 2 * oh * c.stride_h * c.padded_row() + 2 * ow * c.stride_w * c.in_c;
        forward_window<V, N>(c, from, panel, bias, y + window * c.out_c,
                             bits ? bits + window * 4 * bits_step : nullptr, bits_step, mask);
      }
    }
  }

  void run() const {
    if (c.pool == FusedPool::none) return run_pixels();
    if (wide == 1) return run_windows<1>();
    if (wide == 2) return run_windows<2>();
    run_windows<3>();
  }
};

template <class V>
void conv_forward(const Conv& c, const ConvCall<typename V::Value>& args) {
  using Value = typename V::Value;
  const ConvLayout<V> layout(c);
  auto* weights = reinterpret_cast<Value*>(args.scratch + layout.weights);
  auto* image = reinterpret_cast<Value*>(args.scratch + layout.image);
  float* bias = args.scratch + layout.bias;
  pack_forward<V>(c, layout, args.weight, weights);
  for (std::int64_t i = 0; i < layout.channels; ++i) {
    bias[i] = c.bias && i < c.out_c ? args.bias[i] : 0.0F;
  }
  constexpr std::int64_t kMaskBytes = V::kLanes / 8;
  const std::int64_t panel_depth = c.kernel_h * units<V>(c.run()) * V::kTerms;
  const bool masks = layout.mask_bytes != 0 && args.saved;
  const Split tiles(layout.packed, kMaxVectors);
  for (std::int64_t n = 0; n < c.batch; ++n) {
    const Value* x = bordered_image<V>(c, layout, args.x + n * c.in_h * c.in_w * c.in_c, image);
    for (std::int64_t t = 0; t < tiles.parts; ++t) {
      const std::int64_t channel = tiles.begin(t) * V::kLanes, wide = tiles.size(t);
      const std::int64_t left = c.out_c - channel - (wide - 1) * V::kLanes;
      ForwardTiles<V>{
          c,
          wide,
          x,
          weights + panel_depth * channel,
          bias + channel,
          args.y + n * c.out_h * c.out_w * c.out_c + channel,
          masks ? args.saved + n * layout.mask_bytes + tiles.begin(t) * kMaskBytes : nullptr,
          layout.vectors * kMaskBytes,
          V::first(left < V::kLanes ? left : V::kLanes)}
          .run();
    }
    if (layout.odd == 0) continue;
    const std::int64_t channel = layout.packed * V::kLanes;
    const auto odd = layout.odd == 1 ? forward_odd<V, 1> : forward_odd<V, 2>;
    odd(c, x, args.weight + channel * c.depth(), bias + channel,
        args.y + n * c.out_h * c.out_w * c.out_c + channel,
        masks ? args.saved + n * layout.mask_bytes + layout.packed * kMaskBytes : nullptr,
        layout.vectors * kMaskBytes);
  }
}

}  // namespace dpt::direct
