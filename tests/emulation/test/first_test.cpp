// The emulated execution model: threads, barriers, warp operations, order.
#include <cuda_runtime.h>
#include <doctest/doctest.h>

#include <vector>

namespace {

__global__ void scale(float* x, float factor, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) x[i] *= factor;
}

}  // namespace

TEST_CASE("a kernel runs when its stream is waited for") {
  emulation::set_devices(1);
  cudaStream_t stream = nullptr;
  REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
  float* device = nullptr;
  REQUIRE(cudaMalloc(&device, 400) == cudaSuccess);
  std::vector<float> host(100, 3.0F), back(100);
  REQUIRE(cudaMemcpyAsync(device, host.data(), 400, cudaMemcpyHostToDevice, stream) == cudaSuccess);
  cudaLaunchConfig_t config = {};
  config.gridDim = 2;
  config.blockDim = 64;
  config.stream = stream;
  REQUIRE(cudaLaunchKernelEx(&config, scale, device, 2.0F, 100) == cudaSuccess);
  REQUIRE(cudaMemcpyAsync(back.data(), device, 400, cudaMemcpyDeviceToHost, stream) == cudaSuccess);
  CHECK(back[0] == 0.0F);
  REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
  CHECK(back == std::vector<float>(100, 6.0F));
}
