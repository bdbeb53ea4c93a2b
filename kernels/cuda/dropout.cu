// Dropout on a GPU. The mask is not stored: forward and backward draw it anew. The draws are in
// kernels/common/dropout.h, so that the CPU drops the same units.
#include "kernels/cuda/ops.h"

#include "kernels/base/divide.h"
#include "kernels/common/dropout.h"
#include "kernels/cuda/description.h"
#include "kernels/cuda/runtime/pack.h"

namespace dpt {
namespace {

/// Computes to = from * factor; both may be the same memory.
template <class T>
struct DropoutBody {
  T* to;
  const T* from;
  dropout::Masks masks;
  const std::int64_t* ids;
  const std::int64_t* step;
  Divider by_size;      ///< divides by the number of elements of a sample
  Divider by_channels;  ///< divides by the number of channels; used if drops_channels
  bool drops_channels;

  template <int kCount>
  __device__ void at(std::int64_t i) const {
    const auto values = load_pack<kCount>(from + i);
    Pack<T, kCount> result;
    auto element = static_cast<std::uint32_t>(i);
    std::uint32_t sample = by_size.split(element);
    std::uint32_t unit = drops_channels ? by_channels.remainder(element) : element;
    dropout::Factors factors = draw(sample, unit);
    for (int k = 0; k < kCount; ++k) {
      store(result.v[k], to_float(values.v[k]) * factors.v[unit % dropout::kGroup]);
      if (k + 1 == kCount) break;
      ++unit;
      bool begins = unit % dropout::kGroup == 0;
      if (drops_channels && unit == by_channels.divisor()) {
        unit = 0;
        begins = true;
      }
      if (++element == by_size.divisor()) {
        element = unit = 0;
        ++sample;
        begins = true;
      }
      if (begins) factors = draw(sample, unit);
    }
    store_pack<kCount>(to + i, result);
  }

  __device__ dropout::Factors draw(std::uint32_t sample, std::uint32_t unit) const {
    return dropout::factors(masks, *step, ids[sample], unit / dropout::kGroup);
  }
};

template <class T>
class CudaDropout final : public Op {
 public:
  CudaDropout(const CudaContext& context, const DropoutDesc& desc)
      : context_(context),
        desc_(desc),
        is_identity_(!desc.training || desc.p == 0),
        masks_(dropout::masks(desc.seed, desc.stream, desc.p)) {}
  bool in_place() const override { return true; }
  bool backward_needs_x() const override { return false; }
  bool backward_needs_y() const override { return false; }
  bool backward_keeps_dy() const override { return true; }
  bool passes_dy() const override { return is_identity_; }
  void forward(const OpArgs& args) override { run(args, args.y, args.x); }
  void backward(const OpArgs& args) override { run(args, args.dx, args.dy); }
  std::string implementation() const override { return "own"; }

 private:
  void run(const OpArgs& args, DevPtr to, DevPtr from) const {
    const std::int64_t size = desc_.shape.elements(), count = desc_.batch * size;
    if (is_identity_) {
      if (to == from) return;
      cuda_check(cudaMemcpyAsync(device<void>(to), device<const void>(from),
                                 static_cast<std::size_t>(count) * sizeof(T),
                                 cudaMemcpyDeviceToDevice, context_.stream),
                 "cudaMemcpyAsync");
      return;
    }
    constexpr int kCount = 16 / sizeof(T);
    for_each_pack<kCount>(
        context_, count, aligned_to(16, to, from),
        DropoutBody<T>{device<T>(to), device<const T>(from), masks_,
                       device<const std::int64_t>(args.ids), device<const std::int64_t>(args.step),
                       Divider(size), Divider(desc_.shape.c), desc_.channels});
  }

  const CudaContext& context_;
  DropoutDesc desc_;
  bool is_identity_;
  dropout::Masks masks_;
};

}  // namespace

std::unique_ptr<Op> make_cuda_op(const CudaContext& context, const DropoutDesc& desc) {
  check_cuda_desc(context, "dropout", desc.type, desc.batch);
  check_indices(context, "dropout", desc.batch * desc.shape.elements());
  if (!(desc.p >= 0 && desc.p < 1) || desc.shape.elements() >= dropout::kMaxUnits) {
    fail(ErrorKind::device,
         "{}: dropout needs a probability from 0 to below 1 and fewer than {} elements in a "
         "sample, found {} and {}",
         context.name, dropout::kMaxUnits, desc.p, desc.shape.elements());
  }
  if (desc.type == DType::bf16) return std::make_unique<CudaDropout<Bf16>>(context, desc);
  return std::make_unique<CudaDropout<float>>(context, desc);
}

}  // namespace dpt
