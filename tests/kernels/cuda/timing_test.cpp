// What timing runs, and what it says of candidates that fail or cannot be captured.
#include "kernels/cuda/runtime/timing.h"

#include <doctest/doctest.h>

#include <cmath>

#include "kernels/cuda/runtime/check.h"
#include "tests/kernels/cuda/gpu.h"
#include "tests/support/backends.h"

namespace dpt::testing {
namespace {

TEST_CASE("candidates are timed as replays of many runs; what cannot be captured as launches") {
  if (!have_gpu()) return;
  const GPU gpu;
  const CudaContext& context = gpu.context();
  Timing timing(context);
  void* memory = timing.make(1 << 10, DType::f32);
  REQUIRE(memory);
  std::vector<int> calls(3);
  std::string failure;
  const std::vector<float> times = timing.times(
      3,
      [&](std::size_t i) {
        ++calls[i];
        if (i == 1) fail(ErrorKind::device, "no such kernel");
        cuda_check(cudaMemsetAsync(memory, 0, 1 << 12, context.stream), "cudaMemsetAsync");
        // To wait spoils a capture.
        if (i == 2) cuda_check(cudaStreamSynchronize(context.stream), "cudaStreamSynchronize");
      },
      failure);
  CHECK(std::isfinite(times[0]));
  CHECK(times[0] > 0);
  CHECK(timing.uncaptured(0).empty());
  CHECK(calls[0] == 1 + 20);  // The first one, and those that are captured; not one a round.
  CHECK(std::isinf(times[1]));
  CHECK(failure == "no such kernel");
  CHECK(calls[1] == 1);
  CHECK(std::isfinite(times[2]));
  INFO(timing.uncaptured(2));
  CHECK(timing.uncaptured(2).find("cudaStreamSynchronize failed") != std::string::npos);
  CHECK(calls[2] == 1 + 1 + 5 * 20);
  // The stream is as it was.
  cuda_check(cudaMemsetAsync(memory, 0, 1 << 12, context.stream), "cudaMemsetAsync");
  cuda_check(cudaStreamSynchronize(context.stream), "cudaStreamSynchronize");
}

}  // namespace
}  // namespace dpt::testing
