// Plan for a convolution with dpt's kernels: chooses the tile and the number of blocks.
#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>

#include "kernels/cuda/conv/implicit_gemm.h"
#include "kernels/cuda/conv/split_sums.h"
#include "kernels/cuda/runtime/launch.h"

namespace dpt {
namespace {

/// Returns the largest power of two up to `most` that divides `count`: the elements of one load.
int vector_of(std::int64_t count, int most) {
  int vector = most;
  while (count % vector != 0) vector /= 2;
  return vector;
}

GemmAxis axis_of(const ConvProblem& p, std::int64_t Size2::*of, std::int64_t SampleShape::*size) {
  const auto number = [](std::int64_t value) { return static_cast<int>(value); };
  GemmAxis axis;
  axis.stride = number(p.stride.*of);
  axis.padding = number(p.padding.*of);
  axis.dilation = number(p.dilation.*of);
  axis.taps = axis.tap_slots = number(p.kernel.*of);
  axis.gathered = number(p.in.*size);
  axis.pixels = number(p.out.*size);
  if (p.pass == Pass::backward_data) {
    std::swap(axis.gathered, axis.pixels);
    axis.tap_step = axis.stride / std::gcd(axis.stride, axis.dilation);
    axis.tap_slots = number(ceil_div(axis.taps, axis.tap_step));
    axis.gathered_step = axis.tap_step * axis.dilation / axis.stride;
  }
  return axis;
}

class ImplicitGemm final : public ConvPlan {
 public:
  ImplicitGemm(const CudaContext& context, const ConvProblem& problem)
      : context_(context), problem_(problem) {
    const bool data = problem.pass == Pass::backward_data;
    const bool weights = problem.pass == Pass::backward_weights;
    const std::int64_t group_in = problem.in.c / problem.groups;
    const std::int64_t group_out = problem.out.c / problem.groups;
    const std::int64_t gathered_group = data ? group_out : group_in;
    const std::int64_t pixel_group = data ? group_in : group_out;
    gemm_.h = axis_of(problem, &Size2::h, &SampleShape::h);
    gemm_.w = axis_of(problem, &Size2::w, &SampleShape::w);
    gemm_.gathered_group = static_cast<int>(gathered_group);
    gemm_.pixel_group = static_cast<int>(pixel_group);
    gemm_.gathered_channels = static_cast<int>(gathered_group * problem.groups);
    gemm_.pixel_channels = static_cast<int>(pixel_group * problem.groups);
    std::int64_t height = data ? ceil_div(gemm_.h.pixels, gemm_.h.stride) : gemm_.h.pixels;
    std::int64_t width = data ? ceil_div(gemm_.w.pixels, gemm_.w.stride) : gemm_.w.pixels;
    std::int64_t corners = 1;  // pixels per position of the grid
    if (problem.pool) {
      const SampleShape& pooled = problem.pool->out;
      gemm_.pool = pool_of(*problem.pool);
      if (data) {
        // Elements past the last window are in no window, so their gradient is zero.
        gemm_.h.gathered = 2 * gemm_.pool.height;
        gemm_.w.gathered = 2 * gemm_.pool.width;
      } else {
        height = pooled.h;
        width = pooled.w;
        corners = 4;
      }
    }
    gemm_.per_image = Divider(height * width);
    gemm_.per_row = Divider(width);
    gemm_.per_tap = Divider(gathered_group);
    gemm_.per_tap_row = Divider(gemm_.w.tap_slots);
    gemm_.pixels = static_cast<int>(problem.batch * height * width * corners);
    gemm_.taps = static_cast<int>(gathered_group * gemm_.h.tap_slots * gemm_.w.tap_slots);
    gemm_.ones = weights && problem.bias;
    gemm_.columns = weights ? gemm_.taps + (gemm_.ones ? 1 : 0) : gemm_.pixel_group;
    gemm_.relu = problem.relu && problem.pass == Pass::forward;
    gemm_.pairs = pixel_group % 2 == 0;

    // A vector stays within the channels of one tap, so it is entirely inside the image or outside.
    const int widest = 16 / static_cast<int>(size_of(problem.type));
    const int major = std::min(widest, 4);
    gemm_.gathered_vector = vector_of(gathered_group, weights ? major : widest);
    gemm_.matrix_vector = problem.pass == Pass::forward ? vector_of(gemm_.taps, widest)
                                                        : vector_of(pixel_group, major);
    if (weights) {
      cut_weights();
    } else {
      tile_ = gemm_.columns > 32 ? GemmTile::square : GemmTile::wide;
      const int phases = data ? gemm_.h.stride * gemm_.w.stride : 1;
      grid_ = dim3(blocks(gemm_.pixels, gemm_tile_rows(tile_)),
                   blocks(gemm_.columns, gemm_tile_columns(tile_)),
                   static_cast<unsigned>(problem.groups * phases));
    }
  }

