// Options of transforms that both the host and the device's input kernel can apply.
#pragma once

#include <cstdint>

#include "engine/spec/train_spec.h"

namespace dpt {

struct RandomCropOptions {
  Size2 size{0, 0};
  std::int64_t padding = 0;
};
const ObjectTable& random_crop_table();

struct FlipOptions {
  double p = 0.5;
};
const ObjectTable& random_horizontal_flip_table();

}  // namespace dpt
