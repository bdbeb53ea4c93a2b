// Convolutions whose input has fewer channels than one load of a tensor core kernel, such as the
// first one of a network for colour images. cuDNN would copy the tensors into padded ones, in
// workspace that dpt does not have. dpt pads them in the operation's scratch memory instead.
#include <utility>

#include "kernels/base/divide.h"
#include "kernels/cuda/conv/conv_plan.h"
#include "kernels/cuda/runtime/pack.h"

namespace dpt {
namespace {

/// Bytes of a padded pixel: as many as a thread of a tensor core kernel loads at once.
constexpr std::size_t kPixelBytes = 16;
template <class T>
constexpr int kPadded = kPixelBytes / sizeof(T);  ///< channels of a padded pixel
constexpr int kThreads = 256;
/// Alignment of the tensors in scratch memory.
constexpr std::size_t kAlignment = 64;

/// Copies pixels of `channels` channels to padded pixels, whose other channels are zeros.
template <class T>
__global__ void __launch_bounds__(kThreads)
    pad_channels(const T* from, T* to, std::int64_t pixels, int channels) {
  for (std::int64_t i = global_thread(); i < pixels; i += grid_threads()) {
    Pack<T, kPadded<T>> pixel;
#pragma unroll
    for (int c = 0; c < kPadded<T>; ++c) {
      store(pixel.v[c], c < channels ? to_float(from[i * channels + c]) : 0.0F);
    }
    store_pack<kPadded<T>>(to + i * kPadded<T>, pixel);
  }
}

/// Writes the first channels of pixels of `padded` channels to pixels of `channels` channels:
/// overwrites these, or adds to them if `add`.
__global__ void __launch_bounds__(kThreads)
    unpad_gradient(const float* from, float* to, std::int64_t pixels, int padded, int channels,
                   bool add) {
  for (std::int64_t i = global_thread(); i < pixels; i += grid_threads()) {
    for (int c = 0; c < channels; ++c) {
      const float value = from[i * padded + c];
      float& sum = to[i * channels + c];
      sum = add ? sum + value : value;
    }
  }
}

std::int64_t padded_channels(DType type) {
  return static_cast<std::int64_t>(kPixelBytes / size_of(type));
}

class PaddedConv final : public ConvPlan {
 public:
  PaddedConv(const CudaContext& context, const ConvProblem& problem,
             std::unique_ptr<ConvPlan> inner)
      : context_(context),
        forward_(problem.pass == Pass::forward),
        type_(problem.type),
        channels_(static_cast<int>(problem.in.c)),
        pixels_(problem.batch * problem.in.h * problem.in.w),
        taps_(problem.out.c * problem.kernel.h * problem.kernel.w),
        inner_(std::move(inner)) {}

  void run(const ConvArgs& args) override {
    auto* scratch = static_cast<std::byte*>(args.scratch);
    ConvArgs padded = args;
    padded.x = scratch;
    pad(args.x, padded.x, pixels_);
    void* weight = scratch + x_bytes();
    if (forward_) {
      pad(args.weight, weight, taps_);
      padded.weight = weight;
    } else {
      padded.dweight = static_cast<float*>(weight);
      padded.write = GradWrite::overwrite;
    }
    inner_->run(padded);
    if (forward_) return;
    launch(unpad_gradient, blocks(taps_), kThreads, 0, context_.stream, padded.dweight,
           args.dweight, taps_, static_cast<int>(padded_channels(type_)), channels_,
           args.write == GradWrite::add);
  }
  bool gives_dbias() const override { return inner_->gives_dbias(); }
  bool uses_tensor_cores() const override { return inner_->uses_tensor_cores(); }
  std::size_t scratch_bytes() const override {
    const DType weight_type = forward_ ? type_ : DType::f32;
    return x_bytes() +
           static_cast<std::size_t>(taps_ * padded_channels(type_)) * size_of(weight_type);
  }
  std::string name() const override { return std::string(kPaddedPrefix) + inner_->name(); }

 private:
  std::size_t x_bytes() const {
    return align_up(static_cast<std::size_t>(pixels_) * kPixelBytes, kAlignment);
  }
  /// Returns the number of blocks: at most eight per multiprocessor, enough to fill any
  /// architecture.
  unsigned blocks(std::int64_t threads) const {
    return blocks_for(threads, kThreads, std::int64_t{8} * context_.multiprocessors);
  }
  void pad(const void* from, void* to, std::int64_t pixels) const {
    if (type_ == DType::bf16) {
      pad_as<Bf16>(from, to, pixels);
    } else {
      pad_as<float>(from, to, pixels);
    }
  }
  template <class T>
  void pad_as(const void* from, void* to, std::int64_t pixels) const {
    launch(pad_channels<T>, blocks(pixels), kThreads, 0, context_.stream,
           static_cast<const T*>(from), static_cast<T*>(to), pixels, channels_);
  }

  const CudaContext& context_;
  bool forward_;
  DType type_;
  int channels_;
  std::int64_t pixels_, taps_;  ///< pixels of x, and of the weights of all outputs
  std::unique_ptr<ConvPlan> inner_;
};

}  // namespace

std::optional<ConvProblem> padded_problem(const ConvProblem& problem) {
  const bool tensor_cores = problem.type == DType::bf16 || problem.tf32;
  const std::int64_t channels = padded_channels(problem.type);
  if (!tensor_cores || problem.in.c >= channels || problem.groups != 1 || problem.pool ||
      problem.pass == Pass::backward_data) {
    return std::nullopt;
  }
  ConvProblem padded = problem;
  padded.in.c = channels;
  return padded;
}

std::unique_ptr<ConvPlan> make_padded_conv(const CudaContext& context, const ConvProblem& problem,
                                           std::unique_ptr<ConvPlan> inner) {
  return std::make_unique<PaddedConv>(context, problem, std::move(inner));
}

}  // namespace dpt
