// Descriptions of normalisations and of scaling: operations with an fp32 number for each channel.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "kernels/base/types.h"
#include "kernels/op.h"

namespace dpt {

/// Batch normalisation of each channel over samples and pixels (torch.nn.BatchNorm1d, BatchNorm2d),
/// then optional ReLU. With `batch_statistics` it couples the samples of a batch (see Op), and
/// forward writes the mean and the unbiased variance if their `gradient` is asked for.
struct BatchNormDesc {
  enum : std::size_t { kWeight, kBias, kRunningMean, kRunningVar };
  static constexpr std::array<std::string_view, 4> kParams{"weight", "bias", "running_mean",
                                                           "running_var"};
  std::int64_t batch = 0;
  SampleShape shape;
  float eps = 1e-5F;
  bool affine = true;            ///< has a weight and a bias
  bool batch_statistics = true;  ///< false: normalises with running_mean and running_var
  bool relu = false;
  DType type = DType::f32;
  bool training = true;
  bool input_gradient = true;
};

/// Normalises each sample by itself, over all pixels and the channels of each of `groups` groups of
/// neighbouring channels (torch.nn.GroupNorm), then y = y * weight + bias for each channel.
struct GroupNormDesc : WeightAndBias {
  std::int64_t batch = 0;
  SampleShape shape;
  std::int64_t groups = 1;  ///< divides shape.c
  float eps = 1e-5F;
  bool weight = true, bias = true;
  DType type = DType::f32;
  bool training = true;
  bool input_gradient = true;
};

/// y = weight * x with a weight for each channel, or one for all; with `negative_only` just where x
/// is not above 0 (torch.nn.PReLU).
struct ChannelScaleDesc {
  enum : std::size_t { kWeight };
  static constexpr std::array<std::string_view, 1> kParams{"weight"};
  std::int64_t batch = 0;
  SampleShape shape;
  bool one_weight = false;
  bool negative_only = false;
  DType type = DType::f32;
  bool training = true;
  bool input_gradient = true;
};

}  // namespace dpt
