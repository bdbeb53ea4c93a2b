// Convolution kernel for small images, for image_conv_{tf32,bf16,bf16_odd}.cu.
#pragma once

#include <type_traits>

#include "kernels/cuda/conv/gemm_math.cuh"
#include "kernels/cuda/conv/gemm_store.cuh"
#include "kernels/cuda/conv/image_conv.h"
#include "kernels/cuda/runtime/launch.h"

namespace dpt::gemm {

/// Number of elements in a 32-bit word of shared memory: one for bf16 as tf32, otherwise as many as
/// in a word of global memory.
template <class Math>
inline constexpr int kPerWord = std::is_same_v<Math, Bf16AsTf32Math>
                                    ? 1
                                    : 4 / static_cast<int>(sizeof(typename Math::Element));

/// Loads word `i` of a tensor in memory as a word of shared memory.
template <class Math>
__device__ inline std::uint32_t load_word(const void* tensor, std::int64_t i) {
  if constexpr (std::is_same_v<Math, Bf16AsTf32Math>) {
    return static_cast<std::uint32_t>(static_cast<const std::uint16_t*>(tensor)[i]) << 16;
  } else {
    return static_cast<const std::uint32_t*>(tensor)[i];
  }
}

__device__ inline int thread_index() {
  return static_cast<int>(threadIdx.x);
}

/// Loads the weights in the layout of tensor cores: for every step of k and every column tile, two
/// words per lane. Words after a run or a pixel's channels, and columns after the last, are zero.
template <class Math, Pass kPass>
__device__ inline void load_weights(const ConvGemm& g, const ImageShape& s,
                                    std::uint32_t* weights) {
  using Element = typename Math::Element;
  constexpr int kElements = kPerWord<Math>;
  constexpr bool kForward = kPass == Pass::forward;
  const auto* from = static_cast<const Element*>(g.matrix);
  const int channels = s.pixel_words * kElements, window = s.taps_h * s.taps_w;
  // In every tile of 64 words, a thread handles the word with the same index.
  static_assert(kImageThreads % 64 == 0);
  const int within = thread_index() % 64, lane = within / 2;
  for (int k = thread_index() / 64; k < s.taps_h * s.run_steps; k += kImageThreads / 64) {
    auto step = static_cast<std::uint32_t>(k);
    const auto r = static_cast<int>(s.per_run.split(step));
    auto word = step * 8 + static_cast<std::uint32_t>(within % 2 * 4 + lane % 4);
    const bool in_run = static_cast<int>(word) < s.run_words;
    const auto tap = static_cast<int>(s.per_tap.split(word));
    const bool there = in_run && static_cast<int>(word) < s.pixel_words;
    const int channel = static_cast<int>(word) * kElements, tap_at = r * s.taps_w + tap;
    int column = lane / 4;
    int at = kForward ? (column * window + tap_at) * channels + channel
                      : (channel * window + window - 1 - tap_at) * g.columns + column;
    std::uint32_t* to = weights + k * s.column_tiles * 64 + within;
#pragma unroll 4
    for (int tile = 0; tile < s.column_tiles; ++tile) {
      std::uint32_t value = 0;
      if (there && column < g.columns) {
        unrolled<kElements, 1>([&](auto e) {
          std::uint32_t one[1] = {};
          load_vector<Element, 1, 0>(one, from + at + e() * (kForward ? 1 : window * g.columns));
          value |= one[0] << (16 * e());
        });
        if constexpr (std::is_same_v<Math, Bf16AsTf32Math>) value <<= 16;
      }
      to[tile * 64] = Math::factor(value);
      column += 8;
      at += kForward ? 8 * window * channels : 8;
    }
  }
}

/// Words of one image, held in registers on their way from memory to shared memory.
template <class Math, Pooled kPooled>
class CarriedImage {
 public:
  __device__ void fetch(const ConvGemm& g, const ImageShape& s, int image) {
    const int words = s.source_pixels * s.pixel_words;
    const std::int64_t first = static_cast<std::int64_t>(image) * words;
#pragma unroll
    for (int u = 0; u < kImageCarried; ++u) {
      const int i = thread_index() + u * kImageThreads;
      if (i >= words) break;
      words_[u] = load_word<Math>(g.gathered, first + i);
      if constexpr (kPooled != Pooled::gathered) continue;
      const std::uint8_t* open = g.pool.open + (first + i) * kElements;
      open_[u] = kElements == 2 ? *reinterpret_cast<const std::uint16_t*>(open) : *open;
    }
  }

