// JPEG through libjpeg-turbo. The library reports errors by a callback that must not return, so
// each step that can fail runs in a function that sets a jump target and holds nothing with a
// destructor.
#include <cstdio>

#include <jpeglib.h>

#include <jerror.h>

#include <algorithm>
#include <csetjmp>

#include "datasets/image.h"
#include "kernels/error.h"

namespace dpt {
namespace {

/// One grey block takes two bits at least, or half a bit of a progressive scan.
constexpr std::int64_t kMostJpegPixelsPerByte = 1024;
/// More scans than any encoder makes only burn time.
constexpr int kMostScans = 256;

struct JpegDecoder {
  jpeg_decompress_struct info{};
  jpeg_error_mgr errors{};
  jpeg_progress_mgr progress{};
  std::jmp_buf on_failure;
  char text[JMSG_LENGTH_MAX] = "";

  JpegDecoder() = default;
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;
  ~JpegDecoder() { jpeg_destroy_decompress(&info); }
};

JpegDecoder& decoder_of(j_common_ptr info) {
  return *static_cast<JpegDecoder*>(info->client_data);
}

[[noreturn]] void leave(j_common_ptr info) {
  JpegDecoder& decoder = decoder_of(info);
  info->err->format_message(info, decoder.text);
  std::longjmp(decoder.on_failure, 1);
}

/// libjpeg calls damaged data a warning and goes on with grey; here it is an error. What real
/// cameras write between the markers is none.
void on_message(j_common_ptr info, int level) {
  const int code = info->err->msg_code;
  if (level < 0 && code != JWRN_EXTRANEOUS_DATA && code != JWRN_JFIF_MAJOR) leave(info);
}

void count_scans(j_common_ptr info) {
  if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number <= kMostScans) return;
  JpegDecoder& decoder = decoder_of(info);
  std::snprintf(decoder.text, sizeof decoder.text, "more than %d scans", kMostScans);
  std::longjmp(decoder.on_failure, 1);
}

/// Reads the header; false, with decoder.text, when that fails.
bool read_header(JpegDecoder& decoder, const unsigned char* file, unsigned long bytes) {
  jpeg_decompress_struct& info = decoder.info;
  info.err = jpeg_std_error(&decoder.errors);
  decoder.errors.error_exit = leave;
  decoder.errors.emit_message = on_message;
  info.client_data = &decoder;
  if (setjmp(decoder.on_failure)) return false;
  jpeg_create_decompress(&info);
  info.client_data = &decoder;
  decoder.progress.progress_monitor = count_scans;
  info.progress = &decoder.progress;
  jpeg_mem_src(&info, file, bytes);
  jpeg_read_header(&info, TRUE);
  return true;
}

/// Decodes to `pixels`, rows of `stride` bytes; false, with decoder.text, when that fails.
bool read_pixels(JpegDecoder& decoder, unsigned char* pixels, std::size_t stride) {
  jpeg_decompress_struct& info = decoder.info;
  if (setjmp(decoder.on_failure)) return false;
  jpeg_start_decompress(&info);
  while (info.output_scanline < info.output_height) {
    JSAMPROW row = pixels + info.output_scanline * stride;
    jpeg_read_scanlines(&info, &row, 1);
  }
  jpeg_finish_decompress(&info);
  return true;
}

}  // namespace

Image decode_jpeg(std::span<const std::byte> file, const std::string& name, std::int64_t channels) {
  JpegDecoder decoder;
  const auto* bytes = reinterpret_cast<const unsigned char*>(file.data());
  if (!read_header(decoder, bytes, file.size())) {
    fail(ErrorKind::data, "{}: corrupt JPEG: {}", name, decoder.text);
  }
  jpeg_decompress_struct& info = decoder.info;
  check_image_size(name, info.image_width, info.image_height,
                   std::max<std::int64_t>(info.num_components, channels), file.size(),
                   kMostJpegPixelsPerByte);
  if (info.jpeg_color_space == JCS_CMYK || info.jpeg_color_space == JCS_YCCK) {
    fail(ErrorKind::data, "{}: a CMYK JPEG; only grey and RGB are supported: convert it", name);
  }
  info.out_color_space = channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
  Image image{info.image_height, info.image_width, channels, {}};
  const auto stride = static_cast<std::size_t>(image.width * channels);
  image.pixels.resize(stride * static_cast<std::size_t>(image.height));
  if (!read_pixels(decoder, image.pixels.data(), stride)) {
    fail(ErrorKind::data, "{}: corrupt JPEG: {}", name, decoder.text);
  }
  return image;
}

}  // namespace dpt
