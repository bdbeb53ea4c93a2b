// Devices, memory, limits of launches, persistent errors, and requested failures.
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "machine.h"

namespace {

__global__ void nothing() {}
__global__ void set_float(float* x, int at) {
  x[at] = 1.0F;
}
__global__ void read_float(const float* x, float* y) {
  *y = *x;
}
struct Pointers {
  int padding;
  const float* x;
};
__global__ void read_struct(Pointers pointers, float* y) {
  *y = *pointers.x;
}

cudaError_t run(Shape shape, void (*kernel)(float*, int), float* x, int at) {
  REQUIRE(launch(shape, kernel, x, at) == cudaSuccess);
  return cudaDeviceSynchronize();
}

}  // namespace

TEST_CASE("there are as many devices as set, and none is possible too") {
  {
    const Machine machine(3);
    int count = 0;
    CHECK(cudaGetDeviceCount(&count) == cudaSuccess);
    CHECK(count == 3);
    CHECK(cudaSetDevice(2) == cudaSuccess);
    CHECK(cudaSetDevice(3) == cudaErrorInvalidDevice);
    int device = -1;
    CHECK(cudaGetDevice(&device) == cudaSuccess);
    CHECK(device == 2);
    cudaDeviceProp properties;
    CHECK(cudaGetDeviceProperties(&properties, 1) == cudaSuccess);
    CHECK(properties.major == 9);
    int value = 0;
    CHECK(cudaDeviceGetAttribute(&value, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0) ==
          cudaSuccess);
    CHECK(value == 227 << 10);
    char text[32];
    CHECK(cudaDeviceGetPCIBusId(text, sizeof text, 1) == cudaSuccess);
    CHECK(std::strcmp(text, "0000:02:00.0") == 0);
    emulation::set_multiprocessors(5);
    CHECK(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, 0) == cudaSuccess);
    CHECK(value == 5);
    emulation::set_multiprocessors(8);
  }
  const Machine machine(0);
  int count = -1;
  CHECK(cudaGetDeviceCount(&count) == cudaErrorNoDevice);
  CHECK(count == 0);
  void* memory = nullptr;
  CHECK(cudaMalloc(&memory, 4) == cudaErrorNoDevice);
  CHECK(cudaDriverGetVersion(&count) == cudaSuccess);
}

TEST_CASE("memory: alignment, fresh bytes, accounts, running out") {
  const Machine machine(2, 1 << 20);
  float* a = device_array<float>(100);
  CHECK(reinterpret_cast<std::uintptr_t>(a) % 256 == 0);
  CHECK(std::isnan(host_copy(a, 100)[99]));
  std::size_t free = 0, total = 0;
  CHECK(cudaMemGetInfo(&free, &total) == cudaSuccess);
  CHECK(total == 1 << 20);
  CHECK(free == (1 << 20) - 400);
  void* more = nullptr;
  CHECK(cudaMalloc(&more, free + 1) == cudaErrorMemoryAllocation);
  CHECK(cudaGetLastError() == cudaErrorMemoryAllocation);
  CHECK(cudaGetLastError() == cudaSuccess);
  CHECK(cudaMalloc(&more, free) == cudaSuccess);
  CHECK(cudaSetDevice(1) == cudaSuccess);
  device_array<float>(100);  // The other device has separate memory.
  CHECK(cudaFree(more) == cudaSuccess);
  CHECK(cudaFree(more) == cudaErrorInvalidValue);
  CHECK(cudaFree(nullptr) == cudaSuccess);
  CHECK(cudaFree(a + 1) == cudaErrorInvalidValue);
  CHECK(cudaFree(a) == cudaSuccess);
  CHECK(emulation::memory_in_use(0) == 0);
}

