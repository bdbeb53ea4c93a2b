#include "kernels/cuda/linear_kernels.h"

#include "kernels/common/bf16.h"
#include "kernels/cuda/column_sums.h"
#include "kernels/cuda/launch.h"

namespace dpt {
namespace {

constexpr int kThreads = 256;

template <class T>
__global__ void add_bias_kernel(const float* sums, const float* bias, bool relu, T* y,
                                std::int64_t count, std::int64_t columns) {
  for (std::int64_t i = global_thread(); i < count; i += grid_threads()) {
    float value = sums[i] + bias[i % columns];
    if (relu && value <= 0.0F) value = 0.0F;
    store(y[i], value);
  }
}

// A block takes kColumns columns and kRowsPerPart rows; each of its kLanes rows of threads takes
// every kLanes-th row. Few rows are one part, whose sums are the result.
constexpr int kColumns = 32, kLanes = 16;
constexpr std::int64_t kRowsPerPart = 256;

std::int64_t part_count(std::int64_t rows) {
  return (rows + kRowsPerPart - 1) / kRowsPerPart;
}

/// sums (parts, columns), or null.
template <class T>
__global__ void relu_gradient_kernel(T* dy, const T* y, std::int64_t rows, std::int64_t columns,
                                     float* sums, bool add) {
  __shared__ float lane_sums[kLanes][kColumns];
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kColumns + threadIdx.x;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.y) * kRowsPerPart;
  const std::int64_t end = first + kRowsPerPart < rows ? first + kRowsPerPart : rows;
  float sum = 0.0F;
  if (column < columns) {
    for (std::int64_t row = first + threadIdx.y; row < end; row += kLanes) {
      const std::int64_t i = row * columns + column;
      if (to_float(y[i]) <= 0.0F) {
        store(dy[i], 0.0F);
      } else {
        sum += to_float(dy[i]);
      }
    }
  }
  if (!sums) return;
  lane_sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= columns) return;
  float total = 0.0F;
  for (int lane = 0; lane < kLanes; ++lane) total += lane_sums[lane][threadIdx.x];
  float& to = sums[blockIdx.y * columns + column];
  to = add ? to + total : total;
}

template <class T>
void queue_relu_gradient(const CudaContext& context, DevPtr dy, DevPtr y, std::int64_t rows,
                         std::int64_t columns, float* sums, bool add) {
  const dim3 grid(static_cast<unsigned>((columns + kColumns - 1) / kColumns),
                  static_cast<unsigned>(part_count(rows)));
  launch(relu_gradient_kernel<T>, grid, dim3(kColumns, kLanes), 0, context.stream, device<T>(dy),
         device<const T>(y), rows, columns, sums, add);
}

std::size_t part_sums_bytes(std::int64_t rows, std::int64_t columns) {
  const auto bytes = static_cast<std::size_t>(part_count(rows) * columns) * sizeof(float);
  return (bytes + 63) / 64 * 64;
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

std::size_t relu_bias_gradient_scratch(const CudaContext& context, std::int64_t rows,
                                       std::int64_t columns) {
  const std::int64_t parts = part_count(rows);
  if (parts == 1) return 0;
  return part_sums_bytes(rows, columns) + column_sums_scratch(context, parts, columns);
}

void relu_bias_gradient(const CudaContext& context, DevPtr dy, DevPtr y, DType type,
                        std::int64_t rows, std::int64_t columns, DevPtr dbias, GradWrite write,
                        DevPtr scratch) {
  const std::int64_t parts = part_count(rows);
  const bool direct = parts == 1;
  float* sums = !dbias ? nullptr : device<float>(direct ? dbias : scratch);
  const bool add = direct && write == GradWrite::add;
  if (type == DType::bf16) {
    queue_relu_gradient<Bf16>(context, dy, y, rows, columns, sums, add);
  } else {
    queue_relu_gradient<float>(context, dy, y, rows, columns, sums, add);
  }
  if (!dbias || direct) return;
  column_sums(context, scratch, DType::f32, parts, columns, dbias, write,
              scratch + part_sums_bytes(rows, columns));
}

}  // namespace dpt
