// Decoding JPEG and PNG, resizing, and images that are refused.
#include <zlib.h>

#include <cmath>

#include "kernels/image/decode.h"
#include "kernels/image/decoders.h"
#include "kernels/image/encode_png.h"
#include "kernels/image/resize.h"
#include "tests/engine/data/encoded_images.h"
#include "tests/engine/data/support.h"
#include "tests/support/text.h"

namespace dpt {
namespace {

using namespace data_test;

std::span<const std::byte> as_bytes(const Bytes& bytes) {
  return std::as_bytes(std::span(bytes));
}

Image decode(const Bytes& file, std::int64_t channels) {
  return decode_image(as_bytes(file), "x.img", channels);
}

std::string decode_error(const Bytes& file, std::int64_t channels = 3) {
  return error_of([&] { decode(file, channels); });
}

Bytes resized(const Image& image, std::int64_t height, std::int64_t width) {
  Bytes out(static_cast<std::size_t>(height * width * image.channels));
  resize_bilinear(image, height, width, std::as_writable_bytes(std::span(out)));
  return out;
}

Image noise_image(std::int64_t h, std::int64_t w, std::int64_t c) {
  return {h, w, c, noise(static_cast<std::size_t>(h * w * c))};
}

std::uint32_t crc(const Bytes& bytes) {
  return static_cast<std::uint32_t>(
      crc32(0, bytes.data(), static_cast<unsigned int>(bytes.size())));
}

TEST_CASE("resizing gives Pillow's bytes") {
  // Computed with Pillow: Image.fromarray(noise).resize((w, h), Image.BILINEAR).
  CHECK(resized(noise_image(5, 7, 1), 3, 4) ==
        Bytes{134, 148, 85, 79, 90, 132, 117, 136, 50, 64, 79, 121});
  CHECK(resized(noise_image(4, 6, 3), 2, 2) ==
        Bytes{136, 72, 139, 100, 95, 99, 154, 97, 132, 115, 136, 103});
  CHECK(resized(noise_image(3, 3, 1), 5, 6) ==
        Bytes{220, 166, 58,  28, 77, 101, 200, 154, 61,  44, 101, 130, 170, 135, 66,
              67,  138, 173, 85, 80, 71,  100, 167, 200, 29, 44,  75,  122, 186, 218});
  CHECK(resized(noise_image(9, 4, 1), 9, 2) ==
        Bytes{110, 117, 92, 76, 216, 118, 56, 70, 134, 131, 145, 120, 39, 151, 19, 49, 109, 145});
  CHECK(resized(noise_image(9, 4, 1), 4, 4) ==
        Bytes{139, 121, 84, 107, 106, 138, 116, 66, 143, 38, 178, 99, 63, 44, 74, 156});
  CHECK(resized(noise_image(40, 30, 1), 3, 3) ==
        Bytes{131, 137, 130, 138, 132, 124, 136, 124, 123});
  CHECK(resized(noise_image(4, 6, 3), 4, 6) == noise(72));
  CHECK(crc(resized(noise_image(300, 200, 3), 32, 32)) == 0x63f15411);
  CHECK(crc(resized(noise_image(300, 200, 3), 333, 451)) == 0x5ae2898c);
}

TEST_CASE("PNG: grey and RGB, to grey and to RGB") {
  const Bytes rgb = noise(300 * 200 * 3);
  const Image colour = decode(png(200, 300, 3, rgb), 3);
  CHECK(colour.height == 300);
  CHECK(colour.width == 200);
  CHECK(colour.pixels == rgb);
  // Pillow's convert("L") of the same pixels.
  CHECK(crc(decode(png(200, 300, 3, rgb), 1).pixels) == 0xd0446b8d);
  const Bytes grey = {1, 2, 3, 4, 5, 6};
  CHECK(decode(png(3, 2, 1, grey), 1).pixels == grey);
  CHECK(decode(png(3, 2, 1, grey), 3).pixels ==
        Bytes{1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4, 5, 5, 5, 6, 6, 6});
}

TEST_CASE("PNG: encoded images are decoded") {
  for (const std::int64_t channels : {1, 3}) {
    Image image;
    image.height = 3;
    image.width = 5;
    image.channels = channels;
    for (std::int64_t i = 0; i < 15 * channels; ++i) {
      image.pixels.push_back(static_cast<std::uint8_t>(17 * i));
    }
    const std::vector<std::byte> file = encode_png(image);
    const Image back = decode_image(file, "x.png", channels);
    CHECK(back.height == 3);
    CHECK(back.width == 5);
    CHECK(back.pixels == image.pixels);
  }
}

TEST_CASE("PNG: palette, 16 bits, one bit, interlaced, transparency") {
  for (const PngKind kind : {PngKind::palette, PngKind::deep, PngKind::bits, PngKind::interlaced,
                             PngKind::alpha, PngKind::transparent_palette}) {
    CAPTURE(static_cast<int>(kind));
    const Image image = decode(odd_png(kind), 3);
    REQUIRE(image.pixels.size() == 8 * 8 * 3);
    CHECK(image.pixels == odd_png_pixels());
  }
}

TEST_CASE("JPEG: grey and RGB, to grey and to RGB") {
  Bytes smooth;
  for (int y = 0; y < 24; ++y) {
    for (int x = 0; x < 40; ++x) {
      smooth.push_back(static_cast<std::uint8_t>(40 + 5 * x));
      smooth.push_back(static_cast<std::uint8_t>(30 + 8 * y));
      smooth.push_back(static_cast<std::uint8_t>(200 - 3 * x));
    }
  }
  const Bytes file = jpeg(40, 24, 3, smooth);
  const Image colour = decode(file, 3);
  CHECK(colour.height == 24);
  CHECK(colour.width == 40);
  const Image grey = decode(file, 1);
  REQUIRE(grey.pixels.size() == 40 * 24);
  double worst = 0, worst_grey = 0;
  for (std::size_t p = 0; p < grey.pixels.size(); ++p) {
    double luma = 0;
    for (std::size_t c = 0; c < 3; ++c) {
      worst = std::max(worst, std::abs(double{1} * colour.pixels[3 * p + c] - smooth[3 * p + c]));
      luma += std::array{0.299, 0.587, 0.114}[c] * smooth[3 * p + c];
    }
    worst_grey = std::max(worst_grey, std::abs(luma - grey.pixels[p]));
  }
  CHECK(worst < 12);
  CHECK(worst_grey < 5);
  const Image from_grey = decode(jpeg(3, 2, 1, {10, 10, 10, 10, 10, 10}), 3);
  CHECK(from_grey.pixels == Bytes(18, 10));
}

TEST_CASE("files that are not images are refused") {
  CHECK(decode_error({}) == "x.img: the file is empty");
  CHECK(decode_error({1}) ==
        "x.img: expected an image (JPEG, PNG, WebP, BMP, GIF, TIFF or PNM), found a file of an "
        "unknown format: remove or convert it");
}

TEST_CASE("corrupt PNG files are refused") {
  const Bytes good = png(20, 20, 3, noise(1200));
  for (std::size_t cut = 8; cut < good.size(); cut += 13) {
    CHECK(decode_error(Bytes(good.begin(), good.begin() + static_cast<long>(cut))) ==
          "x.img: corrupt PNG: the file ends too early");
  }
  Bytes bad = good;
  bad[bad.size() / 2] ^= 0x10;
  CHECK(decode_error(bad).starts_with("x.img: corrupt PNG: IDAT: "));
  bad = good;
  bad[20] ^= 1;  // This is the width; its checksum no longer fits.
  CHECK(decode_error(bad) == "x.img: corrupt PNG: IHDR: CRC error");
}

TEST_CASE("corrupt JPEG files are refused") {
  const Bytes good = jpeg(32, 32, 3, noise(32 * 32 * 3));
  for (const double part : {0.3, 0.6, 0.9}) {
    const auto cut = static_cast<long>(static_cast<double>(good.size()) * part);
    CHECK(decode_error(Bytes(good.begin(), good.begin() + cut)) ==
          "x.img: corrupt JPEG: Premature end of JPEG file");
  }
  CHECK(decode_error({0xff, 0xd8, 0xff}) == "x.img: corrupt JPEG: Premature end of JPEG file");
  Bytes bad = good;
  for (std::size_t i = bad.size() * 2 / 3; i < bad.size() * 2 / 3 + 40; ++i) bad[i] = 0xff;
  CHECK(decode_error(bad).starts_with("x.img: corrupt JPEG: "));
}

TEST_CASE("a JPEG of a kind that is not read is not called corrupt") {
  Bytes twelve_bits = jpeg(32, 32, 3, noise(32 * 32 * 3));
  for (std::size_t i = 0; i + 4 < twelve_bits.size(); ++i) {
    if (twelve_bits[i] != 0xff || twelve_bits[i + 1] != 0xc0) continue;
    twelve_bits[i + 1] = 0xc1;
    twelve_bits[i + 4] = 12;
    break;
  }
  CHECK(decode_error(twelve_bits).starts_with("x.img: unsupported JPEG: "));
}

TEST_CASE("bytes that cameras write between a JPEG's markers are not damage, endless scans are") {
  const Bytes pixels(64, 100);
  const Bytes good = jpeg(8, 8, 1, pixels);
  REQUIRE(good[3] == 0xe0);
  // Changes the version in the first segment, then adds bytes before the next one.
  Bytes odd = good;
  odd[11] = 3;
  CHECK(decode(odd, 1).pixels == decode(good, 1).pixels);
  odd = good;
  odd.insert(odd.begin() + 4 + odd[5], {1, 2, 3});
  CHECK(decode(odd, 1).pixels == decode(good, 1).pixels);
  CHECK(decode(jpeg_of_scans(256, pixels), 1).pixels == decode(good, 1).pixels);
  CHECK(decode_error(jpeg_of_scans(257, pixels)) == "x.img: corrupt JPEG: more than 256 scans");
}

TEST_CASE("sizes of images at the borders of what is read") {
  const auto verdict = [](std::int64_t width, std::int64_t height, std::int64_t channels,
                          std::size_t file_bytes, std::int64_t ratio) -> std::string {
    try {
      check_image_size("x", width, height, channels, file_bytes, ratio);
    } catch (const Error& error) {
      const std::string text = error.what();
      return testing::contains(text, "dimensions out of range") ? "out of range"
             : testing::contains(text, "claims")                ? "claims"
                                                                : text;
    }
    return "good";
  };
  constexpr std::size_t kEnough = std::size_t{1} << 30;
  CHECK(verdict(1, 1, 1, 1, 1) == "good");
  CHECK(verdict(0, 1, 1, kEnough, 1) == "out of range");
  CHECK(verdict(1, 0, 1, kEnough, 1) == "out of range");
  CHECK(verdict(16384, 1, 1, kEnough, 1) == "good");
  CHECK(verdict(1, 16384, 1, kEnough, 1) == "good");
  CHECK(verdict(16385, 1, 1, kEnough, 1) == "out of range");
  CHECK(verdict(1, 16385, 1, kEnough, 1) == "out of range");
  CHECK(verdict(16384, 4096, 4, kEnough, 1) == "good");
  CHECK(verdict(16384, 4097, 4, kEnough, 1) == "out of range");
  CHECK(verdict(16384, 4096, 5, kEnough, 1) == "out of range");
  CHECK(verdict(10, 10, 1, 10, 10) == "good");
  CHECK(verdict(10, 10, 1, 9, 10) == "claims");
}

TEST_CASE("the most that files of each format can hold, and the memory of their pixels") {
  const auto verdict = [](const Bytes& file, std::int64_t channels) -> std::string {
    const std::string text = decode_error(file, channels);
    for (const char* each : {"dimensions out of range", "claims", "corrupt"}) {
      if (testing::contains(text, each)) return each;
    }
    return text;
  };
  // A byte of a JPEG encodes up to 1024 pixels, one of a PNG up to 8 * 1032.
  Bytes file = jpeg(16, 16, 3, noise(768));
  const auto jpeg_bytes = static_cast<int>(file.size());
  set_jpeg_size(file, 1024, jpeg_bytes);
  CHECK(verdict(file, 3) == "corrupt");
  set_jpeg_size(file, 1024, jpeg_bytes + 1);
  CHECK(verdict(file, 3) == "claims");
  const auto png_bytes = static_cast<std::uint32_t>(png_header(4, 4).size());
  CHECK(verdict(png_header(8256, png_bytes), 3) == "corrupt");
  CHECK(verdict(png_header(8256, png_bytes + 1), 3) == "claims");
  // A JPEG takes memory for its own channels or the requested ones, whichever are more; a PNG
  // always takes memory for four.
  set_jpeg_size(file, 16384, 8192);
  CHECK(verdict(file, 1) == "dimensions out of range");
  file = jpeg(8, 8, 1, Bytes(64, 100));
  set_jpeg_size(file, 16384, 8192);
  CHECK(verdict(file, 1) == "claims");
  CHECK(verdict(file, 3) == "dimensions out of range");
  CHECK(verdict(png_header(16384, 4096), 1) == "claims");
  CHECK(verdict(png_header(16384, 4097), 1) == "dimensions out of range");
}

TEST_CASE("decompression bombs are refused before memory is asked for") {
  CHECK(decode_error(png_header(20000, 10)) ==
        "x.img: 20000x10 pixels (width x height): dimensions out of range; expected at most 16384 "
        "per side and 256 MiB decoded");
  CHECK(decode_error(png_header(16384, 16384)) ==
        "x.img: 16384x16384 pixels (width x height): dimensions out of range; expected at most "
        "16384 per side and 256 MiB decoded");
  const Bytes small = png_header(8000, 8000);
  CHECK(decode_error(small) ==
        fmt::format("x.img: claims 8000x8000 pixels (width x height), more than a file of {} bytes "
                    "can hold",
                    small.size()));
  Bytes bad = jpeg(16, 16, 3, noise(768));
  set_jpeg_size(bad, 60000, 60000);
  CHECK(decode_error(bad) ==
        "x.img: 60000x60000 pixels (width x height): dimensions out of range; expected at most "
        "16384 per side and 256 MiB decoded");
  set_jpeg_size(bad, 9000, 9000);
  CHECK(decode_error(bad) ==
        fmt::format("x.img: claims 9000x9000 pixels (width x height), more than a file of {} bytes "
                    "can hold",
                    bad.size()));
}

}  // namespace
}  // namespace dpt
