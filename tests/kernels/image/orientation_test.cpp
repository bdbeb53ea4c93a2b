// Images that are stored rotated or mirrored: the orientation is detected and applied as in
// Pillow's ImageOps.exif_transpose.
#include <map>
#include <random>

#include "kernels/image/decode.h"
#include "kernels/image/decode_options.h"
#include "kernels/image/decoders.h"
#include "kernels/image/metadata_orientation.h"
#include "kernels/image/resize.h"
#include "kernels/image/turned_image.h"
#include "tests/engine/data/encoded_images.h"
#include "tests/engine/data/golden_images.h"
#include "tests/engine/data/support.h"

namespace dpt {
namespace {

using namespace data_test;

Image decode_upright(const Bytes& file, std::int64_t channels, bool applies_orientation = true) {
  DecodeOptions options;
  options.applies_orientation = applies_orientation;
  return decode_image(std::as_bytes(std::span(file)), "x.img", channels, options);
}

/// Returns the orientation that ends a name such as "JPEG grey 6".
int orientation_in_name(const std::string& name) {
  return name.back() - '0';
}

TEST_CASE("images that are stored turned are read upright, as Pillow's exif_transpose makes them") {
  for (const GoldenImage& each : golden_orientations()) {
    CAPTURE(each.name);
    for (const std::int64_t channels : {1, 3}) {
      const Image image = decode_upright(each.file, channels);
      CHECK(image.height == each.height);
      CHECK(image.width == each.width);
      CHECK(image.channels == channels);
      CHECK(image.pixels == (channels == 1 ? each.grey : each.rgb));
    }
  }
}

TEST_CASE("without exif_orientation: apply, the stored pixels are read") {
  for (const GoldenImage& each : golden_orientations()) {
    const int orientation = orientation_in_name(each.name);
    if (orientation < 1 || orientation > 8) continue;
    CAPTURE(each.name);
    const Image stored = decode_upright(each.file, 3, false);
    CHECK(stored.height == (orientation < 5 ? each.height : each.width));
    CHECK((stored.pixels == each.rgb) == (orientation == 1));
    CHECK(turned_upright(stored, orientation).pixels == each.rgb);
  }
}

TEST_CASE("a part of an image that is stored turned is that of the upright one") {
  std::mt19937 random(7);
  const auto up_to = [&](std::int64_t most) {
    return 1 + static_cast<std::int64_t>(random() % static_cast<std::uint32_t>(most));
  };
  const auto box_in = [&](std::int64_t height, std::int64_t width) {
    const std::int64_t h = up_to(height), w = up_to(width);
    return PixelBox{up_to(height - h + 1) - 1, up_to(width - w + 1) - 1, h, w};
  };
  DecodeOptions options;
  options.applies_orientation = true;
  for (const GoldenImage& each : golden_orientations()) {
    CAPTURE(each.name);
    for (int times = 0; times < 4; ++times) {
      ImagePart part{box_in(each.height, each.width), up_to(9), up_to(9), {}};
      part.window = box_in(part.height, part.width);
      part.filter = static_cast<ResizeFilter>(times % 3);
      int calls = 0;
      const Image found = decode_part(
          std::as_bytes(std::span(each.file)), "x.img", 3,
          [&](std::int64_t height, std::int64_t width) {
            CHECK(height == each.height);
            CHECK(width == each.width);
            ++calls;
            return part;
          },
          options);
      CHECK(calls == 1);
      CHECK(found.pixels == part_of({each.height, each.width, 3, each.rgb}, part).pixels);
    }
  }
}

TEST_CASE("a turned JPEG is decoded at a reduced size where that is allowed") {
  const Bytes stored = jpeg(64, 48, 3, noise(64 * 48 * 3));
  Bytes turned = stored;
  set_orientation(turned, 6);
  // The stored image is 64 wide and 48 high, the upright one 48 wide and 64 high. Compare a part of
  // the upright image with the same part of the stored one.
  ImagePart part{{8, 4, 40, 40}, 8, 10, {1, 2, 6, 5}};
  part.exact = false;
  const ImagePart same = stored_part(part, 6, 64, 48);
  CHECK(same.height == 10);
  CHECK(jpeg_eighths(same) == 2);
  const auto decode = [&](const Bytes& file, const ImagePart& wanted) {
    DecodeOptions options;
    options.applies_orientation = true;
    return decode_part(
        std::as_bytes(std::span(file)), "x.jpg", 3,
        [&](std::int64_t, std::int64_t) { return wanted; }, options);
  };
  const Image found = decode(turned, part);
  CHECK(found.height == 6);
  CHECK(found.width == 5);
  CHECK(found.pixels == turned_upright(decode(stored, same), 6).pixels);
}

TEST_CASE("the orientation in Exif data is the one that Pillow goes by") {
  std::map<int, int> counts;
  std::size_t place = 0;
  for (const GoldenExif& each : golden_exif()) {
    CAPTURE(place++);
    CHECK(orientation_in_exif(std::as_bytes(std::span(each.data))) == each.orientation);
    ++counts[each.orientation.value_or(0)];
  }
  CHECK(counts.size() == 9);
}

TEST_CASE("the orientation in XMP is that of the first attribute or element") {
  const auto orientation = [](const std::string& xmp) {
    return orientation_in_xmp(std::as_bytes(std::span(xmp)));
  };
  CHECK(orientation("<a tiff:Orientation=\"6\"/>") == 6);
  CHECK(orientation("<tiff:Orientation>8</tiff:Orientation>") == 8);
  CHECK(orientation("tiff:Orientation=6 tiff:Orientation=\"3\"") == 3);
  CHECK(orientation("tiff:Orientation=\"9\" tiff:Orientation=\"3\"") == 1);
  CHECK(orientation("tiff:Orientation=\"") == 1);
  CHECK(orientation("") == 1);
}

TEST_CASE("facts of a file: orientation, whether it is applied, and used bits") {
  const auto facts = [](const std::string& name, bool applies) {
    for (const GoldenImage& each : golden_orientations()) {
      if (each.name == name)
        return facts_of_file(std::as_bytes(std::span(each.file)), "x", applies);
    }
    FAIL("no image is called " << name);
    return FileFacts{};
  };
  CHECK(facts("JPEG 1", true).orientation == 1);
  CHECK(!facts("JPEG 1", true).is_turned);
  CHECK(facts("JPEG 6", true).orientation == 6);
  CHECK(facts("JPEG 6", true).is_turned);
  CHECK(!facts("WEBP 6", false).is_turned);
  CHECK(facts("TIFF 16 bits", false).is_turned);
  CHECK(facts("TIFF 16 bits", false).used_bits == 16);
  CHECK(facts("PNG 16 bits", true).used_bits == 16);
  CHECK(facts("PNG 3", true).used_bits == 0);
}

TEST_CASE("boxes of an upright image lie in the stored one") {
  // Pixel (row, column) of a stored 2 x 3 image is 3 * row + column.
  const Image stored{2, 3, 1, {0, 1, 2, 3, 4, 5}};
  for (int orientation = 1; orientation <= 8; ++orientation) {
    CAPTURE(orientation);
    const Image upright = turned_upright(stored, orientation);
    for (std::int64_t y = 0; y < upright.height; ++y) {
      for (std::int64_t x = 0; x < upright.width; ++x) {
        const PixelBox at = stored_box({y, x, 1, 1}, orientation, upright.height, upright.width);
        CHECK(upright.pixels[y * upright.width + x] == stored.pixels[at.top * 3 + at.left]);
      }
    }
  }
}

}  // namespace
}  // namespace dpt
