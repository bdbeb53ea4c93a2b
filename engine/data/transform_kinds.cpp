#include "engine/data/transform_kinds.h"

namespace dpt {

const Registry<TransformKind>& transform_kinds() {
  static const Registry<TransformKind> registry(
      "transform", all_transforms(),
      {{"ToTensor", "no transform (pixels are always scaled to 0..1)"},
       {"ToImage", "no transform (pixels are always scaled to 0..1)"},
       {"PILToTensor", "no transform (pixels are always scaled to 0..1)"},
       {"ConvertImageDtype", "no transform (pixels are always scaled to 0..1)"},
       {"ToDtype", "no transform (pixels are always scaled to 0..1)"},
       {"Rescaling", "no transform (pixels are always scaled to 0..1)"},
       {"Resizing", "Resize"},
       {"LetterBox", "Letterbox"},
       {"ResizeWithPad", "Letterbox"},
       {"Grayscale", "no transform (image_folder always converts to the channels of model.input)"},
       {"RandomFlip", "RandomHorizontalFlip"},
       {"HorizontalFlip", "RandomHorizontalFlip"},
       {"Normalization", "Normalize"},
       {"Cutout", "RandomErasing"},
       {"MixUp", "data.transforms.batch: [{type: MixUp}], as it mixes the samples of a batch"},
       {"CutMix", "data.transforms.batch: [{type: CutMix}], as it mixes the samples of a batch"}});
  return registry;
}

const Registry<BatchTransformKind>& batch_transform_kinds() {
  static const Registry<BatchTransformKind> registry(
      "batch transform", all_batch_transforms(),
      {{"Mixup", "MixUp"},
       {"mixup", "MixUp"},
       {"Cutmix", "CutMix"},
       {"cutmix", "CutMix"},
       {"RandomChoice",
        "the transforms themselves: one of the list is chosen for each "
        "batch"}});
  return registry;
}

}  // namespace dpt
