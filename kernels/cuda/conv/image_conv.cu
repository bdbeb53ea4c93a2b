#include "kernels/cuda/conv/image_conv.h"

#include <algorithm>
#include <limits>

#include "kernels/cuda/conv/gemm_math.cuh"
#include "kernels/cuda/conv/gemm_store.cuh"
#include "kernels/cuda/runtime/launch.h"

namespace dpt {
namespace gemm {

constexpr int kWarps = kImageThreads / 32;
constexpr int kMostTiles = 4;  ///< column tiles of a task: what the registers hold

__device__ inline int thread_index() {
  return static_cast<int>(threadIdx.x);
}

/// The weights as tensor cores take them: for every step of k and every column tile, lane by lane
/// its two words. Words behind a run or a pixel's channels, and columns behind the last, are zero.
template <class Math, ConvPass kPass>
__device__ inline void load_weights(const ConvGemm& g, const ImageShape& s,
                                    std::uint32_t* weights) {
  using Element = typename Math::Element;
  constexpr int kElements = 4 / static_cast<int>(sizeof(Element));
  constexpr bool kForward = kPass == ConvPass::forward;
  const auto* from = static_cast<const Element*>(g.matrix);
  const int channels = s.pixel_words * kElements, window = s.taps_h * s.taps_w;
  // A thread has the same word of every tile of 64.
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
      }
      to[tile * 64] = Math::factor(value);
      column += 8;
      at += kForward ? 8 * window * channels : 8;
    }
  }
}

/// Words of one image on their way from memory to shared memory.
template <class Math, Pooled kPooled>
class CarriedImage {
 public:
  __device__ void fetch(const ConvGemm& g, const ImageShape& s, int image) {
    const int words = s.source_pixels * s.pixel_words;
    const auto* from =
        static_cast<const std::uint32_t*>(g.gathered) + static_cast<std::int64_t>(image) * words;
#pragma unroll
    for (int u = 0; u < kImageCarried; ++u) {
      const int i = thread_index() + u * kImageThreads;
      if (i >= words) break;
      words_[u] = from[i];
      if constexpr (kPooled != Pooled::gathered) continue;
      const std::uint8_t* open =
          g.pool.open + (static_cast<std::int64_t>(image) * words + i) * kElements;
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
            pass_open<typename Math::Element, e()>(word, open_[u] >> (8 * e() + corner) & 1U,
                                                   g.pool.scale);
          });
          to(2 * h + corner / 2, 2 * w + corner % 2) = Math::factor(word[0]);
        }
      } else {
        to(h, w) = Math::factor(words_[u]);
      }
    }
  }

 private:
  static constexpr int kElements = 4 / static_cast<int>(sizeof(typename Math::Element));
  std::uint32_t words_[kImageCarried] = {};
  std::uint32_t open_[kPooled == Pooled::gathered ? kImageCarried : 1] = {};
};

/// What one warp makes at a time: 16 rows times kTiles column tiles.
template <class Math, int kTiles>
class TaskSums {
 public:
  static constexpr unsigned kLanesApart = 4;

  __device__ TaskSums(int first_row, int first_tile)
      : first_row_(first_row), first_tile_(first_tile) {}

  /// Adds r from `begin` to `end`. `upper` and `lower` are where the windows of this lane's two
  /// rows begin in the image.
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
        // Behind the run lie other pixels, whose NaN or infinity a weight of zero would not stop.
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

/// Calls with(std::integral_constant) of the number of tiles.
template <int kMost, class With>
__device__ inline void with_tiles(int tiles, const With& with) {
  if (tiles >= kMost) {
    with(std::integral_constant<int, kMost>());
  } else if constexpr (kMost > 1) {
    with_tiles<kMost - 1>(tiles, with);
  }
}

/// A row's pixel in `out`'s image before pooling.
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

/// Grid: any number of blocks, which take every gridDim.x-th image.
template <class Math, ConvPass kPass, bool kPool>
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
    // The next image is on its way while this one is worked on.
    const int next = n + static_cast<int>(gridDim.x);
    if (next < s.images) carried.fetch(g, s, next);

