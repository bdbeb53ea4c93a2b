#include "kernels/cuda/linear_kernels.h"

#include "kernels/common/bf16.h"
#include "kernels/cuda/runtime/launch.h"

namespace dpt {
namespace {

constexpr int kThreads = 256;

template <class T>
__global__ void add_bias_kernel(const float* sums, const float* bias, bool relu, T* y,
                                std::int64_t count, std::int64_t columns) {
  for (std::int64_t i = global_thread(); i < count; i += grid_threads()) {
    float value = bias ? sums[i] + bias[i % columns] : sums[i];
    if (relu && value <= 0.0F) value = 0.0F;
    store(y[i], value);
  }
}

}  // namespace

void add_bias(const CudaContext& context, DevPtr sums, DevPtr bias, bool relu, DevPtr y, DType type,
              std::int64_t rows, std::int64_t columns) {
  const std::int64_t count = rows * columns;
  const unsigned blocks = blocks_for(count, kThreads);
  if (type == DType::bf16) {
    launch(add_bias_kernel<Bf16>, blocks, kThreads, 0, context.stream, device<const float>(sums),
           device<const float>(bias), relu, device<Bf16>(y), count, columns);
  } else {
    launch(add_bias_kernel<float>, blocks, kThreads, 0, context.stream, device<const float>(sums),
           device<const float>(bias), relu, device<float>(y), count, columns);
  }
}

}  // namespace dpt
