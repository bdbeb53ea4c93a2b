// Parameters of a convolution for the direct_* and winograd_* kernels, computed once by
// kernels/cpu/own_conv2d.cpp. x is (n, in_h, in_w, in_c), weights (out_c, kernel_h, kernel_w,
// in_c); the fused pooling is 2x2 with stride 2 and no padding.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/common/bf16.h"

namespace dpt::direct {

enum class FusedPool : std::uint8_t { none, average, max };

struct Conv {
  std::int64_t batch = 0;
  std::int64_t in_h = 0, in_w = 0, in_c = 0;
  std::int64_t kernel_h = 0, kernel_w = 0, stride_h = 1, stride_w = 1, pad_h = 0, pad_w = 0;
  std::int64_t conv_h = 0, conv_w = 0;  ///< computed pixels: those that pooling reads
  std::int64_t out_h = 0, out_w = 0;    ///< size of y, after pooling
  std::int64_t out_c = 0;
  bool bias = true, relu = false, training = true, input_gradient = true;
  FusedPool pool = FusedPool::none;

  // A row of the kernel corresponds to one contiguous run of a row of x: (kw, ic) is one index.
  std::int64_t run() const { return kernel_w * in_c; }
  std::int64_t depth() const { return kernel_h * run(); }
  std::int64_t padded_h() const { return in_h + 2 * pad_h; }
  std::int64_t padded_row() const { return (in_w + 2 * pad_w) * in_c; }
  bool padded() const { return pad_h > 0 || pad_w > 0; }
  std::int64_t pixels() const { return conv_h * conv_w; }
};

/// Addresses of one call. Activations, their gradients and weights have the type Value; the
/// gradients of the parameters are fp32.
template <class Value>
struct ConvCall {
  const Value *x, *weight;
  const float* bias;
  Value *y, *dy, *dx;
  float *dweight, *dbias;
  std::uint8_t* saved;
  float* scratch;
  bool add;  ///< true: add to the parameter gradients; false: overwrite them
};

/// The kernels of one algorithm, compiled for one instruction set.
template <class Value>
struct ConvKernels {
  const char* name;
  std::size_t (*scratch_bytes)(const Conv& conv);
  std::size_t (*saved_bytes)(const Conv& conv);
  void (*forward)(const Conv& conv, const ConvCall<Value>& args);
  void (*backward)(const Conv& conv, const ConvCall<Value>& args);
  bool backward_rounds_transforms = false;  ///< see Op
};
extern const ConvKernels<float> kConvAvx2, kConvAvx512;
extern const ConvKernels<Bf16> kConvAvx512Bf16;
/// Kernels for 3x3, stride 1, no pool, and channels in multiples of 8 (AVX2) or 16 (AVX-512); see
/// winograd_kernels.h.
extern const ConvKernels<float> kWinogradAvx2, kWinogradAvx512;
extern const ConvKernels<Bf16> kWinogradAvx512Bf16;

}  // namespace dpt::direct
