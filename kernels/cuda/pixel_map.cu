// Repeated and padded pixels on a GPU.
#include "kernels/cuda/ops.h"

#include <algorithm>

#include "kernels/base/divide.h"
#include "kernels/common/pixel_map.h"
#include "kernels/cuda/description.h"
#include "kernels/cuda/runtime/pack.h"

namespace dpt {
namespace {

/// Computes y. A pack never spans two pixels.
template <class T>
struct PixelMapForward {
  T* y;
  const T* x;
  PixelAxis h, w;
  Divider channels, height, width;  ///< sizes of y

  template <int kCount>
  __device__ void at(std::int64_t at) const {
    auto c = static_cast<std::uint32_t>(at);
    std::uint32_t column = channels.split(c);
    std::uint32_t row = width.split(column);
    const std::int64_t sample = height.split(row);
    const std::int64_t i = h.source(row), j = w.source(column);
    Pack<T, kCount> values = {};
    if (i >= 0 && j >= 0) {
      values = load_pack<kCount>(x + ((sample * h.in + i) * w.in + j) * channels.divisor() + c);
    }
    store_pack<kCount>(y + at, values);
  }
};

template <class T>
struct PixelMapBackward {
  T* dx;
  const T* dy;
  PixelAxis h, w;
  Divider channels, height, width;  ///< sizes of dx

  template <int kCount>
  __device__ void at(std::int64_t at) const {
    auto c = static_cast<std::uint32_t>(at);
    std::uint32_t column = channels.split(c);
    std::uint32_t row = width.split(column);
    const std::int64_t sample = height.split(row);
    const PixelAxis::Places p = h.places(row), q = w.places(column);
    float sums[kCount] = {};
    for (std::int64_t a = p.begin; a < p.end; ++a) {
      for (std::int64_t b = q.begin; b < q.end; ++b) {
        const auto values =
            load_pack<kCount>(dy + ((sample * h.out + a) * w.out + b) * channels.divisor() + c);
        for (int k = 0; k < kCount; ++k) sums[k] += to_float(values.v[k]);
      }
    }
    Pack<T, kCount> result;
    for (int k = 0; k < kCount; ++k) store(result.v[k], sums[k]);
    store_pack<kCount>(dx + at, result);
  }
};

template <class T>
class CudaPixelMap final : public Op {
 public:
  CudaPixelMap(const CudaContext& context, const PixelMapDesc& desc)
      : context_(context), desc_(desc), h_(pixel_axis_h(desc)), w_(pixel_axis_w(desc)) {}
  bool backward_needs_x() const override { return false; }
  bool backward_needs_y() const override { return false; }
  bool backward_keeps_dy() const override { return true; }

  void forward(const OpArgs& args) override {
    for_each_pack<kCount>(
        context_, desc_.batch * desc_.out.elements(), has_packs() && aligned_to(16, args.y, args.x),
        PixelMapForward<T>{device<T>(args.y), device<const T>(args.x), h_, w_, Divider(desc_.in.c),
                           Divider(h_.out), Divider(w_.out)});
  }
  void backward(const OpArgs& args) override {
    for_each_pack<kCount>(context_, desc_.batch * desc_.in.elements(),
                          has_packs() && aligned_to(16, args.dx, args.dy),
                          PixelMapBackward<T>{device<T>(args.dx), device<const T>(args.dy), h_, w_,
                                              Divider(desc_.in.c), Divider(h_.in), Divider(w_.in)});
  }
  std::string implementation() const override { return "own"; }

 private:
  static constexpr int kCount = 16 / sizeof(T);
  bool has_packs() const { return desc_.in.c % kCount == 0; }

  const CudaContext& context_;
  PixelMapDesc desc_;
  PixelAxis h_, w_;
};

}  // namespace

std::unique_ptr<Op> make_cuda_op(const CudaContext& context, const PixelMapDesc& desc) {
  check_cuda_desc(context, "a map of pixels", desc.type, desc.batch);
  check_indices(context, "a map of pixels",
                desc.batch * std::max(desc.in.elements(), desc.out.elements()));
  if (desc.type == DType::bf16) return std::make_unique<CudaPixelMap<Bf16>>(context, desc);
  return std::make_unique<CudaPixelMap<float>>(context, desc);
}

}  // namespace dpt