TEST_CASE("copies check where their ends lie") {
  const Machine machine;
  float* a = device_array<float>(8);
  REQUIRE(cudaSetDevice(1) == cudaSuccess);
  float* b = device_array<float>(8);
  cudaStream_t stream = make_stream();
  float host[8] = {1, 2, 3};
  const auto copy = [&](void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
    return cudaMemcpyAsync(to, from, bytes, kind, stream);
  };
  CHECK(copy(a, host, 32, cudaMemcpyHostToDevice) == cudaSuccess);
  CHECK(copy(a, host, 33, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
  CHECK(copy(a + 4, host, 20, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
  CHECK(copy(host, host + 4, 4, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
  CHECK(copy(host, a, 32, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
  CHECK(copy(host, host, 4, cudaMemcpyDeviceToHost) == cudaErrorInvalidValue);
  CHECK(copy(b, a, 32, cudaMemcpyDeviceToDevice) == cudaErrorInvalidValue);
  CHECK(copy(b, a, 32, cudaMemcpyDefault) == cudaSuccess);
  CHECK(cudaMemcpyPeerAsync(b, 1, a, 0, 32, stream) == cudaSuccess);
  CHECK(cudaMemcpyPeerAsync(b, 0, a, 1, 32, stream) == cudaErrorInvalidValue);
  CHECK(cudaMemcpyPeerAsync(b, 1, a, 2, 32, stream) == cudaErrorInvalidDevice);
  CHECK(cudaMemsetAsync(host, 0, 4, stream) == cudaErrorInvalidValue);
  CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
  CHECK(host_copy(b, 8)[2] == 3.0F);
}

TEST_CASE("pinned memory is host memory that kernels may use") {
  const Machine machine;
  float* pinned = nullptr;
  REQUIRE(cudaHostAlloc(&pinned, 64, cudaHostAllocDefault) == cudaSuccess);
  cudaPointerAttributes attributes{};
  CHECK(cudaPointerGetAttributes(&attributes, pinned) == cudaSuccess);
  CHECK(attributes.type == cudaMemoryTypeHost);
  CHECK(run({1, 1}, set_float, pinned, 3) == cudaSuccess);
  CHECK(pinned[3] == 1.0F);
  float local = 0;
  CHECK(cudaPointerGetAttributes(&attributes, &local) == cudaSuccess);
  CHECK(attributes.type == cudaMemoryTypeUnregistered);
  CHECK(cudaFree(pinned) == cudaErrorInvalidValue);
  CHECK(cudaFreeHost(pinned) == cudaSuccess);
}

TEST_CASE("launches have limits") {
  const Machine machine;
  CHECK(launch({dim3(0), 1}, nothing) == cudaErrorInvalidConfiguration);
  CHECK(launch({1, dim3(1, 0)}, nothing) == cudaErrorInvalidConfiguration);
  CHECK(launch({1, 1025}, nothing) == cudaErrorInvalidConfiguration);
  CHECK(launch({1, dim3(1, 1, 65)}, nothing) == cudaErrorInvalidConfiguration);
  CHECK(launch({dim3(1, 65536), 1}, nothing) == cudaErrorInvalidConfiguration);
  CHECK(launch({dim3(1, 65535), 1}, nothing) == cudaSuccess);
  CHECK(launch({1, 1, (48 << 10) + 1}, nothing) == cudaErrorInvalidValue);
  CHECK(cudaFuncSetAttribute(nothing, cudaFuncAttributeMaxDynamicSharedMemorySize, 100 << 10) ==
        cudaSuccess);
  CHECK(launch({1, 1, 100 << 10}, nothing) == cudaSuccess);
  CHECK(launch({1, 1, (100 << 10) + 1}, nothing) == cudaErrorInvalidValue);
  CHECK(cudaFuncSetAttribute(nothing, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             (227 << 10) + 1) == cudaErrorInvalidValue);
  int blocks = 0;
  CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, nothing, 256, 0) == cudaSuccess);
  CHECK(blocks == 8);
  cudaStream_t stream = make_stream();
  REQUIRE(cudaSetDevice(1) == cudaSuccess);
  CHECK(launch({1, 1, 0, stream}, nothing) == cudaErrorInvalidResourceHandle);
  REQUIRE(cudaStreamDestroy(stream) == cudaSuccess);
  REQUIRE(cudaSetDevice(0) == cudaSuccess);
  CHECK(launch({1, 1, 0, stream}, nothing) == cudaErrorInvalidResourceHandle);
  void* args[] = {nullptr};
  CHECK(cudaLaunchKernel(nothing, 1, 1, args) == cudaSuccess);
}

TEST_CASE("kernels may not be given memory that is not theirs") {
  const auto check = [](auto make_pointer, cudaError_t expected) {
    const Machine machine;
    float* y = device_array<float>(1);
    const float* x = make_pointer();
    REQUIRE(launch({1, 1}, read_float, x, y) == cudaSuccess);
    CHECK(cudaDeviceSynchronize() == expected);
  };
  static float of_the_host = 1;
  const auto on_the_other = [] {
    REQUIRE(cudaSetDevice(1) == cudaSuccess);
    const float* x = device_array<float>(1);
    REQUIRE(cudaSetDevice(0) == cudaSuccess);
    return x;
  };
  check([] { return device_array<float>(1); }, cudaSuccess);
  check([] { return &of_the_host; }, cudaErrorIllegalAddress);
  check(on_the_other, cudaErrorIllegalAddress);
  check(
      [&] {
        REQUIRE(cudaDeviceEnablePeerAccess(1, 0) == cudaSuccess);
        CHECK(cudaDeviceEnablePeerAccess(1, 0) == cudaErrorPeerAccessAlreadyEnabled);
        return on_the_other();
      },
      cudaSuccess);
  check(
      [] {
        float* x = device_array<float>(1);
        REQUIRE(cudaFree(x) == cudaSuccess);
        return x;
      },
      cudaErrorIllegalAddress);
  const Machine machine;
  float* x = device_array<float>(1);
  float* y = device_array<float>(1);
  REQUIRE(launch({1, 1}, read_struct, Pointers{0, x}, y) == cudaSuccess);
  CHECK(cudaDeviceSynchronize() == cudaSuccess);
  REQUIRE(cudaFree(x) == cudaSuccess);
  REQUIRE(launch({1, 1}, read_struct, Pointers{0, x}, y) == cudaSuccess);
  CHECK(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
}

#if !defined(__SANITIZE_ADDRESS__)  // AddressSanitizer would end the program at once.
TEST_CASE("writes beyond an allocation are found after the kernel") {
  for (const int at : {-1, 10, 70}) {
    const Machine machine;
    float* x = device_array<float>(10);
    CHECK(run({1, 1}, set_float, x, at) == cudaErrorIllegalAddress);
  }
}
#endif

TEST_CASE("a lost device stays lost until it is reset; others continue") {
  const Machine machine;
  cudaStream_t stream = make_stream();
  float* x = device_array<float>(4);
  emulation::fail("kernel:2:cudaErrorIllegalAddress");
  REQUIRE(launch({1, 1, 0, stream}, set_float, x, 0) == cudaSuccess);
  REQUIRE(launch({1, 1, 0, stream}, set_float, x, 1) == cudaSuccess);
  float host = 5;
  REQUIRE(cudaMemcpyAsync(&host, x, 4, cudaMemcpyDeviceToHost, stream) == cudaSuccess);
  CHECK(cudaStreamSynchronize(stream) == cudaErrorIllegalAddress);
  CHECK(host == 5.0F);  // Work queued after the failure never runs.
  CHECK(cudaGetLastError() == cudaErrorIllegalAddress);
  CHECK(cudaGetLastError() == cudaErrorIllegalAddress);
  CHECK(launch({1, 1, 0, stream}, set_float, x, 0) == cudaErrorIllegalAddress);
  CHECK(cudaFree(x) == cudaErrorIllegalAddress);
  CHECK(emulation::memory_in_use(0) == 0);
  REQUIRE(cudaSetDevice(1) == cudaSuccess);
  float* other = device_array<float>(4);
  CHECK(run({1, 1}, set_float, other, 0) == cudaSuccess);
  REQUIRE(cudaSetDevice(0) == cudaSuccess);
  REQUIRE(cudaDeviceReset() == cudaSuccess);
  CHECK(run({1, 1}, set_float, device_array<float>(4), 0) == cudaSuccess);
  CHECK(cudaStreamDestroy(stream) == cudaErrorInvalidResourceHandle);
}

TEST_CASE("failures can be asked for: which call, which time, which device") {
  const Machine machine;
  emulation::fail("cudaMalloc:2:cudaErrorMemoryAllocation");
  void* memory = nullptr;
  CHECK(cudaMalloc(&memory, 4) == cudaSuccess);
  CHECK(cudaMalloc(&memory, 4) == cudaErrorMemoryAllocation);
  CHECK(cudaMalloc(&memory, 4) == cudaSuccess);
  emulation::fail("cudaMalloc@1:1:cudaErrorMemoryAllocation");
  CHECK(cudaMalloc(&memory, 4) == cudaSuccess);
  REQUIRE(cudaSetDevice(1) == cudaSuccess);
  CHECK(cudaMalloc(&memory, 4) == cudaErrorMemoryAllocation);
  emulation::fail("cudaStreamSynchronize:1:cudaErrorLaunchFailure");
  CHECK(cudaStreamSynchronize(nullptr) == cudaErrorLaunchFailure);
  CHECK(cudaMalloc(&memory, 4) == cudaErrorLaunchFailure);
  CHECK_THROWS_AS(emulation::fail("cudaMalloc:x:cudaErrorUnknown"), std::invalid_argument);
  CHECK_THROWS_AS(emulation::fail("cudaMalloc:1:cudaErrorNoSuchThing"), std::invalid_argument);
  CHECK_THROWS_AS(emulation::fail("cudaMalloc"), std::invalid_argument);
}

TEST_CASE("errors have names") {
  CHECK(std::strcmp(cudaGetErrorName(cudaErrorLaunchFailure), "cudaErrorLaunchFailure") == 0);
  CHECK(std::strcmp(cudaGetErrorString(cudaErrorMemoryAllocation), "out of memory") == 0);
}
