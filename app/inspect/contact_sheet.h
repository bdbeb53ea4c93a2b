// A sheet of samples as training sees them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/data/input_draws.h"
#include "engine/data/source.h"
#include "kernels/image/image.h"
#include "kernels/input_op.h"

namespace dpt {

struct SheetImage {
  std::int64_t index = 0;  ///< index in the source
  std::int64_t epoch = 0;  ///< epoch, counted from 0
  std::int64_t key = 0;    ///< Occurrence::key
  std::int32_t label = 0;
  Image image;
};

/// Draws the model's input before it is normalised. For each of `images`, reads the sample from
/// `source` in the image's epoch, runs the device part of the transforms (`input`, with `draws`),
/// and sets the label and the image. Sets `low` and `high` to the values drawn as black and white:
/// the range of float samples, or 0 and 1 for bytes. REQUIRES: 1 or 3 channels.
void draw_samples(const DataSource& source, InputDesc input, const InputDraws& draws,
                  std::vector<SheetImage>& images, double& low, double& high);

/// Returns a sheet with the images in rows of `columns`, each above its caption and, if small,
/// enlarged by an integer factor. Throws ErrorKind::usage for a sheet too large for a PNG file.
Image contact_sheet(const std::vector<SheetImage>& images,
                    const std::vector<std::vector<std::string>>& captions, std::int64_t columns);

}  // namespace dpt
