// Multiplies activations by a learned factor per channel on a GPU.
#include "kernels/cuda/ops.h"

#include "kernels/base/divide.h"
#include "kernels/cuda/channel_sums.cuh"
#include "kernels/cuda/description.h"
#include "kernels/cuda/runtime/pack.h"

namespace dpt {
namespace {

/// Multiplies `from` by the weight. With negative_only, elements where x is above 0 are only
/// copied. A pack spans two pixels only if there is one weight.
template <class T>
struct ChannelScaleBody {
  T* to;
  const T *from, *x;
  const float* weight;
  Divider channels;
  bool one_weight, negative_only;

  template <int kCount>
  __device__ void at(std::int64_t i) const {
    const auto values = load_pack<kCount>(from + i);
    const auto points = load_pack<kCount>(x + i);
    const std::uint32_t channel = channels.remainder(static_cast<std::uint32_t>(i));
    Pack<T, kCount> result;
    for (int k = 0; k < kCount; ++k) {
      const float value = to_float(values.v[k]);
      const bool counts = !negative_only || !(to_float(points.v[k]) > 0.0F);
      store(result.v[k], counts ? value * weight[one_weight ? 0 : channel + k] : value);
    }
    store_pack<kCount>(to + i, result);
  }
};

template <class T>
struct WeightTerms {
  const T *x, *dy;
  std::int64_t channels;
  bool negative_only;

  __device__ void add(std::int64_t row, std::int64_t column, float* sums) const {
    const std::int64_t i = row * channels + column;
    const float value = to_float(x[i]);
    if (!negative_only || !(value > 0.0F)) sums[0] += value * to_float(dy[i]);
  }
};

template <class T>
class CudaChannelScale final : public Op {
 public:
  CudaChannelScale(const CudaContext& context, const ChannelScaleDesc& desc)
      : context_(context),
        desc_(desc),
        chunks_(make_row_chunks(desc.batch * desc.shape.h * desc.shape.w, desc.shape.c)) {}
  std::size_t scratch_bytes() const override {
    return desc_.training ? chunks_.scratch_bytes(1) : 0;
  }
  bool backward_needs_y() const override { return false; }
  bool backward_keeps_dy() const override { return true; }

  void forward(const OpArgs& args) override { scale(args, args.y, args.x); }
  void backward(const OpArgs& args) override {
    if (const DevPtr dweight = args.params[desc_.kWeight].gradient) {
      const WeightTerms<T> terms = {device<const T>(args.x), device<const T>(args.dy),
                                    desc_.shape.c, desc_.negative_only};
      queue_chunk_sums<1>(context_, chunks_, terms, args.scratch);
      if (desc_.one_weight) {
        launch(sum_all_kernel, 1, 256, 0, context_.stream, chunks_,
               device<const float>(args.scratch), device<float>(dweight),
               args.write == GradWrite::add);
      } else {
        queue_add_chunks(context_, chunks_, 1, 0, args.scratch, dweight, args.write);
      }
    }
    if (args.dx) scale(args, args.dx, args.dy);
  }
  std::string implementation() const override { return "own"; }

 private:
  void scale(const OpArgs& args, DevPtr to, DevPtr from) const {
    constexpr int kCount = 16 / sizeof(T);
    const ChannelScaleBody<T> body = {
        device<T>(to),           device<const T>(from),
        device<const T>(args.x), device<const float>(args.params[desc_.kWeight].f32),
        Divider(desc_.shape.c),  desc_.one_weight,
        desc_.negative_only};
    const bool whole = desc_.one_weight || desc_.shape.c % kCount == 0;
    for_each_pack<kCount>(context_, desc_.batch * desc_.shape.elements(),
                          whole && aligned_to(16, to, from, args.x), body);
  }

  const CudaContext& context_;
  ChannelScaleDesc desc_;
  RowChunks chunks_;
};

}  // namespace

std::unique_ptr<Op> make_cuda_op(const CudaContext& context, const ChannelScaleDesc& desc) {
  check_cuda_desc(context, "a scale of channels", desc.type, desc.batch);
  check_indices(context, "a scale of channels", desc.batch * desc.shape.elements());
  if (desc.type == DType::bf16) return std::make_unique<CudaChannelScale<Bf16>>(context, desc);
  return std::make_unique<CudaChannelScale<float>>(context, desc);
}

}  // namespace dpt