  __device__ void put(const ConvGemm& g, const ImageShape& s, std::uint32_t* image) const {
    const int words = s.source_pixels * s.pixel_words;
#pragma unroll
    for (int u = 0; u < kImageCarried; ++u) {
      const int i = thread_index() + u * kImageThreads;
      if (i >= words) break;
      auto channel = static_cast<std::uint32_t>(i);
      auto w = s.per_pixel.split(channel);
      const auto h = s.per_source_row.split(w);
      const auto to = [&](std::uint32_t row, std::uint32_t column) -> std::uint32_t& {
        const int pixel =
            (static_cast<int>(row) + s.border_h) * s.width + static_cast<int>(column) + s.border_w;
        return image[pixel * s.pitch + static_cast<int>(channel)];
      };
      if constexpr (kPooled == Pooled::gathered) {
#pragma unroll
        for (unsigned corner = 0; corner < 4; ++corner) {
          std::uint32_t word[1] = {words_[u]};
          unrolled<kElements, 1>([&](auto e) {
            pass_open<InWord, e()>(word, open_[u] >> (8 * e() + corner) & 1U, g.pool.scale);
          });
          to(2 * h + corner / 2, 2 * w + corner % 2) = Math::factor(word[0]);
        }
      } else {
        to(h, w) = Math::factor(words_[u]);
      }
    }
  }

 private:
  static constexpr int kElements = kPerWord<Math>;
  /// Type of a word's elements.
  using InWord = std::conditional_t<kElements == 1, float, typename Math::Element>;
  std::uint32_t words_[kImageCarried] = {};
  std::uint32_t open_[kPooled == Pooled::gathered ? kImageCarried : 1] = {};
};

/// Sums that one warp computes at a time: 16 rows times kTiles column tiles.
template <class Math, int kTiles>
class TaskSums {
 public:
  static constexpr unsigned kLanesApart = 4;

  __device__ TaskSums(int first_row, int first_tile)
      : first_row_(first_row), first_tile_(first_tile) {}

  /// Adds the terms of the kernel rows r in [begin, end) to the sums (formula in image_conv.h). The
  /// windows of this lane's two rows begin at `upper` and `lower` in the image.
  __device__ void add(const ImageShape& s, const std::uint32_t* weights, int begin, int end,
                      const std::uint32_t* upper, const std::uint32_t* lower) {
    const int image_row = s.width * s.pitch, weights_step = s.column_tiles * 32;
    const auto* b = reinterpret_cast<const uint2*>(weights) + first_tile_ * 32 + lane() +
                    begin * s.run_steps * weights_step;
    upper += begin * image_row;
    lower += begin * image_row;
    for (int r = begin; r < end; ++r) {
#pragma unroll 2
      for (int step = 0; step < s.run_steps; ++step) {
        const int k = step * 8 + lane() % 4;
        // The run is followed by other pixels; a weight of zero would not cancel their NaN or
        // infinity.
        const bool first = k < s.run_words, second = k + 4 < s.run_words;
        const std::uint32_t a[4] = {first ? upper[k] : 0, first ? lower[k] : 0,
                                    second ? upper[k + 4] : 0, second ? lower[k + 4] : 0};
        uint2 two[kTiles];
#pragma unroll
        for (int j = 0; j < kTiles; ++j) two[j] = b[j * 32];
#pragma unroll
        for (int j = 0; j < kTiles; ++j) Math::mma(sums_[j], a, {two[j].x, two[j].y});
        b += weights_step;
      }
      upper += image_row;
      lower += image_row;
    }
  }

  template <class Use>
  __device__ void for_pairs(const Use& use) const {
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
      const int row = first_row_ + lane() / 4;
      const int column = (first_tile_ + j) * 8 + lane() % 4 * 2;
      use(row, column, sums_[j][0], sums_[j][1]);
      use(row + 8, column, sums_[j][2], sums_[j][3]);
    }
  }

 private:
  __device__ static int lane() {
    return thread_index() % 32;
  }

  int first_row_, first_tile_;
  float sums_[kTiles][4] = {};
};

/// Calls `with` with the number of tiles as a compile-time constant.
template <int kMax, class With>
__device__ inline void with_tiles(int tiles, const With& with) {
  if (tiles >= kMax) {
    with(std::integral_constant<int, kMax>());
  } else if constexpr (kMax > 1) {
    with_tiles<kMax - 1>(tiles, with);
  }
}

