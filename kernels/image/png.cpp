// PNG through libpng. As in jpeg.cpp, each step that can fail runs in a function that sets a jump
// target and holds nothing with a destructor.
#include <png.h>

#include <bit>
#include <csetjmp>
#include <cstdio>
#include <cstring>

#include "kernels/base/error.h"
#include "kernels/base/types.h"
#include "kernels/image/decoders.h"
#include "kernels/image/pixels.h"

namespace dpt {
namespace {

/// Limit, because Deflate expands data at most 1032-fold, and a byte may hold eight pixels.
constexpr std::int64_t kMaxPngPixelsPerByte = 1032 * 8;

struct PngDecoder {
  png_structp png = nullptr;
  png_infop info = nullptr;
  std::span<const std::byte> rest;
  std::jmp_buf on_failure;
  char text[256] = "";

  PngDecoder() = default;
  PngDecoder(const PngDecoder&) = delete;
  PngDecoder& operator=(const PngDecoder&) = delete;
  ~PngDecoder() { png_destroy_read_struct(&png, &info, nullptr); }
};

[[noreturn]] void leave(PngDecoder& decoder, const char* text) {
  std::snprintf(decoder.text, sizeof decoder.text, "%s", text);
  std::longjmp(decoder.on_failure, 1);
}

void on_error(png_structp png, png_const_charp text) {
  leave(*static_cast<PngDecoder*>(png_get_error_ptr(png)), text);
}

void on_warning(png_structp, png_const_charp) {}

void take(png_structp png, png_bytep to, std::size_t bytes) {
  PngDecoder& decoder = *static_cast<PngDecoder*>(png_get_io_ptr(png));
  if (bytes > decoder.rest.size()) leave(decoder, "the file ends too early");
  std::memcpy(to, decoder.rest.data(), bytes);
  decoder.rest = decoder.rest.subspan(bytes);
}

/// Reads up to the first pixel. On failure, returns false and sets decoder.text.
bool read_header(PngDecoder& decoder) {
  if (setjmp(decoder.on_failure)) return false;
  decoder.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &decoder, on_error, on_warning);
  if (decoder.png) decoder.info = png_create_info_struct(decoder.png);
  if (!decoder.info) leave(decoder, "libpng cannot start");
  // check_image_size checks the dimensions. Text and profiles are not needed.
  png_set_user_limits(decoder.png, 0x7fffffff, 0x7fffffff);
  png_set_chunk_cache_max(decoder.png, 64);
  png_set_chunk_malloc_max(decoder.png, 8 << 20);
  png_set_read_fn(decoder.png, &decoder, take);
  png_read_info(decoder.png, decoder.info);
  return true;
}

/// Requests the upper 8 bits without transparency: 1 or 3 channels.
bool set_conversion(PngDecoder& decoder) {
  if (setjmp(decoder.on_failure)) return false;
  png_set_expand(decoder.png);
  png_set_strip_16(decoder.png);
  png_set_strip_alpha(decoder.png);
  png_set_interlace_handling(decoder.png);
  png_read_update_info(decoder.png, decoder.info);
  return true;
}

/// Requests all 16 bits, in the byte order of the file, without transparency.
bool set_deep_conversion(PngDecoder& decoder) {
  if (setjmp(decoder.on_failure)) return false;
  png_set_strip_alpha(decoder.png);
  png_set_interlace_handling(decoder.png);
  png_read_update_info(decoder.png, decoder.info);
  return true;
}

bool read_pixels(PngDecoder& decoder, png_bytepp rows) {
  if (setjmp(decoder.on_failure)) return false;
  png_read_image(decoder.png, rows);
  png_read_end(decoder.png, nullptr);
  return true;
}

[[noreturn]] void fail_corrupt(const PngDecoder& decoder, const std::string& name) {
  fail(ErrorKind::data, "{}: corrupt PNG: {}", name, decoder.text);
}

/// Reads the header and returns its height and width.
Size2 open_png(PngDecoder& decoder, std::span<const std::byte> file, const std::string& name) {
  decoder.rest = file;
  if (!read_header(decoder)) fail_corrupt(decoder, name);
  const Size2 size{png_get_image_height(decoder.png, decoder.info),
                   png_get_image_width(decoder.png, decoder.info)};
  check_image_size(name, size.w, size.h, 4, file.size(), kMaxPngPixelsPerByte);
  return size;
}

/// Reads the pixels into rows of the decoder's size.
std::vector<std::uint8_t> read_png_rows(PngDecoder& decoder, const std::string& name,
                                        std::int64_t height) {
  const std::size_t stride = png_get_rowbytes(decoder.png, decoder.info);
  std::vector<std::uint8_t> bytes(stride * static_cast<std::size_t>(height));
  std::vector<png_bytep> rows;
  for (std::int64_t y = 0; y < height; ++y) {
    rows.push_back(bytes.data() + static_cast<std::size_t>(y) * stride);
  }
  if (!read_pixels(decoder, rows.data())) fail_corrupt(decoder, name);
  return bytes;
}

}  // namespace

int png_used_bits(std::span<const std::byte> file, const std::string& name) {
  PngDecoder decoder;
  const Size2 size = open_png(decoder, file, name);
  if (png_get_bit_depth(decoder.png, decoder.info) != 16) return 0;
  if (!set_deep_conversion(decoder)) fail_corrupt(decoder, name);
  const std::vector<std::uint8_t> bytes = read_png_rows(decoder, name, size.h);
  unsigned all = 0;
  for (std::size_t i = 0; i + 1 < bytes.size(); i += 2) {
    all |= static_cast<unsigned>(bytes[i]) << 8 | bytes[i + 1];
  }
  return std::bit_width(all);
}

Image decode_png(std::span<const std::byte> file, const std::string& name, std::int64_t channels) {
  PngDecoder decoder;
  const Size2 size = open_png(decoder, file, name);
  if (!set_conversion(decoder)) fail_corrupt(decoder, name);
  Image image{size.h, size.w, png_get_channels(decoder.png, decoder.info), {}};
  const std::size_t stride = png_get_rowbytes(decoder.png, decoder.info);
  if ((image.channels != 1 && image.channels != 3) ||
      stride != static_cast<std::size_t>(size.w * image.channels)) {
    fail(ErrorKind::data, "{}: expected a grey or RGB PNG, found {} channels", name,
         image.channels);
  }
  image.pixels = read_png_rows(decoder, name, size.h);
  return converted(std::move(image), channels);
}

}  // namespace dpt
