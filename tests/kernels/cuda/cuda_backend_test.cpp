// A GPU backend's use of its memory and streams, beyond the guarantees of every backend.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "kernels/base/error.h"
#include "kernels/cuda/ops.h"
#include "kernels/devices.h"
#include "tests/kernels/cuda/gpu.h"
#include "tests/support/backends.h"
#include "tests/support/op_runner.h"

namespace dpt::testing {
namespace {

TEST_CASE("the libraries' workspace is written before anybody reads it") {
  if (!have_gpu()) return;
  const auto backend = make_backend(parse_device("cuda:0"));
  const CudaContext* context = cuda_context_of(*backend);
  REQUIRE(context);
  std::vector<unsigned char> bytes(context->workspace_bytes);
  backend->download(bytes.data(), {reinterpret_cast<std::uintptr_t>(context->workspace)},
                    bytes.size());
  backend->synchronize();
  CHECK(std::count(bytes.begin(), bytes.end(), 0x7F) == static_cast<std::ptrdiff_t>(bytes.size()));
}

TEST_CASE("kernels that divide 31-bit indices refuse larger tensors") {
  if (!have_gpu()) return;
  const GPU gpu;
  DropoutDesc d;
  d.shape = {1 << 15, 1 << 15, 1};
  d.batch = 1;
  CHECK_NOTHROW(make_cuda_op(gpu.context(), d));
  d.batch = 2;
  CHECK_THROWS_WITH_AS(
      make_cuda_op(gpu.context(), d),
      "cuda:0: dropout of 2147483648 elements, but at most 2147483647 are supported: use "
      "smaller micro-batches (train.accumulate) or smaller images",
      Error);
}

TEST_CASE("branches of the queue begin after what was queued and end before what comes next") {
  if (!have_gpu()) return;
  const auto backend = make_backend(parse_device("cuda:0"));
  const int branches = backend->make_branches(3);
  REQUIRE(branches == 3);
  const std::vector<float> ones(1000, 1.0F);
  const std::size_t bytes = ones.size() * sizeof(float);
  const OnDevice<float> start(*backend, ones), sum(*backend, ones);
  std::vector<OnDevice<float>> parts;
  for (int i = 0; i < branches; ++i) parts.emplace_back(*backend, ones);
  const auto count = static_cast<std::int64_t>(ones.size());
  // start doubles; each branch copies and doubles it; sum adds the branches.
  const auto work = [&] {
    backend->add(start.ptr(), start.ptr(), start.ptr(), count);
    backend->fork(branches);
    for (int i = 0; i < branches; ++i) {
      const DevPtr part = parts[i].ptr();
      backend->select_branch(i);
      backend->copy(part, start.ptr(), bytes);
      backend->add(part, part, part, count);
    }
    backend->join();
    backend->zero(sum.ptr(), bytes);
    for (const OnDevice<float>& part : parts) {
      backend->add(sum.ptr(), sum.ptr(), part.ptr(), count);
    }
  };
  float value = 1;
  const auto check = [&] {
    value *= 2;
    CHECK(sum.get() == std::vector<float>(ones.size(), 3 * 2 * value));
  };
  in_every_order([&] {
    work();
    check();
    const auto graph = backend->capture(work);
    REQUIRE(graph);
    for (int i = 0; i < 2; ++i) {
      backend->replay(*graph);
      check();
    }
  });
}

/// Runs in a separate process, because the driver reads the variable once.
TEST_CASE("as many connections to a GPU as there can be, unless the user has chosen") {
  if (!have_gpu()) return;
  const char* asked = std::getenv("DPT_TEST_CONNECTIONS");
  make_backend(parse_device("cuda:0"));
  const char* set = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  REQUIRE(set);
  if (asked) {
    CHECK(std::string(set) == asked);
    return;
  }
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  const auto run = [&](const std::string& variables) {
    return std::system(("env " + variables + " '" + self +
                        "' -tc='as many connections to a GPU as there can be*' > /dev/null")
                           .c_str());
  };
  CHECK(run("-u CUDA_DEVICE_MAX_CONNECTIONS DPT_TEST_CONNECTIONS=32") == 0);
  CHECK(run("CUDA_DEVICE_MAX_CONNECTIONS=8 DPT_TEST_CONNECTIONS=8") == 0);
}

}  // namespace
}  // namespace dpt::testing
