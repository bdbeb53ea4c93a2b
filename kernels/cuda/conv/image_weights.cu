// Gradient of the weights for small images (see image_conv.h). A block holds one image of dy and of
// x, with the borders of x, in shared memory. It keeps its share of the sum over images in
// registers.
//
//   dw(k, r, s, c) = sum over images and pixels  dy(pixel, k) x(pixel + (r, s), c)
//
// Rows of the product are channels of dy. Columns are the runs of s and c, one run for every r.
// After the last r comes one column of ones, whose sum is the gradient of the bias. The k side is
// pixels. Warps share the columns and, if there are few columns, also the pixels, which are then
// divided into *slices*. Neighbours along k are two pixels, which are not adjacent in memory, so
// bf16 numbers are used as tf32, which holds them exactly.
#include <algorithm>
#include <limits>

#include "kernels/cuda/conv/gemm_math.cuh"
#include "kernels/cuda/conv/gemm_operands.cuh"
#include "kernels/cuda/conv/image_conv.h"
#include "kernels/cuda/conv/split_sums.h"
#include "kernels/cuda/runtime/launch.h"

namespace dpt {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int kCarried = 16;  ///< numbers of x, and of dy, that a thread holds while copying
constexpr int kMaxRows = 4, kMaxColumns = 9,
              kFewColumns = 4;  ///< tiles per warp: of 16 rows, and of 8 columns
constexpr int kTile = 16 * 8;

struct WeightsShape {
  const void *x = nullptr, *dy = nullptr;
  const std::uint8_t* open = nullptr;  ///< mask of a pooled dy
  float scale = 1.0F;
  float* parts = nullptr;  ///< (blocks, channels, columns)
  int images = 0, images_each = 0;
  int x_elements = 0, dy_elements = 0;                      ///< elements of one image in memory
  int in_channels = 0, channels = 0;                        ///< channels of x, of dy
  int in_width = 0, border_h = 0, border_w = 0, width = 0;  ///< `width`: that of x with borders
  int image_elements = 0;                                   ///< elements of x with its borders
  int pixels = 0;                                           ///< length of the k side
  int out_width = 0;                                        ///< width of dy in memory
  int pitch = 0;                           ///< pitch of dy's pixels in shared memory
  int taps_h = 0, run = 0, run_tiles = 0;  ///< columns of one r, in tiles of 8
  int row_tiles = 0, column_tiles = 0;     ///< the last column tile has the ones
  int tiles_each = 0, slices = 0;          ///< column tiles per warp; warps that share them
  Divider per_in_channel, per_in_row, per_channel, per_out_row, per_column;

  DPT_HOST_DEVICE int columns() const { return taps_h * run + 1; }
};

/// Numbers of one image, held in registers on their way from memory to shared memory.
template <class Element, bool kPool>
class CarriedImages {
 public:
  __device__ void fetch(const WeightsShape& s, int image) {
    load(static_cast<const Element*>(s.x), s.x_elements, image, x_);
    load(static_cast<const Element*>(s.dy), s.dy_elements, image, dy_);
    if constexpr (kPool) load(s.open, s.dy_elements, image, open_);
  }

  __device__ void put(const WeightsShape& s, std::uint32_t* x_image,
                      std::uint32_t* dy_image) const {
    each(s.x_elements, [&](int u, int i) {
      auto channel = static_cast<std::uint32_t>(i);
      auto w = s.per_in_channel.split(channel);
      const auto h = static_cast<int>(s.per_in_row.split(w));
      const int pixel = (h + s.border_h) * s.width + static_cast<int>(w) + s.border_w;
      x_image[pixel * s.in_channels + static_cast<int>(channel)] = factor(to_float(x_[u]));
    });
    each(s.dy_elements, [&](int u, int i) {
      auto channel = static_cast<std::uint32_t>(i);
      const auto pixel = static_cast<int>(s.per_channel.split(channel));
      std::uint32_t* to = dy_image + static_cast<int>(channel);
      const float value = to_float(dy_[u]);
      if constexpr (kPool) {
#pragma unroll
        for (int corner = 0; corner < 4; ++corner) {
          to[(4 * pixel + corner) * s.pitch] = open_[u] >> corner & 1 ? factor(value * s.scale) : 0;
        }
      } else {
        to[pixel * s.pitch] = factor(value);
      }
    });
  }

