// Parameters of a linear layer for dpt's kernels: y (batch, out) = x (batch, in) W^T + b, W (out,
// in).
#pragma once

#include <cstdint>

namespace dpt::direct {

struct Linear {
  std::int64_t batch = 0, in = 0, out = 0;
  bool bias = true, relu = false, input_gradient = true;
};

struct LinearArgs {
  const float *x, *weight, *bias;
  float *y, *dy, *dx, *dweight, *dbias;
  bool add;  ///< true: adds to the parameter gradients
};

/// The kernels of one instruction set. `backward` masks dy by ReLU in place.
struct LinearKernels {
  const char* name;
  void (*forward)(const Linear& linear, const LinearArgs& args);
  void (*backward)(const Linear& linear, const LinearArgs& args);
};
extern const LinearKernels kLinearAvx2, kLinearAvx512;

}  // namespace dpt::direct