    // Where a row's window begins in the image.
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
    for (int task = thread_index() / 32; task < s.tasks; task += kWarps) {
      auto group = static_cast<std::uint32_t>(task);
      const int first_row = static_cast<int>(s.per_group.split(group)) * 16;
      const int first_tile = static_cast<int>(group) * s.tiles_each;
      // Rows of the window that meet the image at all; behind its borders all is zero.
      const int top = out_pixel<kPooled>(s, first_row).i;
      const int bottom = out_pixel<kPooled>(s, min(first_row + 15, s.rows - 1)).i;
      const int begin = max(0, s.border_h - bottom);
      const int end = min(s.taps_h, s.border_h + s.data_rows - top);
      const int row = first_row + thread_index() % 32 / 4;
      with_tiles<kMostTiles>(min(s.tiles_each, s.column_tiles - first_tile), [&](auto tiles) {
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

}  // namespace gemm

namespace {

using ImageKernel = void (*)(const ConvGemm, const ImageShape);

template <class Math>
ImageKernel kernel_of(const ConvProblem& problem) {
  using gemm::image_conv;
  if (problem.pass == ConvPass::forward) {
    return problem.pool ? image_conv<Math, ConvPass::forward, true>
                        : image_conv<Math, ConvPass::forward, false>;
  }
  return problem.pool ? image_conv<Math, ConvPass::backward_data, true>
                      : image_conv<Math, ConvPass::backward_data, false>;
}

ImageShape shape_of(const ConvProblem& p) {
  const auto number = [](std::int64_t value) { return static_cast<int>(value); };
  const bool forward = p.pass == ConvPass::forward;
  const SampleShape &source = forward ? p.in : p.out, &result = forward ? p.out : p.in;
  const int elements = 4 / static_cast<int>(size_of(p.type));
  ImageShape s;
  s.images = number(p.batch);
  const SampleShape& in_memory = !forward && p.pool ? p.pool->out : source;
  s.source_pixels = number(in_memory.h * in_memory.w);
  s.source_width = number(in_memory.w);
  s.border_h = number(forward ? p.padding.h : p.kernel.h - 1 - p.padding.h);
  s.border_w = number(forward ? p.padding.w : p.kernel.w - 1 - p.padding.w);
  s.data_rows = number(!forward && p.pool ? 2 * p.pool->out.h : source.h);
  s.width = number(source.w) + 2 * s.border_w;
  s.pixel_words = number(source.c) / elements;
  // Neighbouring pixels 4 modulo 8 words apart lie in different banks; so do the four of a window
  // and the next window's where rows are as well.
  const auto four_of_eight = [](int count) { return count + (12 - count % 8) % 8; };
  s.pitch = s.pixel_words < 8 ? s.pixel_words : four_of_eight(s.pixel_words);
  if (forward && p.pool && s.pitch % 8 == 4) s.width = four_of_eight(s.width);
  s.image_words = (number(source.h) + 2 * s.border_h) * s.width * s.pitch;
  s.taps_h = number(p.kernel.h);
  s.taps_w = number(p.kernel.w);
  s.run_words = s.taps_w * s.pitch;
  s.run_steps = ceil_div_int(s.run_words, 8);
  s.column_tiles = ceil_div_int(result.c, 8);
  const SampleShape& stored = forward && p.pool ? p.pool->out : result;
  s.out_width = number(stored.w);
  s.out_elements = number(stored.elements());
  s.rows = number(stored.h * stored.w) * (forward && p.pool ? 4 : 1);
  // Rounds of all warps over the tasks, each as long as its column tiles and what it does besides.
  const int row_tiles = ceil_div_int(s.rows, 16);
  double least = std::numeric_limits<double>::infinity();
  for (int each = 1; each <= std::min(gemm::kMostTiles, s.column_tiles); ++each) {
    const double time =
        ceil_div_int(row_tiles * ceil_div_int(s.column_tiles, each), gemm::kWarps) * (each + 1.5);
    if (time < least) s.tiles_each = each;
    least = std::min(least, time);
  }
  s.groups = ceil_div_int(s.column_tiles, s.tiles_each);
  s.tasks = row_tiles * s.groups;
  s.per_pixel = Divider(s.pixel_words);
  s.per_source_row = Divider(s.source_width);
  s.per_run = Divider(s.run_steps);
  s.per_tap = Divider(s.pitch);
  s.per_out_row = Divider(s.out_width);
  s.per_group = Divider(s.groups);
  return s;
}

class ImageConv final : public ConvPlan {
 public:
  ImageConv(const CudaContext& context, const ConvProblem& problem, const ImageShape& shape)
      : context_(context),
        problem_(problem),
        shape_(shape),
        kernel_(problem.type == DType::bf16 ? kernel_of<gemm::Bf16Math>(problem)
                                            : kernel_of<gemm::Tf32Math>(problem)) {
    const bool forward = problem.pass == ConvPass::forward;
    gemm_.columns = static_cast<int>(forward ? problem.out.c : problem.in.c);
    gemm_.relu = forward && problem.relu;
    gemm_.pairs = gemm_.columns % 2 == 0;
    if (problem.pool) gemm_.pool = pool_of(*problem.pool);
    // The most: another plan of the same kernel would lower it again.
    allow_shared_memory(kernel_, context.shared_bytes_per_block);
    // Several blocks fill each other's gaps, but each loads the weights: for images enough only.
    int together = 1;
    if (shape_.images >= 4 * context.multiprocessors) {
      cuda_check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&together, kernel_, kImageThreads,
                                                               shape_.shared_bytes()),
                 "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
    }
    blocks_ = std::min(shape_.images, context.multiprocessors * std::max(together, 1));
  }

  void run(const ConvArgs& args) override {
    const bool forward = problem_.pass == ConvPass::forward;
    ConvGemm gemm = gemm_;
    gemm.gathered = forward ? args.x : args.y;
    gemm.out = forward ? args.y : args.x;
    gemm.matrix = args.weight;
    gemm.bias = forward && problem_.bias ? args.bias : nullptr;
    gemm.pool.open = args.open;
    launch(kernel_, static_cast<unsigned>(blocks_), kImageThreads, shape_.shared_bytes(),
           context_.stream, gemm, shape_);
  }

  std::string name() const override {
    return problem_.type == DType::bf16 ? "image:bf16" : "image:tf32";
  }

 private:
  const CudaContext& context_;
  ConvProblem problem_;
  ImageShape shape_;
  ImageKernel kernel_;
  int blocks_ = 1;  ///< No image knows of another: any number gives the same bits.
  ConvGemm gemm_;
};

}  // namespace

std::unique_ptr<ConvPlan> make_image_conv(const CudaContext& context, const ConvProblem& problem) {
  const ConvProblem& p = problem;
  const Size2 one{1, 1};
  const bool tensor_cores = p.type == DType::bf16 || p.tf32;
  const bool forward = p.pass != ConvPass::backward_data;
  const SampleShape& source = forward ? p.in : p.out;
  const std::int64_t border_h = forward ? p.padding.h : p.kernel.h - 1 - p.padding.h;
  const std::int64_t border_w = forward ? p.padding.w : p.kernel.w - 1 - p.padding.w;
  if (!tensor_cores || p.groups != 1 || p.stride != one || p.dilation != one || p.batch < 1 ||
      border_h < 0 || border_w < 0) {
    return nullptr;
  }
  // Bounds that keep the numbers of a shape in 32 bits; what memory allows follows.
  constexpr std::int64_t kMost = 1 << 15, kMostAll = std::numeric_limits<std::int32_t>::max();
  if (p.in.elements() > kMost || p.out.elements() > kMost || border_h > kMost || border_w > kMost ||
      p.kernel.h * p.kernel.w * p.in.c > kMost ||
      (source.h + 2 * border_h) * (source.w + 2 * border_w + 8) > kMost ||
      p.batch * std::max(p.in.elements(), p.out.elements()) > kMostAll - kMost) {
    return nullptr;
  }
  if (p.pass == ConvPass::backward_weights) return make_image_weights(context, p);
  if (p.type == DType::bf16 && source.c % 2 != 0) return nullptr;
  const ImageShape shape = shape_of(p);
  if (shape.source_pixels * shape.pixel_words > kImageCarried * kImageThreads ||
      shape.shared_bytes() > context.shared_bytes_per_block) {
    return nullptr;
  }
  return std::make_unique<ImageConv>(context, problem, shape);
}

}  // namespace dpt
