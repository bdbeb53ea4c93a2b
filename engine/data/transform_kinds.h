// The contract of transforms, and the list of them: one function per kind, each in its own source.
// A transform of samples states its part on the host, its part in the device's input kernel, or
// both; a transform of batches mixes each sample with a partner.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "engine/config/registry.h"
#include "engine/data/batch_mix.h"
#include "engine/data/host_transform.h"
#include "kernels/input_op.h"

namespace dpt {

/// Position of a transform in the input kernel. Transforms run in ascending order of position, with
/// at most one at each position above `geometry`.
enum class InputPosition : std::uint8_t { geometry, normalise, erase };

/// Part of a transform that the input kernel applies.
struct DevicePart {
  /// Adds the transform to `desc`, whose shapes and earlier transforms are set. Throws
  /// ErrorKind::usage, naming the transform's place, for options that do not fit the shapes.
  void (*describe)(const Variant& options, InputDesc& desc);
  InputPosition position = InputPosition::geometry;
  /// True if all samples must have one size that is known before they are read.
  bool needs_known_size = false;
  /// Draws the rectangle that the kernel erases from one sample of `size`; null if the transform
  /// erases nothing.
  InputBox (*draw_box)(const Variant& options, Size2 size, DrawStream& draws) = nullptr;
};

/// One kind of transform of samples.
struct TransformKind {
  const ObjectTable* table;
  /// Makes the transform for the host. Throws ErrorKind::usage, naming the transform's place, for
  /// options that do not fit together. Null if only the device can do the transform.
  std::unique_ptr<HostTransform> (*make)(const Variant& options) = nullptr;
  std::optional<DevicePart> device = {};  ///< unset if only the host can do the transform
  bool is_random = false;                 ///< true if it would change evaluated samples at random
  bool trains_only = false;               ///< true if it is refused in data.transforms.eval
};

TransformKind resize_transform();
TransformKind letterbox_transform();
TransformKind center_crop_transform();
TransformKind random_crop_transform();
TransformKind random_resized_crop_transform();
TransformKind pad_transform();
TransformKind random_horizontal_flip_transform();
TransformKind random_vertical_flip_transform();
TransformKind random_rotation_transform();
TransformKind random_affine_transform();
TransformKind color_jitter_transform();
TransformKind random_grayscale_transform();
TransformKind trivial_augment_wide_transform();
TransformKind normalize_transform();
TransformKind random_erasing_transform();

/// Returns all kinds of transforms, in the order in which the reference pages list them.
inline std::vector<TransformKind> all_transforms() {
  return {resize_transform(),
          letterbox_transform(),
          center_crop_transform(),
          random_crop_transform(),
          random_resized_crop_transform(),
          pad_transform(),
          random_horizontal_flip_transform(),
          random_vertical_flip_transform(),
          random_rotation_transform(),
          random_affine_transform(),
          color_jitter_transform(),
          random_grayscale_transform(),
          trivial_augment_wide_transform(),
          normalize_transform(),
          random_erasing_transform()};
}

/// One kind of transform of whole batches, applied by the input kernel.
struct BatchTransformKind {
  const ObjectTable* table;
  /// Draws how the samples of one batch, each of `size`, are mixed with their partners.
  BatchMix (*draw)(const Variant& options, Size2 size, DrawStream& draws);
  /// True if a part of a sample's image is replaced by the same part of its partner's image. A
  /// target that describes the whole image (TargetKind::values) cannot be mixed in this way.
  bool mixes_areas = false;
};

BatchTransformKind mix_up_transform();
BatchTransformKind cut_mix_transform();

/// Returns all kinds of batch transforms, in the order in which the reference pages list them.
inline std::vector<BatchTransformKind> all_batch_transforms() {
  return {mix_up_transform(), cut_mix_transform()};
}

const Registry<TransformKind>& transform_kinds();
const Registry<BatchTransformKind>& batch_transform_kinds();

}  // namespace dpt
