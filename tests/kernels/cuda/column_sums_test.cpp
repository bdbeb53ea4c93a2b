// Column sums on a GPU against sums in double, for every way to partition a matrix, with the same
// bits in every order of blocks.
#include "kernels/cuda/column_sums.h"

#include <doctest/doctest.h>

#include "kernels/common/bf16.h"
#include "tests/kernels/cuda/gpu.h"
#include "tests/support/backends.h"
#include "tests/support/close.h"
#include "tests/support/op_runner.h"

namespace dpt::testing {
namespace {

struct Sums {
  std::vector<float> plain, added, after_relu;
  bool operator==(const Sums&) const = default;
};

/// Runs all three sums. Added sums start from `before`; scratch starts as NaN and has exactly the
/// required size.
template <class T>
Sums run(const GPU& gpu, DType type, std::int64_t rows, std::int64_t columns,
         const std::vector<float>& values, const std::vector<float>& y,
         const std::vector<float>& before) {
  const CudaContext& context = gpu.context();
  const std::size_t floats = column_sums_scratch(context, rows, columns) / sizeof(float);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const GpuArray<float> scratch(gpu, std::vector<float>(std::max<std::size_t>(floats, 1), nan));
  const GpuArray<T> x(gpu, as<T>(values)), outputs(gpu, as<T>(y));
  const GpuArray<float> plain(gpu, std::vector<float>(before.size(), nan)), added(gpu, before),
      after_relu(gpu, std::vector<float>(before.size(), nan));
  column_sums(context, address(x.get()), type, rows, columns, address(plain.get()),
              GradWrite::overwrite, address(scratch.get()));
  column_sums(context, address(x.get()), type, rows, columns, address(added.get()), GradWrite::add,
              address(scratch.get()));
  relu_column_sums(context, address(x.get()), address(outputs.get()), type, rows, columns,
                   address(after_relu.get()), GradWrite::overwrite, address(scratch.get()));
  return {plain.values(), added.values(), after_relu.values()};
}

template <class T>
void check_sums(const GPU& gpu, DType type, std::int64_t rows, std::int64_t columns) {
  CAPTURE(name_of(type));
  CAPTURE(rows);
  CAPTURE(columns);
  const auto width = static_cast<std::size_t>(columns);
  std::vector<float> x, y;
  for (const T value : as<T>(random_values(rows * columns, 1))) x.push_back(to_float(value));
  for (const T value : as<T>(random_values(rows * columns, 2))) y.push_back(to_float(value));
  const std::vector<float> before = random_values(columns, 3);
  std::vector<double> plain(width), after_relu(width);
  for (std::size_t i = 0; i < x.size(); ++i) {
    plain[i % width] += static_cast<double>(x[i]);
    if (y[i] > 0) after_relu[i % width] += static_cast<double>(x[i]);
  }
  std::vector<double> added = plain;
  for (std::size_t c = 0; c < width; ++c) added[c] += static_cast<double>(before[c]);
  Sums first;
  in_every_order([&] {
    const Sums got = run<T>(gpu, type, rows, columns, x, y, before);
    if (first.plain.empty()) first = got;
    CHECK(got == first);
  });
  check_close("sums", first.plain, plain);
  check_close("added sums", first.added, added);
  check_close("sums after ReLU", first.after_relu, after_relu);
}

TEST_CASE("column sums of few and many rows and columns") {
  if (!have_gpu()) return;
  const GPU gpu;
  // Fill the memory after the block counters, as kernels that ran before would.
  constexpr std::size_t kCounterBytes = kBlockCounters * sizeof(unsigned);
  const CudaContext& context = gpu.context();
  cuda_check(cudaMemsetAsync(static_cast<std::byte*>(context.partials) + kCounterBytes, 0x7F,
                             context.partials_bytes - kCounterBytes, context.stream),
             "cudaMemsetAsync");
  const std::int64_t shapes[][2] = {
      {1, 1},
      {1, 7},
      {3, 5},
      {2, 64},
      {9000, 1},
      {5000, 3},
      {3000, 10},
      {900, 84},
      {400, 250},
      {70, 1000},
      {150, 4095},  // as many tiles as there are
                    // block counters
      {150, 4097},  // more, so a block has all rows of its columns
      {70, 16388},  // the same, in packs of four
  };
  for (const auto& [rows, columns] : shapes) {
    check_sums<float>(gpu, DType::f32, rows, columns);
    check_sums<Bf16>(gpu, DType::bf16, rows, columns);
  }
}

}  // namespace
}  // namespace dpt::testing
