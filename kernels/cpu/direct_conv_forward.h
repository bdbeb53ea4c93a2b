// Direct convolution, forward: rows of a tile are output pixels, lanes are output channels. The
// weights are packed per call into panels [depth][channels of the tile]; x is read where it lies.
#pragma once

#include "kernels/cpu/direct_conv.h"
#include "kernels/cpu/direct_tile.h"

namespace dpt::direct {

/// Where the parts of scratch and saved lie, in floats (saved in bytes).
template <class V>
struct ConvLayout {
  std::int64_t vectors;                   ///< of output channels
  std::int64_t channels;                  ///< output channels, rounded up to whole vectors
  std::int64_t run_vectors, run_columns;  ///< likewise for the run of (kw, ic)
  bool lanes_are_outputs;                 ///< weight gradient: lanes over oc, not over (kw, ic)
  std::int64_t image, weights, bias, dy, columns, gradient, total;
  std::int64_t column_rows;  ///< rows of dx whose columns are computed at a time
  std::int64_t mask_bytes;   ///< of saved, per sample

  explicit ConvLayout(const Conv& c) {
    constexpr std::int64_t kLanes = V::kLanes;
    vectors = (c.out_c + kLanes - 1) / kLanes;
    channels = vectors * kLanes;
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
    image = take(c.padded() ? c.padded_h() * c.padded_row() : 0);
    const std::int64_t forward_weights = c.depth() * channels;
    const std::int64_t backward_weights = c.input_gradient ? c.kernel_h * c.out_c * run_columns : 0;
    weights = take(forward_weights > backward_weights ? forward_weights : backward_weights);
    bias = take(channels);
    dy = take(c.pixels() * channels);
    columns = take(c.input_gradient ? column_rows * c.conv_w * run_columns : 0);
    gradient = take(lanes_are_outputs ? c.depth() * channels : 0);
    total = at;
  }
};

/// Reads and writes the mask of one vector of one pixel.
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

/// One image of x with its zero border, in scratch; or x itself when there is no border.
template <class V>
const float* bordered_image(const Conv& c, const float* x, float* to) {
  if (!c.padded()) return x;
  const std::int64_t row = c.padded_row(), inner = c.in_w * c.in_c, side = c.pad_w * c.in_c;
  for (std::int64_t i = 0; i < c.pad_h * row; ++i) to[i] = 0;
  float* at = to + c.pad_h * row;
  for (std::int64_t h = 0; h < c.in_h; ++h, at += row, x += inner) {
    for (std::int64_t i = 0; i < side; ++i) at[i] = at[side + inner + i] = 0;
    std::int64_t i = 0;
    for (; i + V::kLanes <= inner; i += V::kLanes) V::load(x + i).store(at + side + i);
    for (; i < inner; ++i) at[side + i] = x[i];
  }
  for (std::int64_t i = 0; i < c.pad_h * row; ++i) at[i] = 0;
  return to;
}

/// Weights (oc, depth) -> for each tile of vectors a panel [depth][lanes]; unused lanes are zero.
template <class V>
void pack_forward(const Conv& c, const ConvLayout<V>& layout, const float* weight, float* to) {
  const std::int64_t depth = c.depth();
  const Split tiles(layout.vectors, kMaxVectors);
  for (std::int64_t t = 0; t < tiles.parts; ++t) {
    const std::int64_t first = tiles.begin(t) * V::kLanes, width = tiles.size(t) * V::kLanes;
    for (std::int64_t lane = 0; lane < width; lane += 8) {
      for (std::int64_t k = 0; k < depth; k += 8) {
        // Blocks of 8 x 8 keep both sides in the cache's lines.
        const std::int64_t end = k + 8 < depth ? k + 8 : depth;
        for (std::int64_t o = lane; o < lane + 8; ++o) {
          const float* from = weight + (first + o) * depth;
          if (first + o < c.out_c) {
            for (std::int64_t i = k; i < end; ++i) to[i * width + o] = from[i];
          } else {
            for (std::int64_t i = k; i < end; ++i) to[i * width + o] = 0;
          }
        }
      }
    }
    to += depth * width;
  }
}

/// acc += x at the pixels that `a` points to, times a panel.
template <class V, int R, int N>
[[gnu::always_inline]] inline void convolve(const Conv& c, V (&acc)[R][N],
                                            const float* const (&pixels)[R], const float* panel) {
  const float* a[R];
  for (int r = 0; r < R; ++r) a[r] = pixels[r];
  const std::int64_t run = c.run(), row = c.padded_row();
  for (std::int64_t kh = 0; kh < c.kernel_h; ++kh) {
    accumulate<V, R, N>(acc, a, 1, panel, N * V::kLanes, run);
    for (int r = 0; r < R; ++r) a[r] += row;
    panel += run * N * V::kLanes;
  }
}

/// One tile of R pixels without pooling; `mask` cuts the last vector at the last channel.
template <class V, int R, int N>
void forward_tile(const Conv& c, const float* x, const float* panel, const float* bias, float* y,
                  typename V::Mask mask) {
  V acc[R][N];
  const float* pixels[R];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    pixels[r] = x + r * c.stride_w * c.in_c;
#pragma GCC unroll 8
    for (int j = 0; j < N; ++j) acc[r][j] = V::load(bias + j * V::kLanes);
  }
  convolve<V, R, N>(c, acc, pixels, panel);
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    float* to = y + r * c.out_c;
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

/// One pooling window: 2x2 pixels in registers, so that the convolution's output never exists.
/// `bits` keeps which pixels pass a gradient: [pixel][vector of the layer].
template <class V, int N>
void forward_window(const Conv& c, const float* x, const float* panel, const float* bias, float* y,
                    std::uint8_t* bits, std::int64_t bits_step, typename V::Mask mask) {
  V acc[4][N];
  const float* pixels[4];
#pragma GCC unroll 4
  for (int r = 0; r < 4; ++r) {
    pixels[r] = x + (r / 2) * c.stride_h * c.padded_row() + (r % 2) * c.stride_w * c.in_c;
#pragma GCC unroll 4
    for (int j = 0; j < N; ++j) acc[r][j] = V::load(bias + j * V::kLanes);
  }
  convolve<V, 4, N>(c, acc, pixels, panel);
#pragma GCC unroll 4
  for (int j = 0; j < N; ++j) {
    const std::int64_t at = j * (V::kLanes / 8);
    V out;
    if (c.pool == FusedPool::average) {
      if (c.relu) {
        if (bits) {
          for (int r = 0; r < 4; ++r)
            put_bits<V>(bits + at + r * bits_step, acc[r][j].positive_bits());
        }
        for (int r = 0; r < 4; ++r) acc[r][j] = acc[r][j].relu();
      }
      out = (acc[0][j] + acc[1][j] + acc[2][j] + acc[3][j]) * V::filled(0.25F);
    } else {
      // The first largest pixel wins, as in PyTorch; a later one must be greater, or NaN.
      std::uint32_t won[4];
      out = acc[0][j];
      won[0] = ~0U;
      for (int r = 1; r < 4; ++r) {
        won[r] = V::winning_bits(acc[r][j], out);
        for (int before = 0; before < r; ++before) won[before] &= ~won[r];
        out = V::winner(acc[r][j], out);
      }
      const std::uint32_t passes = c.relu ? out.positive_bits() : ~0U;
      if (c.relu) out = out.relu();
      if (bits) {
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

template <class V>
void conv_forward(const Conv& c, const ConvArgs& args) {
  const ConvLayout<V> layout(c);
  float* weights = args.scratch + layout.weights;
  float* bias = args.scratch + layout.bias;
  pack_forward<V>(c, layout, args.weight, weights);
  for (std::int64_t i = 0; i < layout.channels; ++i) {
    bias[i] = c.bias && i < c.out_c ? args.bias[i] : 0.0F;
  }
  const std::int64_t out_row = c.out_w * c.out_c;
  const std::int64_t step_h = c.stride_h * c.padded_row(), step_w = c.stride_w * c.in_c;
  const std::int64_t bits_step =
      layout.mask_bytes == 0 || !args.saved ? 0 : layout.vectors * (V::kLanes / 8);
  const Split tiles(layout.vectors, kMaxVectors);
  for (std::int64_t n = 0; n < c.batch; ++n) {
    const float* x =
        bordered_image<V>(c, args.x + n * c.in_h * c.in_w * c.in_c, args.scratch + layout.image);
    float* y = args.y + n * c.out_h * out_row;
    std::uint8_t* saved = bits_step != 0 ? args.saved + n * layout.mask_bytes : nullptr;
    for (std::int64_t t = 0; t < tiles.parts; ++t) {
      const std::int64_t vector = tiles.begin(t), wide = tiles.size(t);
      const std::int64_t channel = vector * V::kLanes;
      const std::int64_t left = c.out_c - channel - (wide - 1) * V::kLanes;
      const auto mask = V::first(left < V::kLanes ? left : V::kLanes);
      const float* panel = weights + c.depth() * channel;
      if (c.pool == FusedPool::none) {
        const Split pixels(
            c.conv_w, wide == 1 ? max_rows<V>(1) : (wide == 2 ? max_rows<V>(2) : max_rows<V>(3)));
        for (std::int64_t oh = 0; oh < c.conv_h; ++oh) {
          for (std::int64_t p = 0; p < pixels.parts; ++p) {
            const std::int64_t ow = pixels.begin(p);
            with_tile<V>(pixels.size(p), wide, [&]<int R, int N>() {
              forward_tile<V, R, N>(c, x + oh * step_h + ow * step_w, panel, bias + channel,
                                    y + oh * out_row + ow * c.out_c + channel, mask);
            });
          }
        }
        continue;
      }
      for (std::int64_t oh = 0; oh < c.out_h; ++oh) {
        for (std::int64_t ow = 0; ow < c.out_w; ++ow) {
          const float* from = x + 2 * oh * step_h + 2 * ow * step_w;
          float* to = y + oh * out_row + ow * c.out_c + channel;
          std::uint8_t* bits = nullptr;
          if (saved) {
            bits = saved + (oh * c.out_w + ow) * 4 * bits_step + vector * (V::kLanes / 8);
          }
          if (wide == 1) {
            forward_window<V, 1>(c, from, panel, bias + channel, to, bits, bits_step, mask);
          } else if (wide == 2) {
            forward_window<V, 2>(c, from, panel, bias + channel, to, bits, bits_step, mask);
          } else {
            forward_window<V, 3>(c, from, panel, bias + channel, to, bits, bits_step, mask);
          }
        }
      }
    }
  }
}

}  // namespace dpt::direct
