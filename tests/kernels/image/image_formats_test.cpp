// WebP, BMP, GIF, TIFF and PNM: pixels equal Pillow's, and damaged files are refused.
#include <fcntl.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>

#include "kernels/image/decode.h"
#include "kernels/image/decode_options.h"
#include "kernels/image/image_formats.h"
#include "kernels/image/resize.h"
#include "tests/engine/data/golden_images.h"
#include "tests/engine/data/support.h"
#include "tests/support/text.h"

namespace dpt {
namespace {

using namespace data_test;

Image decode_golden(const Bytes& file, std::int64_t channels) {
  return decode_image(std::as_bytes(std::span(file)), "x.img", channels);
}

/// Returns the error for a file; empty if it can be read.
std::string golden_error(const Bytes& file, std::int64_t channels = 3) {
  try {
    decode_golden(file, channels);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::data);
    return error.what();
  }
  return {};
}

TEST_CASE("images of all formats have Pillow's pixels") {
  std::map<std::string, int> counts;
  for (const GoldenImage& each : golden_images()) {
    CAPTURE(each.name);
    ++counts[each.format()];
    for (const std::int64_t channels : {1, 3}) {
      CAPTURE(channels);
      const Image image = decode_golden(each.file, channels);
      CHECK(image.height == each.height);
      CHECK(image.width == each.width);
      CHECK(image.channels == channels);
      CHECK(image.pixels == (channels == 1 ? each.grey : each.rgb));
    }
  }
  CHECK(counts == std::map<std::string, int>{
                      {"BMP", 13}, {"GIF", 9}, {"PNM", 18}, {"TIFF", 50}, {"WEBP", 5}});
}

TEST_CASE("a part of an image of another format is that of the whole") {
  for (const GoldenImage& each : golden_images()) {
    if (each.height < 4 || each.width < 4) continue;
    CAPTURE(each.name);
    const ImagePart part{{1, 1, 3, 2}, 6, 8, {1, 2, 4, 5}};
    const Image found = decode_part(
        std::as_bytes(std::span(each.file)), "x", 3,
        [&](std::int64_t, std::int64_t) { return part; }, DecodeOptions{});
    const Image whole{each.height, each.width, 3, each.rgb};
    CHECK(found.pixels == part_of(whole, part).pixels);
  }
}

TEST_CASE("truncated images of other formats are refused, or lack only what follows the pixels") {
  for (const GoldenImage& each : golden_images()) {
    CAPTURE(each.name);
    // The last number of a PNM text file may be truncated and still be valid.
    if (each.name.starts_with("PNM text")) continue;
    int read = 0;
    for (std::size_t cut = 1; cut < each.file.size(); cut += 1 + cut / 16) {
      CAPTURE(cut);
      const Bytes part(each.file.begin(), each.file.begin() + static_cast<std::ptrdiff_t>(cut));
      const std::string error = golden_error(part);
      if (!error.empty()) {
        CHECK(error.starts_with("x.img: "));
        continue;
      }
      ++read;
      CHECK(decode_golden(part, 3).pixels == each.rgb);
    }
    CHECK(read < 20);
  }
}

TEST_CASE("reasons for which an image of another format is refused") {
  const auto named = [](const std::string& text, const std::string& expected) {
    CHECK(golden_error(Bytes(text.begin(), text.end())) == "x.img: " + expected);
  };
  named("P5 3 3 255\n1234", "corrupt PNM: the file ends too early");
  named("P2 2 1 9 3 12 ", "corrupt PNM: found a value of 12, above the maximum of 9");
  named("P2 2 1 70000 3 1 ", "corrupt PNM: expected a maximum value from 1 to 65535, found 70000");
  named("P2 x", "corrupt PNM: expected a number");
  named("P1 2 1 0 2", "corrupt PNM: expected 0 or 1");
  named("P6 20000 1 255 ",
        "20000x1 pixels (width x height): dimensions out of range; expected at most 16384 per side "
        "and 256 MiB decoded");
  named("P6 999 999 255 ",
        "claims 999x999 pixels (width x height), more than a file of 15 bytes can hold");
  named("GIF89a", "corrupt GIF: No screen descriptor detected");
  Bytes bmp = golden_image("BMP 8 bits").file;
  const auto with = [&](std::size_t at, std::uint8_t value) {
    Bytes changed = bmp;
    changed[at] = value;
    return golden_error(changed);
  };
  CHECK(with(28, 5) == "x.img: unsupported BMP: 5 bits per pixel: convert it to PNG");
  CHECK(with(30, 4) == "x.img: unsupported BMP: compression 4: convert it to PNG");
  CHECK(testing::contains(with(20, 1), "dimensions out of range"));
  bmp.resize(bmp.size() - 1);
  CHECK(golden_error(bmp) == "x.img: corrupt BMP: the file ends too early");
  Bytes webp = golden_image("WEBP lossless").file;
  webp.resize(webp.size() / 2);
  CHECK(golden_error(webp) == "x.img: corrupt WebP: the file ends too early");
}

/// Runs `action` and returns its output on stderr.
template <class Action>
std::string written_to_stderr(const Action& action) {
  const TempDir dir;
  std::fflush(stderr);
  const int kept = dup(STDERR_FILENO);
  const int file = ::open((dir / "err").c_str(), O_CREAT | O_RDWR, 0600);
  REQUIRE(kept >= 0);
  REQUIRE(file >= 0);
  dup2(file, STDERR_FILENO);
  action();
  std::fflush(stderr);
  dup2(kept, STDERR_FILENO);
  close(kept);
  char text[200] = "";
  const ssize_t bytes = pread(file, text, sizeof text - 1, 0);
  close(file);
  return std::string(text, static_cast<std::size_t>(std::max<ssize_t>(bytes, 0)));
}

TEST_CASE("libtiff's warnings and errors do not go to stderr") {
  for (const char* name : {"TIFF big", "TIFF RGB, tiff_lzw", "TIFF YCbCr, jpeg"}) {
    CAPTURE(name);
    const Bytes good = golden_image(name).file;
    CHECK(written_to_stderr([&] {
            for (std::size_t at = 0; at < good.size(); at += 3) {
              Bytes bad = good;
              bad[at] ^= 0x41;
              golden_error(bad);
            }
          }).empty());
  }
}

TEST_CASE("the table of formats: extensions are in lower case and of one format each") {
  std::vector<std::string> all;
  for (const ImageFormat& format : image_formats()) {
    CHECK((format.decode != nullptr) == (format.converter == nullptr));
    for (const std::string extension : format.extensions) {
      CHECK(extension.starts_with('.'));
      CHECK(format_of_name("x" + extension) == &format);
      all.push_back(extension);
    }
  }
  std::sort(all.begin(), all.end());
  CHECK(std::adjacent_find(all.begin(), all.end()) == all.end());
  CHECK(format_of_name("x.WebP") == format_of_name("y.webp"));
  CHECK(format_of_name("webp") == nullptr);
  CHECK(!is_image_name("x.heic"));
}

}  // namespace
}  // namespace dpt
