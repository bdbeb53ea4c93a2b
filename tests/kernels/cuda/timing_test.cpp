// The runs that timing makes, and its report on candidates that fail or cannot be captured.
#include "kernels/cuda/runtime/timing.h"

#include <doctest/doctest.h>

#include <cmath>

#include "kernels/cuda/runtime/check.h"
#include "tests/kernels/cuda/gpu.h"
#include "tests/support/backends.h"

namespace dpt::testing {
namespace {

TEST_CASE("candidates are timed as replays of many runs; if they cannot be captured, as launches") {
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
        // Waiting invalidates a capture.
        if (i == 2) cuda_check(cudaStreamSynchronize(context.stream), "cudaStreamSynchronize");
      },
      failure);
  CHECK(std::isfinite(times[0]));
  CHECK(times[0] > 0);
  CHECK(timing.uncaptured(0).empty());
  // Two calls at first, then those that are captured; the timed rounds only replay them.
  CHECK(calls[0] > 2);
  CHECK(calls[0] <= 2 + 20);
  CHECK(std::isinf(times[1]));
  CHECK(failure == "no such kernel");
  CHECK(calls[1] == 1);
  CHECK(std::isfinite(times[2]));
  INFO(timing.uncaptured(2));
  CHECK(timing.uncaptured(2).find("cudaStreamSynchronize failed") != std::string::npos);
  // Two calls at first, one that invalidates the capture, and then equally many in each of five
  // rounds.
  CHECK(calls[2] >= 2 + 1 + 5);
  CHECK((calls[2] - 2 - 1) % 5 == 0);
  // The stream is still usable.
  cuda_check(cudaMemsetAsync(memory, 0, 1 << 12, context.stream), "cudaMemsetAsync");
  cuda_check(cudaStreamSynchronize(context.stream), "cudaStreamSynchronize");
}

TEST_CASE("a replay takes a millisecond or is one run") {
  CHECK(Timing::runs_at_once(0) == 20);
  CHECK(Timing::runs_at_once(0.003F) == 20);
  CHECK(Timing::runs_at_once(0.1F) == 10);
  CHECK(Timing::runs_at_once(0.6F) == 1);
  CHECK(Timing::runs_at_once(40) == 1);
}

}  // namespace
}  // namespace dpt::testing
