// Plan for convolutions of small images: the problems that it supports, and their shapes.
#include "kernels/cuda/conv/image_conv.h"

#include <algorithm>
#include <limits>

#include "kernels/common/conv_padding.h"
#include "kernels/cuda/runtime/launch.h"

namespace dpt {
namespace {

constexpr int kWarps = kImageThreads / 32;

/// Returns true if pixels of a bf16 tensor do not fill whole words; each number then gets its own
/// word.
bool has_odd_channels(const ConvProblem& p) {
  return p.type == DType::bf16 && (p.pass == Pass::forward ? p.in.c : p.out.c) % 2 != 0;
}

ImageKernel kernel_of(const ConvProblem& p) {
  const auto kernel = p.type != DType::bf16 ? image_kernel_tf32
                      : has_odd_channels(p) ? image_kernel_bf16_odd
                                            : image_kernel_bf16;
  return kernel(p.pass, p.pool.has_value());
}

ImageShape shape_of(const ConvProblem& p) {
  const auto number = [](std::int64_t value) { return static_cast<int>(value); };
  const bool forward = p.pass == Pass::forward;
  const SampleShape &source = forward ? p.in : p.out, &result = forward ? p.out : p.in;
  const int elements = p.type == DType::bf16 && !has_odd_channels(p) ? 2 : 1;
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
  // If neighbouring pixels are 4 modulo 8 words apart, they are in different banks. The same holds
  // for the four pixels of a window and the next window if rows are 4 modulo 8 words apart, too.
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
  // Minimise the number of rounds in which all warps process the tasks, times the cost of a round:
  // its column tiles plus a constant.
  const int row_tiles = ceil_div_int(s.rows, 16);
  double least = std::numeric_limits<double>::infinity();
  for (int each = 1; each <= std::min(kImageMostTiles, s.column_tiles); ++each) {
    const double time =
        ceil_div_int(row_tiles * ceil_div_int(s.column_tiles, each), kWarps) * (each + 1.5);
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
      : context_(context), problem_(problem), shape_(shape), kernel_(kernel_of(problem)) {
    const bool forward = problem.pass == Pass::forward;
    gemm_.columns = static_cast<int>(forward ? problem.out.c : problem.in.c);
    gemm_.relu = forward && problem.relu;
    gemm_.pairs = gemm_.columns % 2 == 0;
    if (problem.pool) gemm_.pool = pool_of(*problem.pool);
    // Allow the GPU's maximum: if each plan allowed only what it needs, a later plan with the same
    // kernel could lower the limit.
    allow_shared_memory(kernel_, context.shared_bytes_per_block);
    // Several blocks hide each other's latency, but each of them loads the weights. So use several
    // only if there are enough images.
    int together = 1;
    if (shape_.images >= 4 * context.multiprocessors) {
      cuda_check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&together, kernel_, kImageThreads,
                                                               shape_.shared_bytes()),
                 "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
    }
    blocks_ = std::min(shape_.images, context.multiprocessors * std::max(together, 1));
  }

  void run(const ConvArgs& args) override {
    const bool forward = problem_.pass == Pass::forward;
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
    return has_odd_channels(problem_)     ? "image:bf16-as-tf32"
           : problem_.type == DType::bf16 ? "image:bf16"
                                          : "image:tf32";
  }

 private:
  const CudaContext& context_;
  ConvProblem problem_;
  ImageShape shape_;
  ImageKernel kernel_;
  int blocks_ = 1;  ///< any number gives the same bits, because images are independent
  ConvGemm gemm_;
};

}  // namespace

std::unique_ptr<ConvPlan> make_image_conv(const CudaContext& context, const ConvProblem& problem) {
  const ConvProblem& p = problem;
  const Size2 one{1, 1};
  const bool tensor_cores = p.type == DType::bf16 || p.tf32;
  const bool forward = p.pass != Pass::backward_data;
  const SampleShape& source = forward ? p.in : p.out;
  const std::int64_t border_h = forward ? p.padding.h : p.kernel.h - 1 - p.padding.h;
  const std::int64_t border_w = forward ? p.padding.w : p.kernel.w - 1 - p.padding.w;
  if (!tensor_cores || !pads_evenly(p, p.out) || p.groups != 1 || p.stride != one ||
      p.dilation != one || p.batch < 1 || border_h < 0 || border_w < 0) {
    return nullptr;
  }
  // These bounds keep the numbers of a shape in 32 bits; the limits of memory are checked below.
  constexpr std::int64_t kMax = 1 << 15, kMaxAll = std::numeric_limits<std::int32_t>::max();
  if (p.in.elements() > kMax || p.out.elements() > kMax || border_h > kMax || border_w > kMax ||
      p.kernel.h * p.kernel.w * p.in.c > kMax ||
      (source.h + 2 * border_h) * (source.w + 2 * border_w + 8) > kMax ||
      p.batch * std::max(p.in.elements(), p.out.elements()) > kMaxAll - kMax) {
    return nullptr;
  }
  if (p.pass == Pass::backward_weights) return make_image_weights(context, p);
  const ImageShape shape = shape_of(p);
  if (shape.source_pixels * shape.pixel_words > kImageCarried * kImageThreads ||
      shape.shared_bytes() > context.shared_bytes_per_block) {
    return nullptr;
  }
  return std::make_unique<ImageConv>(context, problem, shape);
}

}  // namespace dpt
