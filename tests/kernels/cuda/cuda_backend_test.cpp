// What a GPU's backend makes of its memory, beyond what every backend promises.
#include <doctest/doctest.h>

#include <algorithm>

#include "kernels/devices.h"
#include "kernels/error.h"
#include "tests/kernels/cuda/gpu.h"
#include "tests/support/backends.h"

namespace dpt::testing {
namespace {

TEST_CASE("the libraries' workspace is written before anybody reads it") {
  if (!have_gpu("the libraries' workspace")) return;
  const auto backend = make_backend(parse_device("cuda:0"));
  const CudaContext* context = cuda_context_of(*backend);
  REQUIRE(context);
  std::vector<unsigned char> bytes(context->workspace_bytes);
  backend->download(bytes.data(), {reinterpret_cast<std::uintptr_t>(context->workspace)},
                    bytes.size());
  backend->synchronize();
  CHECK(std::count(bytes.begin(), bytes.end(), 0x7F) == static_cast<std::ptrdiff_t>(bytes.size()));
}

}  // namespace
}  // namespace dpt::testing
