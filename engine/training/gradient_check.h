// Checks that the gradient computed by backward is that of the loss computed by forward, as
// precisely as differences of single-precision losses allow (`dpt model gradcheck`).
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
  int contradicting = 0;  ///< number of those that contradict the gradient
  double worst = 0;       ///< maximum relative error in `directions`
  GradientVerdict verdict = GradientVerdict::unclear;
};

/// A function of a flat buffer, and the point at which its gradient is checked.
struct CheckedFunction {
  /// Returns the value of the function after setting the part of the buffer that begins at `offset`
  /// to `values`. The rest of the buffer keeps its contents from the last call.
  std::function<double(std::int64_t offset, std::span<const float> values)> value;
  std::vector<float> at, gradient;
};

/// Checks `count` floats from `offset` on. In several directions (along the gradient, of all
/// elements, of a few) it takes central differences with ever smaller steps. The error of a
/// difference is bounded by the disagreement of three steps, the difference of the slopes on both
/// sides (a bend or a kink), and the rounding errors of the value. A direction whose error is a
/// tenth of the slope or more is discarded, and another is drawn. The gradient is wrong if at least
/// three directions, and a quarter of those that were not discarded, contradict it.
CheckedTensor check_gradient(const CheckedFunction& function, std::int64_t offset,
                             std::int64_t count, std::uint64_t seed);

/// Checks every tensor that `job` trains, near its starting weights, with `samples` samples of the
/// training data, transformed as for evaluation, on one device. REQUIRES: the job's precision is
/// fp32. Calls `on_tensor` after each tensor.
std::vector<CheckedTensor> check_gradients(
    const Job& job, const DeviceName& device, std::int64_t samples,
    const std::function<void(const CheckedTensor&)>& on_tensor = {});

}  // namespace dpt
