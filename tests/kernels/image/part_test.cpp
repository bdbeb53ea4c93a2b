// Parts of images: partial decoding of a JPEG, and the resizing loops, compared with the whole
// image and plain loops.
#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "kernels/image/decode.h"
#include "kernels/image/decode_options.h"
#include "kernels/image/decoders.h"
#include "kernels/image/resize.h"
#include "tests/engine/data/encoded_images.h"
#include "tests/engine/data/support.h"
#include "tests/support/places.h"
#include "tests/support/skip.h"

namespace dpt {
namespace {

using namespace data_test;

std::span<const std::byte> file_bytes(const Bytes& bytes) {
  return std::as_bytes(std::span(bytes));
}

std::int64_t between(std::mt19937& random, std::int64_t low, std::int64_t high) {
  return low + static_cast<std::int64_t>(random() % static_cast<std::uint32_t>(high - low + 1));
}

PixelBox random_box(std::mt19937& random, std::int64_t height, std::int64_t width) {
  PixelBox box;
  box.height = between(random, 1, height);
  box.width = between(random, 1, width);
  box.top = between(random, 0, height - box.height);
  box.left = between(random, 0, width - box.width);
  return box;
}

/// Returns a random part: cropped, resized or both, with a window that covers all or some of it.
ImagePart random_part(std::mt19937& random, std::int64_t height, std::int64_t width) {
  ImagePart part;
  part.box = random_box(random, height, width);
  const bool resizes = random() % 4 != 0;
  part.height = resizes ? between(random, 1, 60) : part.box.height;
  part.width = resizes ? between(random, 1, 60) : part.box.width;
  part.window = random() % 2 != 0 ? PixelBox{0, 0, part.height, part.width}
                                  : random_box(random, part.height, part.width);
  return part;
}

/// Returns noise that is smooth enough to resemble an image.
Bytes picture(int width, int height, int channels) {
  Bytes pixels = noise(static_cast<std::size_t>(width * height * channels));
  for (std::size_t i = 0; i < pixels.size(); ++i) {
    const auto x = static_cast<double>(i / static_cast<std::size_t>(channels));
    pixels[i] = static_cast<std::uint8_t>(pixels[i] / 2 + 60 + 60 * std::sin(x / 37));
  }
  return pixels;
}

std::string text_of(const ImagePart& part) {
  const auto box = [](const PixelBox& b) {
    return fmt::format("({}, {}) {}x{}", b.top, b.left, b.height, b.width);
  };
  return fmt::format("box {}, to {}x{}, window {}", box(part.box), part.height, part.width,
                     box(part.window));
}

/// Returns how many of 25 random parts differ from the same parts of the whole image.
int unequal_parts(const Bytes& file, std::int64_t channels, const std::string& name,
                  std::mt19937& random, const DecodeOptions& options = {}) {
  const Image whole = decode_image(file_bytes(file), "x.jpg", channels, options);
  int unequal = 0;
  for (int i = 0; i < 25; ++i) {
    const ImagePart part = random_part(random, whole.height, whole.width);
    const Image found = decode_part(
        file_bytes(file), "x.jpg", channels, [&](std::int64_t, std::int64_t) { return part; },
        options);
    if (found.pixels != part_of(whole, part).pixels && unequal++ == 0) {
      FAIL_CHECK(fmt::format("{}: {}", name, text_of(part)));
    }
  }
  return unequal;
}

TEST_CASE("parts of a JPEG have the bits of the whole image's") {
  std::mt19937 random(1);
  int unequal = 0;
  const int sampling[][2] = {{1, 1}, {2, 1}, {2, 2}, {1, 2}, {4, 1}, {4, 2}};
  const int sizes[][2] = {{97, 131}, {160, 112}, {33, 250}, {17, 9}};
  for (const auto& [across, down] : sampling) {
    for (const auto& [height, width] : sizes) {
      for (int style = 0; style < 4; ++style) {
        const JpegStyle how{across, down, style == 1, style == 2, style == 3 ? 5 : 0, 90};
        const std::string name = fmt::format("{}x{} (height x width), sampled {}x{}, style {}",
                                             height, width, across, down, style);
        for (const int stored : {1, 3}) {
          if (stored == 1 && across + down != 4) continue;
          const Bytes file = jpeg(width, height, stored, picture(width, height, stored), how);
          for (const std::int64_t channels : {1, 3}) {
            if (unequal < 5) unequal += unequal_parts(file, channels, name, random);
          }
        }
      }
    }
  }
  CHECK(unequal == 0);
}

TEST_CASE("parts of a progressive JPEG without its last scans") {
  // libjpeg smooths this image, so a block depends on others.
  std::mt19937 random(4);
  JpegStyle style;
  style.progressive = true;
  const Bytes file = jpeg(97, 131, 3, picture(97, 131, 3), style);
  for (const std::size_t eighths : {1, 2, 3, 5, 7}) {
    const Bytes cut(file.begin(), file.begin() + static_cast<long>(file.size() * eighths / 8));
    CHECK(unequal_parts(cut, 3, fmt::format("{} of 8", eighths), random, {true}) == 0);
  }
}

TEST_CASE("the size that a JPEG is decoded at") {
  const auto eighths = [](std::int64_t height, std::int64_t width, bool exact = false) {
    return jpeg_eighths({{0, 0, height, width}, 32, 64, {0, 0, 32, 64}, exact});
  };
  CHECK(eighths(256, 512) == 1);
  CHECK(eighths(255, 512) == 2);
  CHECK(eighths(256, 511) == 2);
  CHECK(eighths(128, 256) == 2);
  CHECK(eighths(127, 256) == 4);
  CHECK(eighths(64, 128) == 4);
  CHECK(eighths(64, 127) == 8);
  CHECK(eighths(10, 10) == 8);
  CHECK(eighths(256, 512, true) == 8);
}

TEST_CASE("a part that need not be exact is, unless its JPEG was decoded at a reduced size") {
  const Bytes file = jpeg(97, 131, 3, picture(97, 131, 3), {});
  ImagePart part{{10, 20, 90, 70}, 46, 36, {0, 0, 46, 36}, false};
  const ChoosePart choose = [&](std::int64_t, std::int64_t) { return part; };
  const Image loose = decode_part(file_bytes(file), "x.jpg", 3, choose);
  // A grey image that need not be exact is the JPEG's luma.
  const Image loose_grey = decode_part(file_bytes(file), "x.jpg", 1, choose);
  part.exact = true;
  CHECK(decode_part(file_bytes(file), "x.jpg", 3, choose).pixels == loose.pixels);
  const Image grey = decode_part(file_bytes(file), "x.jpg", 1, choose);
  double difference = 0;
  for (std::size_t i = 0; i < grey.pixels.size(); ++i) {
    difference += std::abs(double{1} * grey.pixels[i] - loose_grey.pixels[i]);
  }
  CHECK(difference > 0);
  CHECK(difference < 2 * static_cast<double>(grey.pixels.size()));
}

using resize_rows::Vectors;

/// Resizes with plain loops and with all vector types of this processor.
std::vector<Bytes> resized_all_ways(const Image& image, const ResizeAxis& rows,
                                    const ResizeAxis& columns) {
  std::vector<Bytes> results;
  for (const Vectors vectors : {Vectors::none, Vectors::avx2, Vectors::vnni}) {
    if (vectors > resize_rows::best_vectors()) break;
    RowResizer resizer(rows, columns, image.channels, vectors);
    const PixelRange range = resizer.columns();
    for (std::int64_t y = resizer.rows().begin; y < resizer.rows().end; ++y) {
      const auto* row = image.pixels.data() + (y * image.width + range.begin) * image.channels;
      // A copy of the readable range: AddressSanitizer detects reads beyond it.
      Bytes copy(row, row + range.size() * image.channels);
      copy.resize(copy.size() + static_cast<std::size_t>(resizer.bytes_beyond()), 0xee);
      resizer.add(copy.data(), 0, 1);
    }
    results.emplace_back(static_cast<std::size_t>(rows.count * columns.count * image.channels));
    resizer.write(std::as_writable_bytes(std::span(results.back())));
  }
  return results;
}

TEST_CASE("resizing in vectors gives the bits of plain loops") {
  if (resize_rows::best_vectors() == Vectors::none) {
    return testing::skip_test("this processor has no AVX2");
  }
  std::mt19937 random(2);
  const auto axis = [&](std::int64_t in) {
    ResizeAxis a{in, 0, static_cast<double>(in), between(random, 1, 70), 0, 0};
    if (random() % 2 != 0) {  // A box with an edge inside a pixel.
      a.begin = static_cast<double>(random() % 4) / 8;
      a.end -= static_cast<double>(random() % 4) / 8;
    }
    if (random() % 8 == 0) a.out = in;
    a.first = between(random, 0, a.out - 1);
    a.count = between(random, 1, a.out - a.first);
    return a;
  };
  int unequal = 0, all = 0;
  for (int i = 0; i < 1500; ++i) {
    const std::int64_t channels = std::array{1, 3, 1, 3, 2, 4}[random() % 6];
    const std::int64_t most = i % 10 == 0 ? 700 : 90;
    const std::int64_t height = between(random, 1, most), width = between(random, 1, most);
    Image image{height, width, channels,
                noise(static_cast<std::size_t>(height * width * channels))};
    // White gives the largest sums.
    if (i % 5 == 0) std::fill(image.pixels.begin(), image.pixels.end(), 255);
    const auto results = resized_all_ways(image, axis(height), axis(width));
    for (const Bytes& result : results) {
      unequal += result != results[0];
      if (i % 5 == 0) all += result != Bytes(result.size(), 255);
    }
  }
  CHECK(unequal == 0);
  CHECK(all == 0);
}

TEST_CASE("a window of a resized image") {
  std::mt19937 random(3);
  for (int i = 0; i < 300; ++i) {
    const std::int64_t height = between(random, 1, 60), width = between(random, 1, 60);
    const Image image{height, width, 3, noise(static_cast<std::size_t>(height * width * 3))};
    ImagePart part = random_part(random, height, width);
    const PixelBox window = part.window;
    part.window = {0, 0, part.height, part.width};
    const Image all = part_of(image, part);
    part.window = window;
    const Image found = part_of(image, part);
    REQUIRE(found.height == window.height);
    REQUIRE(found.width == window.width);
    for (std::int64_t y = 0; y < window.height; ++y) {
      const auto* expected = all.pixels.data() + ((window.top + y) * part.width + window.left) * 3;
      const auto* row = found.pixels.data() + y * window.width * 3;
      REQUIRE(std::equal(row, row + window.width * 3, expected));
    }
  }
}

TEST_CASE("an area of one colour may take any number of pixels a byte in arithmetic coding") {
  JpegStyle style;
  style.arithmetic = true;
  constexpr int kSide = 1000;
  const Bytes flat(std::size_t{kSide} * kSide * 3, 200);
  for (const bool progressive : {false, true}) {
    style.progressive = progressive;
    const Bytes file = jpeg(kSide, kSide, 3, flat, style);
    REQUIRE(file.size() < kSide);
    CHECK(decode_image(file_bytes(file), "x.jpg", 3).pixels == flat);
  }
}

TEST_CASE("arithmetic coding changes no pixel") {
  for (const bool progressive : {false, true}) {
    JpegStyle style;
    style.progressive = progressive;
    const Bytes pixels = picture(50, 40, 3);
    const Bytes huffman = jpeg(50, 40, 3, pixels, style);
    style.arithmetic = true;
    const Bytes arithmetic = jpeg(50, 40, 3, pixels, style);
    CHECK(arithmetic != huffman);
    CHECK(decode_image(file_bytes(arithmetic), "x.jpg", 3).pixels ==
          decode_image(file_bytes(huffman), "x.jpg", 3).pixels);
  }
}

TEST_CASE("a truncated JPEG is refused whatever part of it is asked for, or salvaged") {
  const Bytes good = jpeg(96, 128, 3, picture(96, 128, 3), {});
  const Bytes cut(good.begin(), good.begin() + static_cast<long>(good.size() / 2));
  Bytes without_end(good.begin(), good.end() - 2);
  ImagePart top{{0, 0, 16, 40}, 16, 40, {0, 0, 16, 40}};
  const ChoosePart choose = [&](std::int64_t, std::int64_t) { return top; };
  const auto decode = [&](const Bytes& file, bool salvage) {
    return decode_part(file_bytes(file), "x.jpg", 3, choose, {salvage});
  };
  const Image expected = decode(good, false);
  for (const Bytes& file : {cut, without_end}) {
    CHECK(error_of([&] { decode(file, false); }) ==
          "x.jpg: corrupt JPEG: Premature end of JPEG file");
    CHECK(decode(file, true).pixels == expected.pixels);
  }
  // Below the cut the image is grey.
  top = {{112, 0, 16, 96}, 16, 96, {0, 0, 16, 96}};
  CHECK(decode(cut, true).pixels == Bytes(16 * 96 * 3, 128));
  // Data outside of a part may be damaged.
  top = {{0, 0, 16, 40}, 16, 40, {0, 0, 16, 40}};
  Bytes damaged = good;
  std::fill(damaged.end() - 300, damaged.end() - 200, 0xff);
  CHECK(decode(damaged, false).pixels == expected.pixels);
  CHECK(error_of([&] {
          decode_image(file_bytes(damaged), "x.jpg", 3);
        }).starts_with("x.jpg: corrupt JPEG: "));
  // A progressive JPEG that is cut off in a table between two scans yields the scans before the
  // table.
  JpegStyle style;
  style.progressive = true;
  const Bytes scans = jpeg(96, 128, 3, picture(96, 128, 3), style);
  const auto is_table = [&](std::size_t i) { return scans[i] == 0xff && scans[i + 1] == 0xc4; };
  std::size_t table = scans.size() - 2;
  while (!is_table(table)) --table;
  top = {{0, 0, 128, 96}, 128, 96, {0, 0, 128, 96}};
  const auto up_to = [&](std::size_t bytes) {
    return decode({scans.begin(), scans.begin() + static_cast<long>(bytes)}, true).pixels;
  };
  const Bytes before = up_to(table);
  CHECK(before != decode(scans, false).pixels);
  CHECK(up_to(table + 1) == before);
  CHECK(up_to(table + 2) == before);
  CHECK(up_to(table + 9) == before);
  // Nothing can be salvaged from a file that ends before its pixels.
  const Bytes header(good.begin(), good.begin() + 100);
  CHECK(error_of([&] { decode(header, true); }).starts_with("x.jpg: corrupt JPEG: "));
}

Bytes from_base64(const std::string& text) {
  static const std::string kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  Bytes bytes;
  std::uint32_t word = 0;
  int bits = 0;
  for (const char c : text) {
    if (c == '=') break;
    word = word << 6 | static_cast<std::uint32_t>(kDigits.find(c));
    if ((bits += 6) < 8) continue;
    bits -= 8;
    bytes.push_back(static_cast<std::uint8_t>(word >> bits));
  }
  return bytes;
}

std::uint32_t crc_of(const Image& image) {
  return static_cast<std::uint32_t>(
      crc32(0, image.pixels.data(), static_cast<unsigned int>(image.pixels.size())));
}

TEST_CASE("unusual images, and parts of images, are read as Pillow reads them") {
  // Written by tests/golden/make_pictures.py.
  std::ifstream file(testing::source_dir() + "/tests/golden/pictures.json");
  REQUIRE(file);
  const nlohmann::json cases = nlohmann::json::parse(file);
  CHECK(cases.size() > 30);
  for (const nlohmann::json& each : cases) {
    const std::string name = each.at("name");
    CAPTURE(name);
    const Bytes image_file = from_base64(each.at("file"));
    const DecodeOptions options{each.value("salvage", false)};
    if (options.salvage) {
      CHECK(error_of([&] {
              decode_image(file_bytes(image_file), name, 3);
            }).find("corrupt JPEG: ") != std::string::npos);
    }
    if (!each.contains("parts")) {
      CHECK(crc_of(decode_image(file_bytes(image_file), name, 3, options)) == each.at("rgb"));
      CHECK(crc_of(decode_image(file_bytes(image_file), name, 1, options)) == each.at("grey"));
      continue;
    }
    for (const nlohmann::json& wanted : each.at("parts")) {
      const auto box = [&](const char* key) {
        const std::vector<std::int64_t> v = wanted.at(key);
        return PixelBox{v[0], v[1], v[2], v[3]};
      };
      const std::vector<std::int64_t> size = wanted.at("size");
      const ImagePart part{box("box"), size[0], size[1], box("window"), wanted.at("exact")};
      CAPTURE(text_of(part));
      CHECK(jpeg_eighths(part) == wanted.at("eighths"));
      const Image found = decode_part(file_bytes(image_file), name, 3,
                                      [&](std::int64_t, std::int64_t) { return part; });
      CHECK(crc_of(found) == wanted.at("crc"));
    }
  }
}

}  // namespace
}  // namespace dpt
