// Options of transforms that more than their own file needs.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/config/train_spec.h"
#include "kernels/image/image.h"

namespace dpt {

struct RandomCropOptions {
  Size2 size{0, 0};
  std::int64_t padding = 0;
};

struct RandomResizedCropOptions {
  Size2 size{0, 0};
  std::vector<double> scale{0.08, 1.0}, ratio{3.0 / 4.0, 4.0 / 3.0};
  ResizeFilter interpolation = ResizeFilter::bilinear;
  bool reduced_decoding = false;
};

struct FlipOptions {
  double p = 0.5;
};

struct ErasingOptions {
  double p = 0.5;
  std::vector<double> scale{0.02, 0.33}, ratio{0.3, 3.3}, value{0.0};
};

}  // namespace dpt