 private:
  __device__ static std::uint32_t factor(float value) {
    return round_to_tf32(__builtin_bit_cast(std::uint32_t, value));
  }
  template <class Use>
  __device__ static void each(int elements, const Use& use) {
#pragma unroll
    for (int u = 0; u < kCarried; ++u) {
      const int i = static_cast<int>(threadIdx.x) + u * kThreads;
      if (i < elements) use(u, i);
    }
  }
  template <class T>
  __device__ static void load(const T* from, int elements, int image, T (&to)[kCarried]) {
    from += static_cast<std::int64_t>(image) * elements;
    each(elements, [&](int u, int i) { to[u] = from[i]; });
  }

  Element x_[kCarried] = {}, dy_[kCarried] = {};
  std::uint8_t open_[kPool ? kCarried : 1] = {};
};

/// Sums of one warp: up to kColumns column tiles of all row tiles, over its slice of the pixels.
template <int kColumns>
class WeightSums {
 public:
  __device__ explicit WeightSums(const WeightsShape& s)
      : lane_(static_cast<int>(threadIdx.x) % 32),
        warp_(static_cast<int>(threadIdx.x) / 32),
        first_tile_(warp_ / s.slices * s.tiles_each),
        tiles_(min(s.tiles_each, s.column_tiles - first_tile_)) {
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
      const int tile = first_tile_ + j, r = tile / s.run_tiles;
      at_[j] = r * s.width * s.in_channels + tile % s.run_tiles * 8 + lane_ / 4;
    }
  }

  /// Adds one image. `windows` has the start of each pixel's window in the image of x.
  __device__ void add(const WeightsShape& s, const std::uint32_t* x, const std::uint32_t* dy,
                      const int* windows) {
    const int t = lane_ % 4, g = lane_ / 4;
    for (int k = warp_ % s.slices * 8 + t; k - t < s.pixels; k += s.slices * 8) {
      // Pixels of this lane. After the last pixel, dy is zero, and x must not be NaN.
      const bool first = k < s.pixels, second = k + 4 < s.pixels;
      const std::uint32_t* x_first = x + (first ? windows[k] : 0);
      const std::uint32_t* x_second = x + (second ? windows[k + 4] : 0);
      const std::uint32_t* rows = dy + k * s.pitch + g;
      std::uint32_t b[kColumns][2];
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        const bool here = j < tiles_, ones = first_tile_ + j == s.column_tiles - 1;
        const std::uint32_t one = g == 0 ? 0x3F800000U : 0;
        b[j][0] = !here || !first ? 0 : ones ? one : x_first[at_[j]];
        b[j][1] = !here || !second ? 0 : ones ? one : x_second[at_[j]];
      }
#pragma unroll
      for (int i = 0; i < kMaxRows; ++i) {
        if (i >= s.row_tiles) break;
        const std::uint32_t* low = rows + 16 * i;
        const std::uint32_t* high = low + 4 * s.pitch;
        const std::uint32_t a[4] = {low[0], low[8], high[0], high[8]};
        // Nonexistent tiles multiply zeros, which is cheaper than a branch for each.
#pragma unroll
        for (int j = 0; j < kColumns; ++j) mma_tf32(sums_[i][j], a, b[j]);
      }
    }
  }

  /// Stores the sums where sum_of reads them.
  __device__ void put(const WeightsShape& s, float* memory) const {
#pragma unroll
    for (int i = 0; i < kMaxRows; ++i) {
      if (i >= s.row_tiles) break;
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        if (j >= tiles_) break;
        float* to = memory + tile_at(s, warp_, i, j) + lane_ / 4 * 8 + lane_ % 4 * 2;
        to[0] = sums_[i][j][0];
        to[1] = sums_[i][j][1];
        to[64] = sums_[i][j][2];
        to[65] = sums_[i][j][3];
      }
    }
  }

  /// Returns the block's sum for a channel and a column, added slice by slice.
  __device__ static float sum_of(const WeightsShape& s, const float* memory, int channel,
                                 int column) {
    const int r = column / s.run, at = column - r * s.run;
    const int tile = r * s.run_tiles + at / 8, group = tile / s.tiles_each;
    const int within = channel % 16 * 8 + at % 8;
    float sum = 0;
    for (int slice = 0; slice < s.slices; ++slice) {
      sum +=
          memory[tile_at(s, group * s.slices + slice, channel / 16, tile % s.tiles_each) + within];
    }
    return sum;
  }

 private:
  __device__ static int tile_at(const WeightsShape& s, int warp, int i, int j) {
    return ((warp * s.row_tiles + i) * s.tiles_each + j) * kTile;
  }

  int lane_, warp_, first_tile_, tiles_;
  int at_[kColumns];  ///< positions of this lane's columns in a window
  float sums_[kMaxRows][kColumns][4] = {};
};

