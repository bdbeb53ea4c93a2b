// Conversion of parameters between files and flat buffers. No other code permutes them.
#include "engine/graph/layouts.h"
#include "engine/layers/param_spec.h"

#include <algorithm>

namespace dpt {
namespace {

/// Calls copy(file index, buffer index) for every element.
template <class Copy>
void for_each_element(const Param& param, Copy copy) {
  const ParamSpec& spec = param.spec;
  switch (spec.layout) {
    case ParamLayout::plain:
      for (std::int64_t i = 0; i < param.count; ++i) copy(i, i);
      return;
    case ParamLayout::ohwi:
    case ParamLayout::linear_hwc:
    case ParamLayout::vector_hwc: {
      // All three layouts are [out][c][h][w] in files and [out][h][w][c] in the buffer.
      const bool conv = spec.layout == ParamLayout::ohwi;
      const std::int64_t out = spec.layout == ParamLayout::vector_hwc ? 1 : spec.file_shape[0];
      const std::int64_t c = conv ? spec.file_shape[1] : spec.hwc.c;
      const std::int64_t hw =
          conv ? spec.file_shape[2] * spec.file_shape[3] : spec.hwc.h * spec.hwc.w;
      for (std::int64_t o = 0; o < out; ++o) {
        for (std::int64_t channel = 0; channel < c; ++channel) {
          for (std::int64_t pixel = 0; pixel < hw; ++pixel) {
            copy((o * c + channel) * hw + pixel, (o * hw + pixel) * c + channel);
          }
        }
      }
      return;
    }
  }
}

}  // namespace

void to_file_layout(const Param& param, const float* buffer, float* file) {
  for_each_element(param, [&](std::int64_t f, std::int64_t b) { file[f] = buffer[b]; });
}

void from_file_layout(const Param& param, const float* file, float* buffer) {
  for_each_element(param, [&](std::int64_t f, std::int64_t b) { buffer[b] = file[f]; });
}

}  // namespace dpt
