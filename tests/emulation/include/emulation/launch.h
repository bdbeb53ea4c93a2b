// Launching kernels: the parts of cudaLaunchKernelEx and similar functions that depend on a
// kernel's parameters.
#pragma once

#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "emulation/runtime_api.h"

namespace emulation::detail {

struct Argument {
  const void* address;
  std::size_t bytes;
  bool pointer;  ///< true if declared as a pointer: it must point to memory that kernels may read
};

/// A kernel with a copy of its arguments. It can run any number of times.
class Kernel {
 public:
  virtual ~Kernel() = default;
  virtual void run_thread() const = 0;
  virtual const void* function() const = 0;
  /// Returns the arguments with cleared padding, for inspection; the threads get the original ones.
  virtual std::vector<Argument> arguments() const = 0;
};

template <class... Params>
class KernelOf final : public Kernel {
 public:
  template <class... Args>
  explicit KernelOf(void (*kernel)(Params...), Args&&... args)
      : function_(kernel), arguments_(std::forward<Args>(args)...), checked_(arguments_) {
#if __has_builtin(__builtin_clear_padding)
    // Clear the padding of structs, because it may look like the address of freed memory. (A copy
    // is cleared, because GCC 12 clears too much in structs with arrays.)
    std::apply([](auto&... each) { (__builtin_clear_padding(&each), ...); }, checked_);
#endif
  }
  void run_thread() const override {
    std::apply(function_, arguments_);
  }
  const void* function() const override {
    return reinterpret_cast<const void*>(function_);
  }
  std::vector<Argument> arguments() const override {
    return std::apply(
        [](const auto&... each) {
          return std::vector<Argument>{
              Argument{&each, sizeof(each), std::is_pointer_v<std::decay_t<decltype(each)>>}...};
        },
        checked_);
  }

 private:
  void (*function_)(Params...);
  std::tuple<std::decay_t<Params>...> arguments_;
  std::tuple<std::decay_t<Params>...>
      checked_;  ///< the arguments with cleared padding, for inspection
};

cudaError_t launch(const cudaLaunchConfig_t& config, std::shared_ptr<const Kernel> kernel,
                   const char* call);

}  // namespace emulation::detail

template <class... Params, class... Args>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Params...),
                               Args&&... args) {
  static_assert(sizeof...(Params) == sizeof...(Args), "one argument for each parameter");
  static_assert((std::is_trivially_copyable_v<Params> && ...), "arguments are copied as bytes");
  if (!config || !kernel) return cudaErrorInvalidValue;
  return emulation::detail::launch(*config,
                                   std::make_shared<emulation::detail::KernelOf<Params...>>(
                                       kernel, static_cast<Params>(std::forward<Args>(args))...),
                                   "cudaLaunchKernelEx");
}

template <class... Params>
cudaError_t cudaLaunchKernel(void (*kernel)(Params...), dim3 grid, dim3 block, void** args,
                             std::size_t shared_bytes = 0, cudaStream_t stream = nullptr) {
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  return [&]<std::size_t... I>(std::index_sequence<I...>) {
    return emulation::detail::launch(config,
                                     std::make_shared<emulation::detail::KernelOf<Params...>>(
                                         kernel, *static_cast<std::decay_t<Params>*>(args[I])...),
                                     "cudaLaunchKernel");
  }
  (std::index_sequence_for<Params...>{});
}

// CUDA's own headers accept any function pointer here.
template <class... Params>
cudaError_t cudaFuncSetAttribute(void (*kernel)(Params...), cudaFuncAttribute attribute,
                                 int value) {
  return cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), attribute, value);
}
template <class... Params>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, void (*kernel)(Params...)) {
  return cudaFuncGetAttributes(attributes, reinterpret_cast<const void*>(kernel));
}
template <class... Params>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void (*kernel)(Params...),
                                                          int block_size,
                                                          std::size_t shared_bytes) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(
      blocks, reinterpret_cast<const void*>(kernel), block_size, shared_bytes);
}
template <class T>
cudaError_t cudaMalloc(T** pointer, std::size_t bytes) {
  return cudaMalloc(reinterpret_cast<void**>(pointer), bytes);
}
template <class T>
cudaError_t cudaHostAlloc(T** pointer, std::size_t bytes, unsigned flags) {
  return cudaHostAlloc(reinterpret_cast<void**>(pointer), bytes, flags);
}
template <class T>
cudaError_t cudaMallocHost(T** pointer, std::size_t bytes, unsigned flags = 0) {
  return cudaHostAlloc(reinterpret_cast<void**>(pointer), bytes, flags);
}
