// Descriptions of normalisations and of scaling: operations with fp32 parameters per channel.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "kernels/base/types.h"
#include "kernels/op.h"

namespace dpt {

/// Batch normalisation of each channel over samples and pixels (torch.nn.BatchNorm1d, BatchNorm2d),
/// then optional ReLU. With `batch_statistics`, it couples the samples of a batch (see Op). Forward
/// then writes the mean and the unbiased variance, if the `gradient` of these parameters is
/// requested.
struct BatchNormDesc {
  enum : std::size_t { kWeight, kBias, kRunningMean, kRunningVar };
  static constexpr std::array<std::string_view, 4> kParams{"weight", "bias", "running_mean",
                                                           "running_var"};
  std::int64_t batch = 0;
  SampleShape shape;
  float eps = 1e-5F;
  bool affine = true;            ///< true: has a weight and a bias
  bool batch_statistics = true;  ///< false: normalises with running_mean and running_var
  bool relu = false;
  DType type = DType::f32;
  bool training = true;
  bool input_gradient = true;
};

/// Group normalisation (torch.nn.GroupNorm). The channels are divided into `groups` groups of
/// neighbours. Normalises each group of each sample separately, over all its pixels and channels.
/// Then y = y * weight + bias for each channel.
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

/// y = weight * x, with one weight per channel or a single one. With `negative_only`, this applies
/// only where x is not above 0, and elsewhere y = x (torch.nn.PReLU).
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

/// List of the operations that this file describes, for DPT_OPS (kernels/ops.h).
#define DPT_NORM_OPS(EACH) EACH(BatchNormDesc) EACH(GroupNormDesc) EACH(ChannelScaleDesc)

}  // namespace dpt
