// Checks that backward computes the gradient of the loss that forward computes, as precisely as
// differences of single-precision losses allow (`dpt model gradcheck`).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/job/job.h"
#include "kernels/devices.h"

namespace dpt {

/// Result of comparing the gradient of one tensor with finite differences.
enum class GradientVerdict : std::uint8_t {
  agrees,
  differs,
  flat,    ///< both are zero within the rounding errors of the loss
  unclear  ///< no direction was free of kinks and steeper than the rounding errors
};
const char* name_of(GradientVerdict verdict);

struct CheckedTensor {
  std::string layer, parameter;
  int directions = 0;     ///< number of directions in which differences were precise enough
  int contradicting = 0;  ///< number of these directions that contradict the gradient
  double worst = 0;       ///< maximum relative error in `directions`
  GradientVerdict verdict = GradientVerdict::unclear;
};

/// A function of a flat buffer, and the point at which its gradient is checked.
struct CheckedFunction {
  /// Sets the part of the buffer that begins at `offset` to `values` and returns the value of the
  /// function. The rest of the buffer keeps its contents from the last call.
  std::function<double(std::int64_t offset, std::span<const float> values)> value;
  std::vector<float> at, gradient;
};

/// Checks the gradient of `count` floats from `offset` on. Takes central differences with ever
/// smaller steps in several directions: along the gradient, of all elements, and of a few. The
/// error of a difference is bounded by the disagreement of three steps, the difference between the
/// slopes on both sides (a bend or a kink), and the rounding errors of the value. A direction whose
/// error is a tenth of the slope or more is discarded, and another is drawn. The gradient is wrong
/// if at least three of the directions that were kept, and at least a quarter of them, contradict
/// it.
CheckedTensor check_gradient(const CheckedFunction& function, std::int64_t offset,
                             std::int64_t count, std::uint64_t seed);

/// Checks every tensor that `job` trains, on one device and near its starting weights. Uses
/// `samples` samples of the training data, with the transforms of evaluation. Calls `on_tensor`
/// after each tensor. REQUIRES: the job's precision is fp32.
std::vector<CheckedTensor> check_gradients(
    const Job& job, const DeviceName& device, std::int64_t samples,
    const std::function<void(const CheckedTensor&)>& on_tensor = {});

}  // namespace dpt
