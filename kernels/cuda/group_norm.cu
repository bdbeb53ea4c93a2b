// Group normalisation on a GPU. A block normalises one set: a sample's group of channels at all
// pixels. The order of every sum depends only on the shape.
#include "kernels/cuda/ops.h"

#include <cassert>

#include "kernels/base/divide.h"
#include "kernels/common/batch_norm_math.h"
#include "kernels/cuda/channel_sums.cuh"
#include "kernels/cuda/description.h"
#include "kernels/cuda/runtime/pack.h"

namespace dpt {
namespace {

/// Statistics that normalise a set.
struct Moments {
  float mean, inverse;
};

/// Layout of all sets.
struct Sets {
  Divider pixels;
  std::int64_t channels, groups;
  Divider width;  ///< channels of a group

  /// Returns the number of values of a set.
  __host__ __device__ std::uint32_t values() const { return pixels.divisor() * width.divisor(); }
};

/// Layout of one set.
struct Set {
  std::int64_t channels;
  Divider width;
  std::int64_t first_channel, first;  ///< channel and index of value 0

  __device__ Set(const Sets& sets, std::int64_t set)
      : channels(sets.channels),
        width(sets.width),
        first_channel(set % sets.groups * width.divisor()),
        first(set / sets.groups * sets.pixels.divisor() * channels + first_channel) {}
  __device__ std::int64_t channel(std::uint32_t i) const {
    return first_channel + width.remainder(i);
  }
  /// Returns the offset of value `i` in the tensor.
  __device__ std::int64_t at(std::uint32_t i) const {
    const std::int64_t pixel = width.split(i);
    return first + pixel * channels + i;
  }
};

/// Returns block_sum, valid in every thread.
template <int kThreads>
__device__ inline double sum_for_all(double value) {
  __shared__ double total;
  const double sum = block_sum<kThreads>(value);
  if (threadIdx.x == 0) total = sum;
  __syncthreads();
  return total;
}

/// Computes the moments in two passes, and then y. The first pass adds deviations from one element
/// to avoid differences of large numbers.
template <class T, int kThreads>
__global__ void __launch_bounds__(kThreads)
    group_norm_kernel(Sets sets, float eps, const T* x, T* y, const float* weight,
                      const float* bias, Moments* saved) {
  const Set set(sets, blockIdx.x);
  const std::uint32_t values = sets.values();
  const float pivot = to_float(x[set.at(0)]);
  double sum = 0;
  for (std::uint32_t i = threadIdx.x; i < values; i += kThreads) {
    sum += static_cast<double>(to_float(x[set.at(i)]) - pivot);
  }
  const double shift = sum_for_all<kThreads>(sum) / static_cast<double>(values);
  const auto mean = static_cast<float>(static_cast<double>(pivot) + shift);
  sum = 0;
  for (std::uint32_t i = threadIdx.x; i < values; i += kThreads) {
    const float deviation = to_float(x[set.at(i)]) - mean;
    sum += static_cast<double>(deviation * deviation);
  }
  const double squares = sum_for_all<kThreads>(sum);
  const float inverse =
      inverse_deviation(static_cast<float>(squares), static_cast<float>(values), eps);
  if (saved && threadIdx.x == 0) saved[blockIdx.x] = {mean, inverse};
  for (std::uint32_t i = threadIdx.x; i < values; i += kThreads) {
    const std::int64_t at = set.at(i), c = set.channel(i);
    float value = (to_float(x[at]) - mean) * inverse;
    if (weight) value *= weight[c];
    if (bias) value += bias[c];
    store(y[at], value);
  }
}

template <class T, int kThreads>
__global__ void __launch_bounds__(kThreads)
    group_norm_backward_kernel(Sets sets, const T* x, const T* dy, T* dx, const float* weight,
                               const Moments* saved) {
  const Set set(sets, blockIdx.x);
  const std::uint32_t values = sets.values();
  const Moments m = saved[blockIdx.x];
  double sum = 0, product = 0;
  for (std::uint32_t i = threadIdx.x; i < values; i += kThreads) {
    const std::int64_t at = set.at(i);
    float gradient = to_float(dy[at]);
    if (weight) gradient *= weight[set.channel(i)];
    sum += static_cast<double>(gradient);
    product += static_cast<double>(gradient * ((to_float(x[at]) - m.mean) * m.inverse));
  }
  const auto mean = static_cast<float>(sum_for_all<kThreads>(sum) / static_cast<double>(values));
  const auto slope =
      static_cast<float>(sum_for_all<kThreads>(product) / static_cast<double>(values));
  for (std::uint32_t i = threadIdx.x; i < values; i += kThreads) {
    const std::int64_t at = set.at(i);
    float gradient = to_float(dy[at]);
    if (weight) gradient *= weight[set.channel(i)];
    const float normalised = (to_float(x[at]) - m.mean) * m.inverse;
    store(dx[at], m.inverse * (gradient - mean - normalised * slope));
  }
}

/// Terms of the parameters' gradients. These are the sums of dy, and of dy times the normalised x.
template <class T>
struct ParameterTerms {
  Sets sets;
  const T *x, *dy;
  const Moments* saved;

