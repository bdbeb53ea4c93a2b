// Compares dpt's decoder of baseline JPEG files with libjpeg: equal bits, and the same verdict on
// faulty files.
#include "kernels/image/jpeg/baseline_jpeg.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <string>

#include "kernels/image/decode.h"
#include "kernels/image/decode_options.h"
#include "kernels/image/decoders.h"
#include "kernels/image/resize.h"
#include "tests/engine/data/encoded_images.h"
#include "tests/engine/data/support.h"
#include "tests/support/skip.h"
#include "tests/support/text.h"

namespace dpt {
namespace {

using namespace data_test;

/// Returns the pixels of a part, or the error message.
std::string outcome(const Bytes& file, std::int64_t channels, const ChoosePart& choose,
                    bool only_libjpeg) {
  DecodeOptions options;
  options.only_libjpeg = only_libjpeg;
  try {
    const Image image =
        decode_part(std::as_bytes(std::span(file)), "x.jpg", channels, choose, options);
    return {image.pixels.begin(), image.pixels.end()};
  } catch (const Error& error) {
    return error.what();
  }
}

ChoosePart whole() {
  return [](std::int64_t height, std::int64_t width) {
    return whole_image(height, width, height, width);
  };
}

/// Returns true if dpt's own decoder accepts the whole file.
bool is_taken(const Bytes& file) {
  jpeg_decompress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_decompress(&info);
  jpeg_mem_src(&info, file.data(), file.size());
  jpeg_read_header(&info, TRUE);
  BaselineJpeg baseline(info, 8, {0, info.image_height}, {0, info.image_width}, false);
  const bool taken = baseline.decode();
  jpeg_destroy_decompress(&info);
  return taken;
}

/// Returns noise with areas of one colour, so that blocks of all kinds occur.
Bytes mixed_image(std::mt19937& random, int width, int height, int channels) {
  Bytes pixels(static_cast<std::size_t>(width * height * channels));
  const unsigned int strength = random() % 256;
  for (std::size_t i = 0; i < pixels.size(); ++i) {
    const std::size_t area = i / 40 / static_cast<std::size_t>(channels) % 3;
    const auto noise = static_cast<unsigned int>(random() % (strength + 1));
    pixels[i] = static_cast<std::uint8_t>(area == 0 ? 90 : area == 1 ? 90 + noise / 2 : noise);
  }
  return pixels;
}

/// Returns a random part, which may allow decoding at a reduced size.
ImagePart any_part(std::mt19937& random, std::int64_t height, std::int64_t width) {
  const auto up_to = [&](std::int64_t most) {
    return 1 + static_cast<std::int64_t>(random()) % most;
  };
  ImagePart part;
  part.box.height = up_to(height);
  part.box.width = up_to(width);
  part.box.top = up_to(height - part.box.height + 1) - 1;
  part.box.left = up_to(width - part.box.width + 1) - 1;
  part.height = up_to(part.box.height);
  part.width = up_to(part.box.width);
  part.window = {0, 0, part.height, part.width};
  part.exact = random() % 3 == 0;
  return part;
}

TEST_CASE("baseline JPEGs decoded without libjpeg have its bits") {
  if (!jpeg_loops::are_available()) return testing::skip_test("this processor has no AVX2");
  std::mt19937 random(1);
  const int sampling[][2] = {{1, 1}, {2, 1}, {2, 2}};
  int unequal = 0, not_taken = 0;
  for (int i = 0; i < 600; ++i) {
    const int* factors = sampling[random() % 3];
    const int across = factors[0], down = factors[1];
    const int channels = random() % 4 == 0 ? 1 : 3;
    // The image is wider than 4 pixels; otherwise colours are not interpolated.
    const int width = 5 + static_cast<int>(random() % 150);
    const int height = 1 + static_cast<int>(random() % 150);
    JpegStyle style{across, down, false, false, 0, 1 + static_cast<int>(random() % 100)};
    if (channels == 1) style.across = style.down = 2;
    const Bytes file =
        jpeg(width, height, channels, mixed_image(random, width, height, channels), style);
    CAPTURE(fmt::format("{}x{}, {} channels, sampled {}x{}, quality {}", width, height, channels,
                        across, down, style.quality));
    not_taken += !is_taken(file);
    for (const std::int64_t wanted : {1, 3}) {
      unequal += outcome(file, wanted, whole(), false) != outcome(file, wanted, whole(), true);
      const ImagePart part = any_part(random, height, width);
      const ChoosePart choose = [&](std::int64_t, std::int64_t) { return part; };
      unequal += outcome(file, wanted, choose, false) != outcome(file, wanted, choose, true);
    }
    if (unequal > 0) break;
  }
  CHECK(unequal == 0);
  CHECK(not_taken == 0);
}

TEST_CASE("baseline JPEGs at reduced sizes have libjpeg's bits") {
  if (!jpeg_loops::are_available()) return testing::skip_test("this processor has no AVX2");
  std::mt19937 random(4);
  const int sampling[][2] = {{1, 1}, {2, 1}, {2, 2}};
  int unequal = 0, reduced[9] = {};
  for (int i = 0; i < 300; ++i) {
    const int* factors = sampling[random() % 3];
    const int channels = random() % 4 == 0 ? 1 : 3;
    const int width = 16 + static_cast<int>(random() % 200);
    const int height = 16 + static_cast<int>(random() % 200);
    const Bytes file =
        jpeg(width, height, channels, mixed_image(random, width, height, channels),
             {factors[0], factors[1], false, false, 0, 1 + static_cast<int>(random() % 100)});
    CAPTURE(fmt::format("{}x{}, {} channels, sampled {}x{}", width, height, channels, factors[0],
                        factors[1]));
    for (const std::int64_t wanted : {1, 3}) {
      ImagePart part;
      part.box.height =
          std::max<std::int64_t>(8, height - static_cast<std::int64_t>(random() % 40));
      part.box.width = std::max<std::int64_t>(8, width - static_cast<std::int64_t>(random() % 40));
      part.box.top = static_cast<std::int64_t>(random()) % (height - part.box.height + 1);
      part.box.left = static_cast<std::int64_t>(random()) % (width - part.box.width + 1);
      const std::int64_t by = 2 + static_cast<std::int64_t>(random() % 9);
      part.height = std::max<std::int64_t>(1, part.box.height / by);
      part.width = std::max<std::int64_t>(1, part.box.width / by);
      part.window = {0, 0, part.height, part.width};
      part.exact = false;
      ++reduced[jpeg_eighths(part)];
      const ChoosePart choose = [&](std::int64_t, std::int64_t) { return part; };
      unequal += outcome(file, wanted, choose, false) != outcome(file, wanted, choose, true);
    }
  }
  CHECK(unequal == 0);
  for (const int eighths : {1, 2, 4}) CHECK(reduced[eighths] > 50);
}

TEST_CASE("kinds of JPEG that are left to libjpeg") {
  if (!jpeg_loops::are_available()) return testing::skip_test("this processor has no AVX2");
  std::mt19937 random(2);
  const auto taken = [&](const JpegStyle& style, int width = 70) {
    return is_taken(jpeg(width, 50, 3, mixed_image(random, width, 50, 3), style));
  };
  CHECK(taken({}));
  JpegStyle style;
  style.progressive = true;
  CHECK_FALSE(taken(style));
  style = {};
  style.arithmetic = true;
  CHECK_FALSE(taken(style));
  style = {};
  style.restart = 3;
  CHECK_FALSE(taken(style));
  for (const auto& [across, down] : {std::pair{1, 2}, {4, 1}, {4, 2}}) {
    style = {};
    style.across = across;
    style.down = down;
    CHECK_FALSE(taken(style));
  }
  CHECK_FALSE(taken({}, 4));
}

TEST_CASE("faulty baseline JPEGs end as they do with libjpeg") {
  if (!jpeg_loops::are_available()) return testing::skip_test("this processor has no AVX2");
  std::mt19937 random(3);
  const int sampling[][2] = {{1, 1}, {2, 1}, {2, 2}};
  int unequal = 0, refused = 0, other_pixels = 0;
  for (int i = 0; i < 60; ++i) {
    const int across = sampling[i % 3][0], down = sampling[i % 3][1];
    const int width = 20 + static_cast<int>(random() % 60);
    const int height = 20 + static_cast<int>(random() % 60);
    const int channels = i % 5 == 0 ? 1 : 3;
    const Bytes good = jpeg(width, height, channels, mixed_image(random, width, height, channels),
                            {across, down, false, false, 0, 30 + 10 * (i % 7)});
    const std::string expected = outcome(good, 3, whole(), true);
    for (int fault = 0; fault < 80; ++fault) {
      Bytes file = good;
      // Faults are anywhere, including the tables; half of them are among the pixels.
      const std::size_t first = fault % 2 == 0 ? 2 : file.size() - file.size() / 3;
      const std::size_t at = first + random() % (file.size() - first);
      switch (random() % 5) {
        case 0:
          file[at] = static_cast<std::uint8_t>(file[at] ^ 1U << random() % 8);
          break;
        case 1:
          file[at] = static_cast<std::uint8_t>(random());
          break;
        case 2:
          file.erase(file.begin() + static_cast<long>(at));
          break;
        case 3:
          file[at] = 0xfe;  // large quantisers and many codes, if it hits a table
          break;
        default:
          file.resize(at);
          break;
      }
      const std::string found = outcome(file, 3, whole(), false);
      const std::string of_libjpeg = outcome(file, 3, whole(), true);
      unequal += found != of_libjpeg;
      refused += of_libjpeg.starts_with("x.jpg: ");
      other_pixels += !of_libjpeg.starts_with("x.jpg: ") && of_libjpeg != expected;
      const ImagePart part = any_part(random, height, width);
      const ChoosePart choose = [&](std::int64_t, std::int64_t) { return part; };
      const std::int64_t wanted = random() % 3 == 0 ? 1 : 3;
      // The fault may have changed the size, so that the box is outside.
      if (found.starts_with("x.jpg: ") || found.size() != expected.size()) continue;
      unequal += outcome(file, wanted, choose, false) != outcome(file, wanted, choose, true);
    }
  }
  CHECK(unequal == 0);
  // All three outcomes occur.
  CHECK(refused > 500);
  CHECK(other_pixels > 500);
}

/// The DC and AC Huffman tables and the quantiser of a file from grey_file().
struct Tables {
  std::vector<std::pair<int, int>> dc_lengths, ac_lengths;  ///< length, number of codes
  Bytes dc_symbols, ac_symbols;
  int quantiser = 1;
};
Bytes grey_file(int height, const Tables& tables, const std::string& bits) {
  Bytes file = {0xff, 0xd8};
  const auto segment = [&](int marker, const Bytes& bytes) {
    const std::size_t length = bytes.size() + 2;
    for (const std::size_t byte :
         {std::size_t{0xff}, static_cast<std::size_t>(marker), length >> 8, length & 0xff}) {
      file.push_back(static_cast<std::uint8_t>(byte));
    }
    file.insert(file.end(), bytes.begin(), bytes.end());
  };
  Bytes quantisers = {0x10};
  for (int i = 0; i < 64; ++i) {
    quantisers.push_back(static_cast<std::uint8_t>(tables.quantiser >> 8));
    quantisers.push_back(static_cast<std::uint8_t>(tables.quantiser & 0xff));
  }
  segment(0xdb, quantisers);
  segment(0xc1, {8, static_cast<std::uint8_t>(height >> 8),
                 static_cast<std::uint8_t>(height & 0xff), 0, 8, 1, 1, 0x11, 0});
  const auto codes = [&](int kind, const std::vector<std::pair<int, int>>& lengths,
                         const Bytes& symbols) {
    Bytes bytes(17, 0);
    bytes[0] = static_cast<std::uint8_t>(kind);
    for (const auto& [length, count] : lengths) bytes[length] = static_cast<std::uint8_t>(count);
    bytes.insert(bytes.end(), symbols.begin(), symbols.end());
    segment(0xc4, bytes);
  };
  codes(0x00, tables.dc_lengths, tables.dc_symbols);
  codes(0x10, tables.ac_lengths, tables.ac_symbols);
  segment(0xda, {1, 1, 0, 0, 63, 0});
  std::string padded = bits;
  while (padded.size() % 8 != 0) padded += '1';
  for (std::size_t i = 0; i < padded.size(); i += 8) {
    const int byte = std::stoi(padded.substr(i, 8), nullptr, 2);
    file.push_back(static_cast<std::uint8_t>(byte));
    if (byte == 0xff) file.push_back(0);
  }
  file.insert(file.end(), {0xff, 0xd9});
  return file;
}

TEST_CASE("JPEGs with numbers that no real image has") {
  if (!jpeg_loops::are_available()) return testing::skip_test("this processor has no AVX2");
  const auto check_equal = [](const Bytes& file, const ChoosePart& choose) {
    const std::string expected = outcome(file, 1, choose, true);
    CHECK(outcome(file, 1, choose, false) == expected);
    return expected;
  };
  // A valid block: its mean is 0, and it has no other coefficients.
  const Tables plain{{{1, 1}}, {{1, 1}}, {0}, {0}, 1};
  CHECK(is_taken(grey_file(8, plain, "00")));
  check_equal(grey_file(8, plain, "00"), whole());
  // A code that consists only of ones.
  Tables tables = plain;
  tables.dc_lengths = {{1, 2}};
  tables.dc_symbols = {0, 5};
  testing::check_contains(check_equal(grey_file(8, tables, "00"), whole()), "Bogus Huffman table");
  // libjpeg's first pass overflows if only the first row has a coefficient as large as this.
  tables = plain;
  tables.quantiser = 16;
  tables.ac_lengths = {{1, 1}, {2, 1}};
  tables.ac_symbols = {0, 10};
  check_equal(grey_file(8, tables,
                        "0"
                        "10"
                        "1111111111"
                        "0"),
              whole());
  // The mean exceeds 16 bits in rows that are skipped.
  tables = plain;
  tables.quantiser = 65535;
  tables.dc_lengths = {{1, 1}, {2, 1}};
  tables.dc_symbols = {11, 0};
  std::string bits;
  for (int block = 0; block < 40; ++block)
    bits += block < 17 ? "0"
                         "11111111111"
                         "0"
                       : "10"
                         "0";
  const ChoosePart below = [](std::int64_t, std::int64_t) {
    return ImagePart{{200, 0, 100, 8}, 100, 8, {0, 0, 100, 8}};
  };
  check_equal(grey_file(320, tables, bits), below);
}

}  // namespace
}  // namespace dpt