/// Computes the parts of the gradient. Grid: one block for every images_each images. Shared memory:
/// the images of x and dy and the windows or, at the end, the sums.
template <class Element, bool kPool, int kColumns>
__global__ void __launch_bounds__(kThreads, 1) image_weights(const WeightsShape s) {
  auto* x = dynamic_shared<std::uint32_t>();
  const int rows = (s.pixels + 7) / 8 * 8;
  std::uint32_t* dy = x + s.image_elements;
  int* windows = reinterpret_cast<int*>(dy + rows * s.pitch);
  const int thread = static_cast<int>(threadIdx.x);

  int n = static_cast<int>(blockIdx.x) * s.images_each;
  const int end = min(n + s.images_each, s.images);
  CarriedImages<Element, kPool> carried;
  carried.fetch(s, n);
  for (int i = thread; i < s.image_elements + rows * s.pitch; i += kThreads) x[i] = 0;
  for (int pixel = thread; pixel < s.pixels; pixel += kThreads) {
    auto j = static_cast<std::uint32_t>(kPool ? pixel / 4 : pixel);
    auto i = s.per_out_row.split(j);
    if constexpr (kPool) {
      const auto corner = static_cast<std::uint32_t>(gemm::window_corner(pixel));
      i = 2 * i + corner / 2;
      j = 2 * j + corner % 2;
    }
    windows[pixel] = (static_cast<int>(i) * s.width + static_cast<int>(j)) * s.in_channels;
  }
  __syncthreads();
  WeightSums<kColumns> sums(s);
  for (; n < end; ++n) {
    carried.put(s, x, dy);
    __syncthreads();
    if (n + 1 < end) carried.fetch(s, n + 1);
    sums.add(s, x, dy, windows);
    __syncthreads();
  }
  auto* memory = dynamic_shared<float>();
  sums.put(s, memory);
  __syncthreads();
  const int columns = s.columns();
  float* part = s.parts + static_cast<std::int64_t>(blockIdx.x) * s.channels * columns;
  for (int i = thread; i < s.channels * columns; i += kThreads) {
    auto column = static_cast<std::uint32_t>(i);
    const auto channel = static_cast<int>(s.per_column.split(column));
    part[i] = WeightSums<kColumns>::sum_of(s, memory, channel, static_cast<int>(column));
  }
}

WeightsShape shape_of(const ConvProblem& p) {
  const auto number = [](std::int64_t value) { return static_cast<int>(value); };
  const SampleShape& in_memory = p.pool ? p.pool->out : p.out;
  WeightsShape s;
  s.scale = p.pool ? p.pool->scale : 1.0F;
  s.images = number(p.batch);
  // Use enough blocks for most of a large GPU. The partition depends only on the problem, so that
  // every GPU adds in the same order.
  s.images_each = ceil_div_int(p.batch, 128);
  s.x_elements = number(p.in.elements());
  s.dy_elements = number(in_memory.elements());
  s.in_channels = number(p.in.c);
  s.channels = number(p.out.c);
  s.in_width = number(p.in.w);
  s.border_h = number(p.padding.h);
  s.border_w = number(p.padding.w);
  s.width = number(p.in.w + 2 * p.padding.w);
  s.image_elements = number(p.in.h + 2 * p.padding.h) * s.width * s.in_channels;
  s.pixels = number(in_memory.h * in_memory.w) * (p.pool ? 4 : 1);
  s.out_width = number(in_memory.w);
  s.row_tiles = ceil_div_int(p.out.c, 16);
  s.pitch = s.row_tiles * 16 + 8;  // 8 or 24 modulo 32: four pixels are in different banks
  s.taps_h = number(p.kernel.h);
  s.run = number(p.kernel.w * p.in.c);
  s.run_tiles = ceil_div_int(s.run, 8);
  s.column_tiles = s.taps_h * s.run_tiles + 1;
  s.tiles_each = std::min(kMaxColumns, s.column_tiles);
  const int groups = ceil_div_int(s.column_tiles, s.tiles_each);
  s.slices = groups > kWarps ? 0 : kWarps / groups;
  s.per_in_channel = Divider(s.in_channels);
  s.per_in_row = Divider(s.in_width);
  s.per_channel = Divider(s.channels);
  s.per_out_row = Divider(s.out_width);
  s.per_column = Divider(s.columns());
  return s;
}