  void run(const ConvArgs& args) override {
    ConvGemm gemm = gemm_;
    gemm.pool.open = args.open;
    switch (problem_.pass) {
      case Pass::forward:
        gemm.gathered = args.x;
        gemm.matrix = args.weight;
        gemm.out = args.y;
        gemm.bias = problem_.bias ? args.bias : nullptr;
        break;
      case Pass::backward_data:
        gemm.gathered = args.y;
        gemm.matrix = args.weight;
        gemm.out = args.x;
        break;
      case Pass::backward_weights:
        gemm.gathered = args.x;
        gemm.matrix = args.y;
        gemm.out = gemm.splits > 1 ? context_.workspace : args.dweight;
        gemm.dbias = args.dbias;
        gemm.add = args.write == GradWrite::add;
        break;
    }
    const GemmKind kind = {problem_.pass, tile_, problem_.pool.has_value()};
    if (problem_.type == DType::bf16) {
      launch_gemm_bf16(kind, grid_, context_.stream, gemm);
    } else if (problem_.tf32) {
      launch_gemm_tf32(kind, grid_, context_.stream, gemm);
    } else {
      launch_gemm_f32(kind, grid_, context_.stream, gemm);
    }
    if (gemm.splits == 1) return;
    sum_splits(context_, gemm.splits, gemm.pixel_channels, gemm.columns, gemm.taps, args.dweight,
               args.dbias, args.write);
  }

  bool gives_dbias() const override { return gemm_.ones; }

  std::string name() const override {
    return problem_.type == DType::bf16 ? "own:bf16" : problem_.tf32 ? "own:tf32" : "own:fp32";
  }

 private:
  static unsigned blocks(std::int64_t count, std::int64_t by) {
    return static_cast<unsigned>(ceil_div(count, by));
  }

  /// Splits the sum over pixels, because there are few weights and many pixels. Each of some 130
  /// multiprocessors gets two to four blocks. The partition depends only on the problem, so that
  /// every GPU adds in the same order.
  void cut_weights() {
    const bool small = gemm_.pixel_group <= 32 || gemm_.taps <= 32;
    tile_ = small ? GemmTile::small : GemmTile::square;
    const std::int64_t across = ceil_div(gemm_.columns, gemm_tile_columns(tile_));
    const std::int64_t down = ceil_div(gemm_.pixel_group, gemm_tile_rows(tile_));
    const std::int64_t tiles = across * down * problem_.groups;
    const std::int64_t step = kGemmWords * 4 / static_cast<int>(size_of(problem_.type));
    const std::int64_t steps = ceil_div(gemm_.pixels, step);
    // A split takes at least four steps, because fewer would not justify the cost of adding its
    // part.
    const std::int64_t part_bytes = static_cast<std::int64_t>(gemm_.pixel_channels) *
                                    gemm_.columns * static_cast<std::int64_t>(sizeof(float));
    const std::int64_t most = std::min(steps / 4, kMaxPartBytes / part_bytes);
    const std::int64_t wanted = std::min((small ? 512 : 256) / tiles, most);
    const std::int64_t steps_each = ceil_div(steps, std::max<std::int64_t>(wanted, 1));
    gemm_.splits = static_cast<int>(ceil_div(steps, steps_each));
    gemm_.split_pixels = static_cast<int>(steps_each * step);
    grid_ = dim3(static_cast<unsigned>(across), static_cast<unsigned>(down),
                 static_cast<unsigned>(problem_.groups * gemm_.splits));
    if (gemm_.splits > 1 &&
        static_cast<std::size_t>(gemm_.splits * part_bytes) > context_.workspace_bytes) {
      fail(ErrorKind::device,
           "{}: the weight gradient of {} needs a workspace of {} bytes, found {}", context_.name,
           problem_.key(), gemm_.splits * part_bytes, context_.workspace_bytes);
    }
  }

  static constexpr std::int64_t kMaxPartBytes = std::int64_t{16} << 20;

  const CudaContext& context_;
  ConvProblem problem_;
  ConvGemm gemm_;
  GemmTile tile_ = GemmTile::square;
  dim3 grid_;
};

}  // namespace

std::unique_ptr<ConvPlan> make_implicit_gemm(const CudaContext& context,
                                             const ConvProblem& problem) {
  // Kernels count elements in 32 bits, and a grid has at most 65535 blocks along y and z.
  // Indices run past the end by a few tiles.
  constexpr std::int64_t kMax = std::numeric_limits<std::int32_t>::max() - 65536;
  const std::int64_t weights =
      problem.out.c * problem.kernel.h * problem.kernel.w * (problem.in.c / problem.groups);
  const std::int64_t phases = problem.stride.h * problem.stride.w;
  if (problem.batch * problem.in.elements() > kMax ||
      problem.batch * problem.out.elements() > kMax || weights > kMax ||
      problem.groups * phases > 65535 || problem.out.c > 65535 * 32 || problem.in.c > 65535 * 32) {
    return nullptr;
  }
  return std::make_unique<ImplicitGemm>(context, problem);
}

}  // namespace dpt
