#include "kernels/cpu/ops.h"

#include "kernels/common/bf16.h"
#include "kernels/cpu/channel_sums.h"
#include "kernels/cpu/check.h"
#include "kernels/cpu/parallel.h"

namespace dpt {
namespace {

template <class T>
class CpuChannelScale final : public Op {
 public:
  CpuChannelScale(const ChannelScaleDesc& desc, int threads)
      : desc_(desc),
        cut_(desc.batch * desc.shape.h * desc.shape.w, desc.shape.c),
        step_(desc.one_weight ? 0 : 1),
        threads_(threads) {}
  std::size_t scratch_bytes() const override { return desc_.training ? cut_.scratch_bytes(1) : 0; }
  bool backward_needs_y() const override { return false; }
  bool backward_keeps_dy() const override { return true; }

  void forward(const OpArgs& args) override {
    scale(host<T>(args.y), host<const T>(args.x), host<const T>(args.x),
          host(args.params[desc_.kWeight].f32));
  }

  void backward(const OpArgs& args) override {
    const T *x = host<const T>(args.x), *dy = host<const T>(args.dy);
    const std::int64_t channels = cut_.columns;
    double* sums = host<double>(args.scratch);
    const bool negative_only = desc_.negative_only;
    if (const DevPtr dweight = args.params[desc_.kWeight].gradient) {
      sum_columns<1>(threads_, cut_, sums,
                     [=](std::int64_t row, std::int64_t first, std::int64_t count, auto& some) {
                       const std::int64_t at = row * channels + first;
                       for (std::int64_t c = 0; c < count; ++c) {
                         const float value = to_float(x[at + c]);
                         const bool counts = !negative_only || !(value > 0.0F);
                         some.v[0][c] += counts ? value * to_float(dy[at + c]) : 0.0F;
                       }
                     });
      write_gradient(host(dweight), sums, args.write);
    }
    if (args.dx) scale(host<T>(args.dx), dy, x, host(args.params[desc_.kWeight].f32));
  }
  std::string implementation() const override { return "own"; }

 private:
  /// Multiplies `from` by the weight. With negative_only, elements where x is above 0 are only
  /// copied.
  void scale(T* to, const T* from, const T* x, const float* weight) const {
    const std::int64_t channels = cut_.columns, step = step_;
    const bool negative_only = desc_.negative_only;
    parallel_for(threads_, cut_.rows, [=](std::int64_t row) {
      const std::int64_t at = row * channels;
      for (std::int64_t c = 0; c < channels; ++c) {
        const bool counts = !negative_only || !(to_float(x[at + c]) > 0.0F);
        const float value = to_float(from[at + c]);
        store(to[at + c], counts ? value * weight[c * step] : value);
      }
    });
  }

  void write_gradient(float* to, double* sums, GradWrite write) const {
    if (desc_.one_weight) {
      for (std::int64_t c = 1; c < cut_.columns; ++c) sums[0] += sums[c];
    }
    for (std::int64_t c = 0; c < (desc_.one_weight ? 1 : cut_.columns); ++c) {
      const auto gradient = static_cast<float>(sums[c]);
      to[c] = write == GradWrite::add ? to[c] + gradient : gradient;
    }
  }

  ChannelScaleDesc desc_;
  RowCut cut_;
  std::int64_t step_;
  int threads_;
};

}  // namespace

std::unique_ptr<Op> make_cpu_op(const ChannelScaleDesc& desc, const CpuTarget& target) {
  check_cpu_desc("a scale of channels", desc.type, desc.batch);
  if (desc.type == DType::bf16)
    return std::make_unique<CpuChannelScale<Bf16>>(desc, target.threads);
  return std::make_unique<CpuChannelScale<float>>(desc, target.threads);
}

}  // namespace dpt