/// Pixel of `out`, before pooling, that a row of the product computes.
struct OutPixel {
  int i, j;
};
template <Pooled kPooled>
__device__ inline OutPixel out_pixel(const ImageShape& s, int row) {
  auto j = static_cast<std::uint32_t>(kPooled == Pooled::pixels ? row / 4 : row);
  const auto i = static_cast<int>(s.per_out_row.split(j));
  if constexpr (kPooled == Pooled::pixels) {
    return {2 * i + window_corner(row) / 2, 2 * static_cast<int>(j) + window_corner(row) % 2};
  }
  return {i, static_cast<int>(j)};
}

/// Computes the convolution. Grid: any number of blocks. Each takes every gridDim.x-th image.
template <class Math, Pass kPass, bool kPool>
__global__ void __launch_bounds__(kImageThreads, 1)
    image_conv(const ConvGemm g, const ImageShape s) {
  constexpr Pooled kPooled = kWhatIsPooled<kPass, kPool>;
  using Element = typename Math::Element;
  auto* weights = dynamic_shared<std::uint32_t>();
  std::uint32_t* image = weights + s.weight_words();

  CarriedImage<Math, kPooled> carried;
  int n = static_cast<int>(blockIdx.x);
  carried.fetch(g, s, n);
  for (int i = thread_index(); i < s.image_words; i += kImageThreads) image[i] = 0;
  load_weights<Math, kPass>(g, s, weights);
  __syncthreads();
  for (; n < s.images; n += static_cast<int>(gridDim.x)) {
    carried.put(g, s, image);
    __syncthreads();
    // Load the next image while this one is processed.
    const int next = n + static_cast<int>(gridDim.x);
    if (next < s.images) carried.fetch(g, s, next);

    // Returns the start of a row's window in the image.
    const auto window_of = [&](int row) -> const std::uint32_t* {
      if (row >= s.rows) return image;
      const OutPixel pixel = out_pixel<kPooled>(s, row);
      return image + (pixel.i * s.width + pixel.j) * s.pitch;
    };
    const auto pixel_of = [&](int row) {
      if (row >= s.rows) return nowhere();
      const int pixel = kPooled == Pooled::pixels ? row / 4 : row;
      return Place{0, 0, 0,
                   static_cast<std::uint32_t>(n) * static_cast<std::uint32_t>(s.out_elements) +
                       static_cast<std::uint32_t>(pixel * g.columns)};
    };
    for (int task = thread_index() / 32; task < s.tasks; task += kImageThreads / 32) {
      auto group = static_cast<std::uint32_t>(task);
      const int first_row = static_cast<int>(s.per_group.split(group)) * 16;
      const int first_tile = static_cast<int>(group) * s.tiles_each;
      // Take only the kernel rows r that meet data: the others would add zeros of the borders.
      const int top = out_pixel<kPooled>(s, first_row).i;
      const int bottom = out_pixel<kPooled>(s, min(first_row + 15, s.rows - 1)).i;
      const int begin = max(0, s.border_h - bottom);
      const int end = min(s.taps_h, s.border_h + s.data_rows - top);
      const int row = first_row + thread_index() % 32 / 4;
      with_tiles<kImageMostTiles>(min(s.tiles_each, s.column_tiles - first_tile), [&](auto tiles) {
        TaskSums<Math, tiles()> sums(first_row, first_tile);
        sums.add(s, weights, begin, end, window_of(row), window_of(row + 8));
        if constexpr (kPooled == Pooled::pixels) {
          store_pooled<Element>(g, 0, pixel_of, 0, sums);
        } else {
          store_activations<Element>(g, 0, pixel_of, 0, sums);
        }
      });
    }
    __syncthreads();
  }
}

/// Kernels of one arithmetic, for image_conv_{tf32,bf16,bf16_odd}.cu.
template <class Math>
ImageKernel image_kernel(Pass pass, bool pooled) {
  if (pass == Pass::forward) {
    return pooled ? image_conv<Math, Pass::forward, true> : image_conv<Math, Pass::forward, false>;
  }
  return pooled ? image_conv<Math, Pass::backward_data, true>
                : image_conv<Math, Pass::backward_data, false>;
}

}  // namespace dpt::gemm
