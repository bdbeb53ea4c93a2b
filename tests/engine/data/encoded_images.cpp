#include "tests/engine/data/encoded_images.h"

#include <cstdio>

#include <jpeglib.h>
#include <png.h>
#include <zlib.h>

#include <cstdlib>
#include <functional>

namespace dpt::data_test {
namespace {

void append(png_structp png, png_bytep bytes, std::size_t count) {
  auto& out = *static_cast<Bytes*>(png_get_io_ptr(png));
  out.insert(out.end(), bytes, bytes + count);
}

/// Writes rows of `stride` bytes; `set` may add chunks between header and pixels.
Bytes write_png(std::uint32_t width, std::uint32_t height, int depth, int type, bool interlaced,
                const Bytes& pixels, const std::function<void(png_structp, png_infop)>& set = {}) {
  Bytes out;
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  png_set_write_fn(png, &out, append, nullptr);
  png_set_IHDR(png, info, width, height, depth, type,
               interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
               PNG_FILTER_TYPE_DEFAULT);
  if (set) set(png, info);
  png_write_info(png, info);
  std::vector<png_bytep> rows;
  const std::size_t stride = pixels.size() / height;
  for (std::size_t y = 0; y < height; ++y) {
    rows.push_back(const_cast<png_bytep>(pixels.data() + y * stride));
  }
  png_write_image(png, rows.data());
  png_write_end(png, nullptr);
  png_destroy_write_struct(&png, &info);
  return out;
}

}  // namespace

Bytes png(std::uint32_t width, std::uint32_t height, int channels, const Bytes& pixels) {
  return write_png(width, height, 8, channels == 1 ? PNG_COLOR_TYPE_GRAY : PNG_COLOR_TYPE_RGB,
                   false, pixels);
}

Bytes odd_png_pixels() {
  Bytes out;
  for (int i = 0; i < 64; ++i) out.insert(out.end(), 3, (i / 8 + i % 8) % 2 ? 0 : 255);
  return out;
}

Bytes odd_png(PngKind kind) {
  const Bytes rgb = odd_png_pixels();
  const auto is_white = [&](std::size_t i) { return rgb[3 * i] == 255; };
  const auto set_palette = [](png_structp png, png_infop info) {
    const png_color colours[] = {{0, 0, 0}, {255, 255, 255}};
    png_set_PLTE(png, info, colours, 2);
  };
  Bytes pixels;
  switch (kind) {
    case PngKind::interlaced:
      return write_png(8, 8, 8, PNG_COLOR_TYPE_RGB, true, rgb);
    case PngKind::deep:
      for (const std::uint8_t v : rgb) pixels.insert(pixels.end(), 2, v);
      return write_png(8, 8, 16, PNG_COLOR_TYPE_RGB, false, pixels);
    case PngKind::alpha:
      for (std::size_t i = 0; i < 64; ++i) {
        pixels.insert(pixels.end(), 3, rgb[3 * i]);
        pixels.push_back(static_cast<std::uint8_t>(i));
      }
      return write_png(8, 8, 8, PNG_COLOR_TYPE_RGB_ALPHA, false, pixels);
    case PngKind::bits:
      for (int y = 0; y < 8; ++y) pixels.push_back(y % 2 ? 0x55 : 0xaa);
      return write_png(8, 8, 1, PNG_COLOR_TYPE_GRAY, false, pixels);
    case PngKind::palette:
    case PngKind::transparent_palette:
      break;
  }
  for (std::size_t i = 0; i < 64; ++i) pixels.push_back(is_white(i));
  return write_png(8, 8, 8, PNG_COLOR_TYPE_PALETTE, false, pixels,
                   [&](png_structp png, png_infop info) {
                     set_palette(png, info);
                     const png_byte alpha[] = {128, 7};
                     if (kind == PngKind::transparent_palette) {
                       png_set_tRNS(png, info, alpha, 2, nullptr);
                     }
                   });
}

Bytes png_header(std::uint32_t width, std::uint32_t height) {
  Bytes file = png(4, 4, 1, noise(16));
  const auto put = [&](std::size_t at, std::uint32_t value) {
    for (std::size_t i = 0; i < 4; ++i) {
      file[at + i] = static_cast<std::uint8_t>(value >> (24 - 8 * i));
    }
  };
  // The file begins with a signature of 8 bytes, a length of 4 bytes, "IHDR" with its 13 bytes, and
  // their checksum.
  put(16, width);
  put(20, height);
  put(29, static_cast<std::uint32_t>(crc32(0, file.data() + 12, 17)));
  return file;
}

namespace {

/// Encodes a JPEG. Calls `set_up` before the first row.
template <class SetUp>
Bytes jpeg_with(int width, int height, int channels, const Bytes& pixels, SetUp set_up) {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* memory = nullptr;
  unsigned long bytes = 0;
  jpeg_mem_dest(&info, &memory, &bytes);
  info.image_width = static_cast<JDIMENSION>(width);
  info.image_height = static_cast<JDIMENSION>(height);
  info.input_components = channels;
  info.in_color_space = channels == 1 ? JCS_GRAYSCALE : channels == 3 ? JCS_RGB : JCS_CMYK;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, 95, TRUE);
  set_up(info);
  jpeg_start_compress(&info, TRUE);
  while (info.next_scanline < info.image_height) {
    auto* row =
        const_cast<JSAMPROW>(pixels.data()) +
        static_cast<std::size_t>(info.next_scanline) * static_cast<std::size_t>(width * channels);
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  Bytes out(memory, memory + bytes);
  jpeg_destroy_compress(&info);
  std::free(memory);
  return out;
}

}  // namespace

Bytes jpeg(int width, int height, int channels, const Bytes& pixels) {
  return jpeg_with(width, height, channels, pixels, [](jpeg_compress_struct&) {});
}

Bytes jpeg(int width, int height, int channels, const Bytes& pixels, const JpegStyle& style) {
  return jpeg_with(width, height, channels, pixels, [&](jpeg_compress_struct& info) {
    jpeg_set_quality(&info, style.quality, TRUE);
    info.comp_info[0].h_samp_factor = channels == 3 ? style.across : 1;
    info.comp_info[0].v_samp_factor = channels == 3 ? style.down : 1;
    info.arith_code = style.arithmetic;
    info.restart_interval = static_cast<unsigned int>(style.restart);
    if (style.progressive) jpeg_simple_progression(&info);
  });
}

void set_orientation(Bytes& jpeg, int orientation) {
  using namespace std::string_literals;
  Bytes segment;
  for (const char c :
       "\xff\xe1\0\x22"
       "Exif\0\0"s +
           "II*\0\x08\0\0\0"s + "\1\0\x12\1\3\0\1\0\0\0"s) {
    segment.push_back(static_cast<std::uint8_t>(c));
  }
  segment.push_back(static_cast<std::uint8_t>(orientation));
  segment.resize(segment.size() + 7);
  jpeg.insert(jpeg.begin() + 2, segment.begin(), segment.end());
}

Bytes jpeg_of_scans(int scans, const Bytes& pixels) {
  // Progressive: the mean first, then each frequency separately, bit by bit.
  std::vector<jpeg_scan_info> all;
  const auto add = [&](int frequency, int high, int low) {
    if (static_cast<int>(all.size()) < scans) {
      all.push_back({1, {0}, frequency, frequency, high, low});
    }
  };
  add(0, 0, 0);
  for (int low = 5; low >= 0; --low) {
    for (int frequency = 1; frequency < 64; ++frequency) {
      add(frequency, low == 5 ? 0 : low + 1, low);
    }
  }
  REQUIRE(static_cast<int>(all.size()) == scans);
  return jpeg_with(8, 8, 1, pixels, [&](jpeg_compress_struct& info) {
    info.scan_info = all.data();
    info.num_scans = scans;
  });
}

void set_jpeg_size(Bytes& file, int width, int height) {
  for (std::size_t i = 0; i + 8 < file.size(); ++i) {
    if (file[i] != 0xff || file[i + 1] != 0xc0) continue;
    file[i + 5] = static_cast<std::uint8_t>(height >> 8);
    file[i + 6] = static_cast<std::uint8_t>(height);
    file[i + 7] = static_cast<std::uint8_t>(width >> 8);
    file[i + 8] = static_cast<std::uint8_t>(width);
    return;
  }
  FAIL("no frame header");
}

}  // namespace dpt::data_test
