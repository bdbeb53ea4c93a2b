// A GPU for tests of the layers below the Backend: a context and arrays in its memory.
#pragma once

#include <cuda_runtime.h>

#include <cstring>
#include <limits>
#include <vector>

#include "kernels/common/bf16.h"
#include "kernels/cuda/runtime/check.h"
#include "kernels/cuda/runtime/context.h"

// In an emulated build, tests choose the order in which blocks and threads run.
#if __has_include("emulation/control.h")
#include "emulation/control.h"
#endif

namespace dpt::testing {

class GPU {
 public:
  explicit GPU(const BackendOptions& options = {}) {
    cuda_check(cudaSetDevice(0), "cudaSetDevice");
    cudaDeviceProp properties = {};
    cuda_check(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
    context_.name = "cuda:0";
    context_.shared_bytes_per_block = properties.sharedMemPerBlockOptin;
    context_.gpu = properties.name;
    context_.multiprocessors = properties.multiProcessorCount;
    context_.compute_major = properties.major;
    context_.compute_minor = properties.minor;
    context_.options = options;
    context_.workspace_bytes = std::size_t{32} << 20;
    cuda_check(cudaStreamCreateWithFlags(&context_.stream, cudaStreamNonBlocking),
               "cudaStreamCreate");
    cuda_check(cudaMalloc(&context_.workspace, context_.workspace_bytes), "cudaMalloc");
    // The fill is queued in the kernels' stream, so that it runs after them.
    cuda_check(cudaMemsetAsync(context_.workspace, 0xFF, context_.workspace_bytes, context_.stream),
               "cudaMemsetAsync");
    context_.partials_bytes = std::size_t{1} << 20;
    cuda_check(cudaMalloc(&context_.partials, context_.partials_bytes), "cudaMalloc");
    cuda_check(cudaMemsetAsync(context_.partials, 0, context_.partials_bytes, context_.stream),
               "cudaMemsetAsync");
  }
  GPU(const GPU&) = delete;
  GPU& operator=(const GPU&) = delete;
  ~GPU() {
    cudaStreamSynchronize(context_.stream);
    cudaFree(context_.workspace);
    cudaFree(context_.partials);
    cudaStreamDestroy(context_.stream);
  }
  const CudaContext& context() const { return context_; }

 private:
  CudaContext context_;
};

inline DevPtr address(const void* memory) {
  return {reinterpret_cast<std::uintptr_t>(memory)};
}

/// Returns the values rounded to type T.
template <class T>
std::vector<T> as(const std::vector<float>& values) {
  std::vector<T> result(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) store(result[i], values[i]);
  return result;
}
template <class T>
std::vector<float> floats(const std::vector<T>& values) {
  std::vector<float> result;
  for (const T value : values) result.push_back(to_float(value));
  return result;
}

/// A vector in GPU memory.
template <class T>
class GpuArray {
 public:
  GpuArray(const GPU& gpu, const std::vector<T>& values) : gpu_(gpu), count_(values.size()) {
    cuda_check(cudaMalloc(&memory_, count_ * sizeof(T)), "cudaMalloc");
    cuda_check(cudaMemcpyAsync(memory_, values.data(), count_ * sizeof(T), cudaMemcpyHostToDevice,
                               gpu.context().stream),
               "cudaMemcpyAsync");
    cuda_check(cudaStreamSynchronize(gpu.context().stream), "cudaStreamSynchronize");
  }
  GpuArray(const GpuArray&) = delete;
  GpuArray& operator=(const GpuArray&) = delete;
  ~GpuArray() { cudaFree(memory_); }

  T* get() const { return static_cast<T*>(memory_); }
  std::vector<T> values() const {
    std::vector<T> result(count_);
    cuda_check(cudaMemcpyAsync(result.data(), memory_, count_ * sizeof(T), cudaMemcpyDeviceToHost,
                               gpu_.context().stream),
               "cudaMemcpyAsync");
    cuda_check(cudaStreamSynchronize(gpu_.context().stream), "cudaStreamSynchronize");
    return result;
  }

 private:
  const GPU& gpu_;
  std::size_t count_;
  void* memory_ = nullptr;
};

/// Runs `test` with several orders of blocks and threads if the order can be chosen, else once.
template <class Test>
void in_every_order(const Test& test) {
#if __has_include("emulation/control.h")
  using emulation::OrderKind;
  const emulation::Order before = emulation::order();
  for (const emulation::Order order : {emulation::Order{OrderKind::forward, 0},
                                       {OrderKind::reverse, 0},
                                       {OrderKind::random, 1},
                                       {OrderKind::random, 2}}) {
    emulation::set_order(order);
    test();
  }
  emulation::set_order(before);
#else
  test();
#endif
}

}  // namespace dpt::testing
