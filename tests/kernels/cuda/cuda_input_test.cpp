// GPU-specific behaviour of the input kernel: its mean and deviation are on the GPU before it runs,
// and it writes whole samples to any address. The tests of all devices cover its results.
#include <doctest/doctest.h>

#include "kernels/common/augment.h"
#include "kernels/cuda/ops.h"
#include "tests/kernels/cuda/gpu.h"
#include "tests/support/backends.h"

namespace dpt::testing {
namespace {

TEST_CASE("the input kernel's statistics are on the GPU when its first kernel runs") {
  if (!have_gpu()) return;
  const GPU gpu;
  InputDesc d;
  d.batch = 2;
  d.raw = d.out = {28, 28, 1};
  d.mean = {0.25F};
  d.stddev = {0.5F};
  std::vector<std::uint8_t> samples(2 * 784);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    samples[i] = static_cast<std::uint8_t>(i * 7 % 251);
  }
  const std::size_t count = samples.size();
  const GpuArray<std::uint8_t> raw(gpu, samples);
  const GpuArray<std::int32_t> slots(gpu, {1, 0});
  const GpuArray<std::int64_t> ids(gpu, {1, 0}), epoch(gpu, {0});
  // Addresses that are not aligned to a pack of four, too.
  for (const std::size_t offset : {0, 1, 4}) {
    CAPTURE(offset);
    const GpuArray<float> y(gpu, std::vector<float>(count + 8, -7.0F));
    const auto op = make_cuda_input(gpu.context(), d);
    op->run({address(raw.get()), address(slots.get()), address(ids.get()), address(epoch.get()),
             address(y.get() + offset)});
    const std::vector<float> got = y.values();
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const float unit = augment::unit(samples[i < 784 ? i + 784 : i - 784]);
      if (got[i + offset] != augment::normalise(unit, 0.25F, 0.5F)) ++wrong;
    }
    CHECK(wrong == 0);
    for (std::size_t i = 0; i < 8; ++i) CHECK(got[i < offset ? i : count + i] == -7.0F);
  }
}

}  // namespace
}  // namespace dpt::testing
