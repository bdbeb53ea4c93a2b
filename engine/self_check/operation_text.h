// Operations in words, for messages and as keys of the cache of checked operations.
#pragma once

#include <string>

#include "kernels/ops.h"

namespace dpt {

/// Returns a description that has everything by which a backend may choose a kernel: "Conv2d 3x3 of
/// 2 x 32x32x16 to 32x32x32, stride 1x1, padding 1x1, bias, ReLU, fp32". Shapes are height x width
/// x channels.
std::string operation_text(const OpDesc& desc);

/// Returns a text about a wrong value: element `at` of the `count` elements of the result `name`.
std::string wrong_value_text(const std::string& name, std::size_t at, std::size_t count, double got,
                             double want, double tolerance);

}  // namespace dpt
