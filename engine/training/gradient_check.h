// Check that the gradient that backward computes is that of the loss that forward computes, as far
// as differences of single-precision losses show (`dpt model gradcheck`).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/job/job.h"
#include "kernels/devices.h"

namespace dpt {

/// Result of comparing the gradient of one tensor with differences.
enum class GradientVerdict : std::uint8_t {
  agrees,
  differs,
  flat,    ///< both are zero within the rounding errors of the loss
  unclear  ///< no direction was free of kinks and steeper than the rounding errors
};
const char* name_of(GradientVerdict verdict);

struct CheckedTensor {
  std::string layer, parameter;
  int directions = 0;  ///< in which differences were precise enough
  int contradicting =
      0;             ///< directions among those in which the differences contradict the gradient
  double worst = 0;  ///< relative error in `directions`
  GradientVerdict verdict = GradientVerdict::unclear;
};

/// A function of a flat buffer, and the point at which its gradient is checked.
struct CheckedFunction {
  /// Its value where the stretch of the buffer that begins at `offset` holds `values` and the rest
  /// what it held at the last call.
  std::function<double(std::int64_t offset, std::span<const float> values)> value;
  std::vector<float> at, gradient;
};

/// Checks the stretch of `count` floats from `offset` on. In each of some directions (along the
/// gradient, of all elements, of a few) it takes central differences over ever smaller steps. How
/// far those of three steps disagree, the difference of the slopes on both sides (a bend or a
/// kink), and the rounding errors of the value bound the error of a difference. A direction in
/// which that is a tenth of the slope or more says nothing, and another is drawn. Three directions,
/// and a quarter of all, must contradict the gradient before it counts as wrong.
CheckedTensor check_gradient(const CheckedFunction& function, std::int64_t offset,
                             std::int64_t count, std::uint64_t seed);

/// Every tensor that `job` trains, near its starting weights and with `samples` samples of the
/// training data, transformed as for evaluation; on one device. REQUIRES: the job's precision is
/// fp32. `on_tensor` is called as each is done.
std::vector<CheckedTensor> check_gradients(
    const Job& job, const DeviceName& device, std::int64_t samples,
    const std::function<void(const CheckedTensor&)>& on_tensor = {});

}  // namespace dpt
