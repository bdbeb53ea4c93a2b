// A transposed convolution, composed of the passes of the convolution that it transposes.
#include "kernels/cpu/ops.h"

#include <algorithm>

#include "kernels/base/align.h"
#include "kernels/common/bf16.h"
#include "kernels/common/conv_transpose.h"
#include "kernels/cpu/channel_sums.h"
#include "kernels/cpu/check.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/parallel.h"

namespace dpt {
namespace {

template <class T>
class CpuConvTranspose2d final : public Op {
 public:
  CpuConvTranspose2d(const ConvTranspose2dDesc& desc, int threads)
      : d_(desc),
        threads_(threads),
        cut_(desc.batch * desc.out.h * desc.out.w, desc.out.c),
        passes_(desc, [&](Pass pass) {
          // The convolution's input is y, and its output is x.
          if (pass != Pass::backward_weights) {
            pass = pass == Pass::forward ? Pass::backward_data : Pass::forward;
          }
          return onednn::make_convolution(transposed_convolution(desc), pass, false, threads);
        }) {}

  std::size_t scratch_bytes() const override {
    const std::size_t bytes = passes_.scratch_bytes();
    return d_.training && d_.bias ? std::max(bytes, cut_.scratch_bytes(1)) : bytes;
  }
  bool backward_needs_y() const override { return false; }
  bool backward_keeps_dy() const override { return true; }

  void forward(const OpArgs& args) override {
    passes_.forward.run({args.y, args.x, args.params[d_.kWeight].as(d_.type), {}, args.scratch});
    if (d_.bias) add_bias(host<T>(args.y), host(args.params[d_.kBias].f32));
  }
  void backward(const OpArgs& args) override {
    const ParamArgs& weight = args.params[d_.kWeight];
    passes_.weights->run({args.dy, args.x, weight.gradient, {}, args.scratch, args.write});
    if (passes_.data) passes_.data->run({args.dy, args.dx, weight.as(d_.type), {}, args.scratch});
    if (d_.bias) sum_bias(args);
  }

  std::string implementation() const override { return passes_.implementation(); }

 private:
  void add_bias(T* y, const float* bias) const {
    const std::int64_t channels = cut_.columns;
    parallel_for(threads_, cut_.rows, [=](std::int64_t row) {
      T* pixel = y + row * channels;
      for (std::int64_t c = 0; c < channels; ++c) store(pixel[c], to_float(pixel[c]) + bias[c]);
    });
  }

  void sum_bias(const OpArgs& args) const {
    const T* dy = host<const T>(args.dy);
    const std::int64_t channels = cut_.columns;
    double* sums = host<double>(args.scratch);
    sum_columns<1>(threads_, cut_, sums,
                   [=](std::int64_t row, std::int64_t first, std::int64_t count, auto& some) {
                     const T* from = dy + row * channels + first;
                     for (std::int64_t c = 0; c < count; ++c) some.v[0][c] += to_float(from[c]);
                   });
    float* to = host(args.params[d_.kBias].gradient);
    for (std::int64_t c = 0; c < channels; ++c) {
      const auto gradient = static_cast<float>(sums[c]);
      to[c] = args.write == GradWrite::add ? to[c] + gradient : gradient;
    }
  }

  ConvTranspose2dDesc d_;
  int threads_;
  RowCut cut_;
  onednn::Passes passes_;
};

}  // namespace

std::unique_ptr<Op> make_cpu_op(const ConvTranspose2dDesc& desc, const CpuTarget& target) {
  check_cpu_desc("a transposed convolution", desc.type, desc.batch, desc.tf32);
  if (desc.type == DType::bf16)
    return std::make_unique<CpuConvTranspose2d<Bf16>>(desc, target.threads);
  return std::make_unique<CpuConvTranspose2d<float>>(desc, target.threads);
}

}  // namespace dpt
