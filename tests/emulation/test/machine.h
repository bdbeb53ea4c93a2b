// The common parts of the emulation's tests: a fresh machine for each test, and short launches.
#pragma once

#include <cuda_runtime.h>
#include <doctest/doctest.h>

#include <cstddef>
#include <utility>
#include <vector>

/// A fresh machine with two devices, without requested failures, in forward order.
struct Machine {
  explicit Machine(int devices = 2, std::size_t bytes = 64 << 20) {
    emulation::clear_failures();
    emulation::set_order({});
    emulation::set_devices(devices, bytes);
    cudaSetDevice(0);
    cudaGetLastError();
  }
};

__global__ inline void set_value(int* x, int value) {
  *x = value;
}

inline cudaStream_t make_stream(unsigned flags = cudaStreamNonBlocking) {
  cudaStream_t stream = nullptr;
  REQUIRE(cudaStreamCreateWithFlags(&stream, flags) == cudaSuccess);
  return stream;
}

template <class T>
T* device_array(std::size_t count) {
  T* pointer = nullptr;
  REQUIRE(cudaMalloc(&pointer, count * sizeof(T)) == cudaSuccess);
  return pointer;
}
template <class T>
T* device_array(const std::vector<T>& host) {
  T* pointer = device_array<T>(host.size());
  REQUIRE(cudaMemcpy(pointer, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice) ==
          cudaSuccess);
  // The copy runs in the legacy stream, and other streams do not wait for it.
  REQUIRE(cudaStreamSynchronize(nullptr) == cudaSuccess);
  return pointer;
}
template <class T>
std::vector<T> host_copy(const T* device, std::size_t count) {
  std::vector<T> host(count);
  REQUIRE(cudaMemcpy(host.data(), device, count * sizeof(T), cudaMemcpyDeviceToHost) ==
          cudaSuccess);
  return host;
}

struct Shape {
  dim3 grid = 1, block = 1;
  std::size_t shared = 0;
  cudaStream_t stream = nullptr;
};

template <class... Params, class... Args>
cudaError_t launch(Shape shape, void (*kernel)(Params...), Args&&... args) {
  cudaLaunchConfig_t config = {};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = shape.shared;
  config.stream = shape.stream;
  return cudaLaunchKernelEx(&config, kernel, std::forward<Args>(args)...);
}
