// The files of tests/golden/image_formats.json and orientations.json, with Pillow's pixels.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tests/engine/data/support.h"

namespace dpt::data_test {

struct GoldenImage {
  std::string name;  ///< begins with its format: "TIFF palette, 8 bits"
  Bytes file, rgb, grey;
  std::int64_t height = 0, width = 0;
  std::string format() const { return name.substr(0, name.find(' ')); }
};

const std::vector<GoldenImage>& golden_images();
/// Returns images that are stored rotated, with the pixels of the upright image.
const std::vector<GoldenImage>& golden_orientations();
/// Exif data and their orientation: 1 to 8, or empty if the tag is missing.
struct GoldenExif {
  Bytes data;
  std::optional<int> orientation;
};
std::vector<GoldenExif> golden_exif();
/// Returns the image with the given name; fails the test if it does not exist.
const GoldenImage& golden_image(const std::string& name);

}  // namespace dpt::data_test
