// A parameter of a layer: its shape, its layout in files and buffers, and its initial values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/enum_names.h"
#include "kernels/base/types.h"

namespace dpt {

/// Layout of a parameter in the flat buffer. Files always hold torchvision's layout.
enum class ParamLayout : std::uint8_t {
  plain,       ///< layout of files: biases, and a Linear that does not follow a Flatten of images
  ohwi,        ///< file: OIHW (out, in/groups, kh, kw); buffer: OHWI
  linear_hwc,  ///< file: [out][c*h*w]; buffer: [out][h*w*c], for a Linear after a Flatten
  vector_hwc   ///< file: [c*h*w]; buffer: [h*w*c], one number for each feature after a Flatten
};

/// Distribution of initial values, named as in torch.nn.init.
enum class InitKind : std::uint8_t {
  pytorch,  ///< "default": U(-1/sqrt(fan_in), 1/sqrt(fan_in))
  xavier_uniform,
  xavier_normal,
  kaiming_uniform,  ///< gain sqrt(2), as for ReLU
  kaiming_normal,
  normal,
  constant
};
constexpr auto enum_names(InitKind) {
  return std::to_array<EnumName<InitKind>>({{InitKind::pytorch, "default"},
                                            {InitKind::xavier_uniform, "xavier_uniform"},
                                            {InitKind::xavier_normal, "xavier_normal"},
                                            {InitKind::kaiming_uniform, "kaiming_uniform"},
                                            {InitKind::kaiming_normal, "kaiming_normal"},
                                            {InitKind::normal, "normal"},
                                            {InitKind::constant, "constant"}});
}

/// Role of a tensor of a layer in training.
enum class ParamRole : std::uint8_t {
  trained,  ///< the optimizer updates it
  running,  ///< running statistics, moved toward the statistics of each batch
  counter   ///< counts the updates of running statistics; I64 in files
};

/// Initialisation of a parameter. Fan-in and fan-out are computed as in torch.nn.init.
struct InitSpec {
  InitKind kind = InitKind::pytorch;
  double value = 0.0;   ///< constant: its value; normal: its mean
  double stddev = 1.0;  ///< normal
};

struct ParamSpec {
  std::string suffix;  ///< "weight", "bias": the name is LAYER.suffix; if empty, it is LAYER
  std::vector<std::int64_t> file_shape;  ///< shape in files, as in torchvision
  ParamLayout layout = ParamLayout::plain;
  SampleShape hwc;  ///< for linear_hwc and vector_hwc: shape of the image before the Flatten
  std::int64_t fan_in = 1, fan_out = 1;
  InitSpec init;
  ParamRole role = ParamRole::trained;
  float momentum = 0.1F;  ///< for ParamRole::running: as RunningRange::momentum

  /// Returns the name within the layer, as in the param_names() of its operation.
  std::string_view name() const { return suffix.empty() ? std::string_view("weight") : suffix; }
};

}  // namespace dpt
