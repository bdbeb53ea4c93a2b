// The product of two activations on a GPU.
#include "kernels/cuda/ops.h"

#include <array>
#include <cassert>
#include <utility>

#include "kernels/base/divide.h"
#include "kernels/cuda/channel_sums.cuh"
#include "kernels/cuda/description.h"
#include "kernels/cuda/runtime/pack.h"

namespace dpt {
namespace {

/// Computes y = a * b, where b has 1x1 pixels if `narrow`. A pack then never spans two pixels.
template <class T>
struct ProductBody {
  T* y;
  const T *a, *b;
  Divider sample, channels;  ///< elements of a sample of y, and channels
  bool narrow;

  template <int kCount>
  __device__ void at(std::int64_t i) const {
    const auto values = load_pack<kCount>(a + i);
    const auto index = static_cast<std::uint32_t>(i);
    const std::uint32_t factor =
        narrow ? sample.quotient(index) * channels.divisor() + channels.remainder(index) : index;
    const auto factors = load_pack<kCount>(b + factor);
    Pack<T, kCount> result;
    for (int k = 0; k < kCount; ++k) {
      store(result.v[k], to_float(values.v[k]) * to_float(factors.v[k]));
    }
    store_pack<kCount>(y + i, result);
  }
};

/// Computes the sum of a * b over the pixels of every sample and channel. A block handles
/// kSumColumns channels of a sample.
template <class T>
__global__ void __launch_bounds__(kSumColumns* kSumLanes)
    sum_pixels_kernel(T* to, const T* a, const T* b, std::int64_t pixels, std::int64_t channels) {
  const std::int64_t tiles = (channels + kSumColumns - 1) / kSumColumns;
  const std::int64_t sample = blockIdx.x / tiles;
  const std::int64_t c = blockIdx.x % tiles * kSumColumns + threadIdx.x;
  const bool works = c < channels;
  float sum = 0;
  if (works) {
    for (std::int64_t pixel = threadIdx.y; pixel < pixels; pixel += kSumLanes) {
      const std::int64_t i = (sample * pixels + pixel) * channels + c;
      sum += to_float(a[i]) * to_float(b[i]);
    }
  }
  sum = sum_of_lanes(sum);
  if (works && threadIdx.y == 0) store(to[sample * channels + c], sum);
}

template <class T>
class CudaProduct final : public Op {
 public:
  CudaProduct(const CudaContext& context, const ProductDesc& desc)
      : context_(context),
        desc_(desc),
        narrow_(desc.in[0] == desc.in[1] ? -1
                : desc.in[0] == desc.out ? 1
                                         : 0) {}
  bool backward_needs_y() const override { return false; }
  bool backward_keeps_dy() const override { return true; }
  bool separate_gradients() const override { return true; }

  void forward(const OpArgs& args) override {
    DevPtr a = args.x, b = args.more_x[0];
    if (narrow_ == 0) std::swap(a, b);
    multiply(args.y, a, b);
  }
  void backward(const OpArgs& args) override {
    const std::array<DevPtr, 2> x = {args.x, args.more_x[0]}, dx = {args.dx, args.more_dx[0]};
    for (int k = 0; k < 2; ++k) {
      if (!dx[k]) continue;
      if (k == narrow_) {
        sum_pixels(dx[k], args.dy, x[1 - k]);
      } else {
        multiply(dx[k], args.dy, x[1 - k]);
      }
    }
  }
  std::string implementation() const override { return "own"; }

 private:
  static constexpr int kCount = 16 / sizeof(T);

  void multiply(DevPtr y, DevPtr a, DevPtr b) const {
    const bool narrow = narrow_ >= 0;
    const ProductBody<T> body = {device<T>(y),         device<const T>(a),
                                 device<const T>(b),   Divider(desc_.out.elements()),
                                 Divider(desc_.out.c), narrow};
    const bool whole = !narrow || desc_.out.c % kCount == 0;
    for_each_pack<kCount>(context_, desc_.batch * desc_.out.elements(),
                          whole && aligned_to(16, y, a, b), body);
  }
  void sum_pixels(DevPtr to, DevPtr a, DevPtr b) const {
    const std::int64_t tiles = ceil_div(desc_.out.c, std::int64_t{kSumColumns});
    launch(sum_pixels_kernel<T>, static_cast<unsigned>(desc_.batch * tiles),
           dim3(kSumColumns, kSumLanes), 0, context_.stream, device<T>(to), device<const T>(a),
           device<const T>(b), desc_.out.h * desc_.out.w, desc_.out.c);
  }

  const CudaContext& context_;
  ProductDesc desc_;
  int narrow_;  ///< the input with 1x1 pixels, if only one has
};

}  // namespace

std::unique_ptr<Op> make_cuda_op(const CudaContext& context, const ProductDesc& desc) {
  check_cuda_desc(context, "a product", desc.type, desc.batch);
  check_indices(context, "a product", desc.batch * desc.out.elements());
  assert(desc.in[0] == desc.out || desc.in[1] == desc.out);
  if (desc.type == DType::bf16) return std::make_unique<CudaProduct<Bf16>>(context, desc);
  return std::make_unique<CudaProduct<float>>(context, desc);
}

}  // namespace dpt