std::size_t shared_bytes(const WeightsShape& s) {
  const std::int64_t images =
      s.image_elements + std::int64_t{s.pitch + 1} * ceil_div_int(s.pixels, 8) * 8;
  const std::int64_t sums = std::int64_t{kWarps} * s.row_tiles * s.tiles_each * kTile;
  // The columns that fill up the last tile of a run are read but not used. At the last pixel, they
  // are past the end of the image, so add 8 words.
  return static_cast<std::size_t>(std::max(images, sums) + 8) * sizeof(float);
}

class ImageWeights final : public ConvPlan {
 public:
  ImageWeights(const CudaContext& context, const ConvProblem& problem, const WeightsShape& shape)
      : context_(context), problem_(problem), shape_(shape) {
    const bool bf16 = problem.type == DType::bf16, few = shape.tiles_each <= kFewColumns;
    kernel_ = bf16 ? (few ? kernel_of<Bf16, kFewColumns>() : kernel_of<Bf16, kMaxColumns>())
                   : (few ? kernel_of<float, kFewColumns>() : kernel_of<float, kMaxColumns>());
    // Allow the GPU's maximum: if each plan allowed only what it needs, a later plan with the same
    // kernel could lower the limit.
    allow_shared_memory(kernel_, context.shared_bytes_per_block);
  }

  void run(const ConvArgs& args) override {
    WeightsShape s = shape_;
    s.x = args.x;
    s.dy = args.y;
    s.open = args.open;
    s.parts = static_cast<float*>(context_.workspace);
    const int blocks = ceil_div_int(s.images, s.images_each);
    launch(kernel_, static_cast<unsigned>(blocks), kThreads, shared_bytes(s), context_.stream, s);
    sum_splits(context_, blocks, s.channels, s.columns(), s.columns() - 1, args.dweight,
               problem_.bias ? args.dbias : nullptr, args.write);
  }

  bool gives_dbias() const override { return problem_.bias; }

  std::string name() const override {
    return problem_.type == DType::bf16 ? "image:bf16" : "image:tf32";
  }

 private:
  using Kernel = void (*)(WeightsShape);
  template <class Element, int kColumns>
  Kernel kernel_of() const {
    return problem_.pool ? image_weights<Element, true, kColumns>
                         : image_weights<Element, false, kColumns>;
  }

  const CudaContext& context_;
  ConvProblem problem_;
  WeightsShape shape_;
  Kernel kernel_ = nullptr;
};

}  // namespace

std::unique_ptr<ConvPlan> make_image_weights(const CudaContext& context,
                                             const ConvProblem& problem) {
  const WeightsShape shape = shape_of(problem);
  const std::int64_t parts = ceil_div_int(shape.images, shape.images_each);
  const std::size_t part_bytes =
      static_cast<std::size_t>(parts * shape.channels * shape.columns()) * sizeof(float);
  if (shape.x_elements > kCarried * kThreads || shape.dy_elements > kCarried * kThreads ||
      shape.row_tiles > kMaxRows || shape.slices < 1 ||
      shared_bytes(shape) > context.shared_bytes_per_block ||
      part_bytes > context.workspace_bytes) {
    return nullptr;
  }
  return std::make_unique<ImageWeights>(context, problem, shape);
}

}  // namespace dpt
