// One function per kind of transform, and the list of them.
#pragma once

#include <memory>

#include "engine/config/registry.h"
#include "engine/data/host_transform.h"

namespace dpt {

/// One kind of transform. `make` throws ErrorKind::usage, the transform's place first, for options
/// that do not fit together. It is null if only the device can do the transform.
struct TransformKind {
  const ObjectTable* table;
  std::unique_ptr<HostTransform> (*make)(const Variant& options);
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

/// Returns all of them, in the order of the reference.
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

const Registry<TransformKind>& transform_kinds();

}  // namespace dpt
