#include "kernels/cuda/linear_kernels.h"

#include "kernels/base/divide.h"
#include "kernels/common/bf16.h"
#include "kernels/cuda/description.h"
#include "kernels/cuda/runtime/launch.h"

namespace dpt {
namespace {

constexpr int kThreads = 256;

template <class T>
__global__ void add_bias_kernel(const float* sums, const float* bias, bool relu, T* y,
                                std::int64_t count, Divider columns) {
  for (std::int64_t i = global_thread(); i < count; i += grid_threads()) {
    float value = sums[i];
    if (bias) value += bias[columns.remainder(static_cast<std::uint32_t>(i))];
    if (relu && value <= 0.0F) value = 0.0F;
    store(y[i], value);
  }
}

}  // namespace

void add_bias(const CudaContext& context, DevPtr sums, DevPtr bias, bool relu, DevPtr y, DType type,
              std::int64_t rows, std::int64_t columns) {
  const std::int64_t count = rows * columns;
  check_indices(context, "a bias", count);
  const Divider by_columns(columns);
  const unsigned blocks = blocks_for(count, kThreads);
  if (type == DType::bf16) {
    launch(add_bias_kernel<Bf16>, blocks, kThreads, 0, context.stream, device<const float>(sums),
           device<const float>(bias), relu, device<Bf16>(y), count, by_columns);
  } else {
    launch(add_bias_kernel<float>, blocks, kThreads, 0, context.stream, device<const float>(sums),
           device<const float>(bias), relu, device<float>(y), count, by_columns);
  }
}

}  // namespace dpt