  __device__ void add(std::int64_t row, std::int64_t column, float* sums) const {
    const std::int64_t i = row * sets.channels + column;
    const std::int64_t sample = sets.pixels.quotient(static_cast<std::uint32_t>(row));
    const std::uint32_t group = sets.width.quotient(static_cast<std::uint32_t>(column));
    const Moments m = saved[sample * sets.groups + group];
    const float gradient = to_float(dy[i]);
    sums[0] += gradient;
    sums[1] += gradient * ((to_float(x[i]) - m.mean) * m.inverse);
  }
};

template <class T>
class CudaGroupNorm final : public Op {
 public:
  CudaGroupNorm(const CudaContext& context, const GroupNormDesc& desc)
      : context_(context),
        desc_(desc),
        sets_{Divider(desc.shape.h * desc.shape.w), desc.shape.c, desc.groups,
              Divider(desc.shape.c / desc.groups)},
        count_(desc.batch * desc.groups),
        chunks_(make_row_chunks(desc.batch * sets_.pixels.divisor(), desc.shape.c)) {}
  std::size_t saved_bytes() const override {
    return desc_.training ? static_cast<std::size_t>(count_) * sizeof(Moments) : 0;
  }
  std::size_t scratch_bytes() const override {
    const bool has_gradients = desc_.training && (desc_.weight || desc_.bias);
    return has_gradients ? chunks_.scratch_bytes(2) : 0;
  }
  bool backward_needs_y() const override { return false; }
  bool backward_keeps_dy() const override { return true; }

  void forward(const OpArgs& args) override {
    with_threads([&](auto threads) {
      launch(group_norm_kernel<T, threads>, static_cast<unsigned>(count_), threads.value, 0,
             context_.stream, sets_, desc_.eps, device<const T>(args.x), device<T>(args.y),
             device<const float>(args.params[desc_.kWeight].f32),
             device<const float>(args.params[desc_.kBias].f32),
             desc_.training ? device<Moments>(args.saved) : nullptr);
    });
  }
  void backward(const OpArgs& args) override {
    const DevPtr dweight = args.params[desc_.kWeight].gradient;
    const DevPtr dbias = args.params[desc_.kBias].gradient;
    if (dweight || dbias) {
      const ParameterTerms<T> terms = {sets_, device<const T>(args.x), device<const T>(args.dy),
                                       device<const Moments>(args.saved)};
      queue_chunk_sums<2>(context_, chunks_, terms, args.scratch);
      queue_add_chunks(context_, chunks_, 2, 0, args.scratch, dbias, args.write);
      queue_add_chunks(context_, chunks_, 2, 1, args.scratch, dweight, args.write);
    }
    if (!args.dx) return;
    with_threads([&](auto threads) {
      launch(group_norm_backward_kernel<T, threads>, static_cast<unsigned>(count_), threads.value,
             0, context_.stream, sets_, device<const T>(args.x), device<const T>(args.dy),
             device<T>(args.dx), device<const float>(args.params[desc_.kWeight].f32),
             device<const Moments>(args.saved));
    });
  }
  std::string implementation() const override { return "own"; }

 private:
  /// Calls `use` with the number of threads of a block as a constant: one warp if the sets are
  /// small.
  template <class Use>
  void with_threads(const Use& use) const {
    if (sets_.values() <= 1024) {
      use(std::integral_constant<int, 32>());
    } else {
      use(std::integral_constant<int, 256>());
    }
  }

  const CudaContext& context_;
  GroupNormDesc desc_;
  Sets sets_;
  std::int64_t count_;  ///< number of sets
  RowChunks chunks_;
};

}  // namespace

std::unique_ptr<Op> make_cuda_op(const CudaContext& context, const GroupNormDesc& desc) {
  check_cuda_desc(context, "group normalisation", desc.type, desc.batch);
  check_indices(context, "group normalisation", desc.batch * desc.shape.elements());
  assert(desc.groups >= 1 && desc.shape.c % desc.groups == 0);
  if (desc.type == DType::bf16) return std::make_unique<CudaGroupNorm<Bf16>>(context, desc);
  return std::make_unique<CudaGroupNorm<float>>(context, desc);
}

}  // namespace dpt
