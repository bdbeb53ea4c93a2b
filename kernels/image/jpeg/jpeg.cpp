// JPEG through libjpeg-turbo. Huffman decoding has to go through the file from its first row, but
// only what a part needs goes through the inverse DCT, upsampling and colour conversion. The
// library reports errors by a callback that must not return. Therefore each step that can fail runs
// in a function that sets a jump target and holds nothing with a destructor.
#include <cstdio>

#include <jpeglib.h>

#include <jerror.h>

#include <algorithm>
#include <cmath>
#include <csetjmp>
#include <cstring>
#include <utility>
#include <vector>

#include "kernels/base/error.h"
#include "kernels/image/decode_options.h"
#include "kernels/image/decoders.h"
#include "kernels/image/jpeg/baseline_jpeg.h"
#include "kernels/image/pixels.h"
#include "kernels/image/resize.h"
#include "kernels/image/turned_image.h"

#ifndef LIBJPEG_TURBO_VERSION
#error "libjpeg-turbo is needed (Debian, Ubuntu: libjpeg-dev): other libraries cannot decode a part"
#endif

namespace dpt {
namespace {

/// Limit, because a grey block takes at least two bits, or half a bit per progressive scan.
constexpr std::int64_t kMaxJpegPixelsPerByte = 1024;
/// Limit for arithmetic coding. It has no minimum number of bits, so only kMaxImageBytes limits
/// these images.
constexpr std::int64_t kMaxArithmeticPixelsPerByte = kMaxImageBytes;
/// Maximum number of scans. No encoder reaches it, and decoding more would only cost time.
constexpr int kMaxScans = 256;

struct JpegDecoder {
  jpeg_decompress_struct info{};
  jpeg_error_mgr errors{};
  jpeg_progress_mgr progress{};
  std::jmp_buf on_failure;
  bool salvage = false;
  bool is_unsupported = false;  ///< true for a file that seems intact but is of an unsupported kind
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
  const int code = info->err->msg_code;
  decoder.is_unsupported = code == JERR_BAD_PRECISION || code == JERR_SOF_UNSUPPORTED ||
                           code == JERR_ARITH_NOTIMPL || code == JERR_CONVERSION_NOTIMPL;
  std::longjmp(decoder.on_failure, 1);
}

/// Handles libjpeg's warnings about damaged data, which libjpeg fills with grey. Damage is an error
/// unless the image is to be salvaged. Two warnings are not errors: extra bytes, which cameras
/// write between markers, and an unknown version of JFIF.
void on_message(j_common_ptr info, int level) {
  const int code = info->err->msg_code;
  if (level < 0 && !decoder_of(info).salvage && code != JWRN_EXTRANEOUS_DATA &&
      code != JWRN_JFIF_MAJOR)
    leave(info);
}

void count_scans(j_common_ptr info) {
  if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number <= kMaxScans) return;
  JpegDecoder& decoder = decoder_of(info);
  std::snprintf(decoder.text, sizeof decoder.text, "more than %d scans", kMaxScans);
  std::longjmp(decoder.on_failure, 1);
}

/// Returns the file without a truncated segment between two scans. libjpeg would read no part of
/// such a segment.
std::span<const std::byte> without_torn_segment(std::span<const std::byte> file) {
  const auto at = [&](std::size_t i) { return std::to_integer<unsigned int>(file[i]); };
  for (std::size_t i = file.size() < 2 ? 0 : file.size() - 2; i > 0; --i) {
    const unsigned int marker = at(i + 1);
    // Skip stuffing, fill bytes and restart markers, because they occur within coded pixels.
    if (at(i) != 0xff || marker == 0 || marker == 0xff) continue;
    if (marker >= JPEG_RST0 && marker <= JPEG_RST0 + 7) continue;
    if (marker == JPEG_EOI) break;
    const std::size_t left = file.size() - i - 2;
    return left < 2 || left < (at(i + 2) << 8 | at(i + 3)) ? file.first(i) : file;
  }
  return file;
}

/// Reads the header. On failure, returns false and sets decoder.text.
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

/// Region to decode, in pixels of the image at its decoded size.
struct Region {
  PixelRange rows, columns;
};

/// Columns to read on both sides of a region, to upsample its colours.
constexpr std::int64_t kMargin = 4;
/// Minimum number of columns worth skipping: the columns of an MCU of 4:2:0.
constexpr std::int64_t kMinLeftOut = 16;

/// Returns true if a progressive image lacks bits of its low frequencies. libjpeg then smooths its
/// blocks, so they depend on neighbouring blocks, which must be decoded too.
bool smooths_blocks(const jpeg_decompress_struct& info) {
  if (!info.progressive_mode) return false;
  for (int component = 0; component < info.num_components; ++component) {
    const int* bits = info.coef_bits[component];
    if (std::any_of(bits, bits + 10, [](int missing) { return missing != 0; })) return true;
  }
  return false;
}

/// Prepares to read `region`. Sets `top` and `left` to the first row and column that will be read.
/// They may precede the region. On failure, returns false and sets decoder.text.
bool start(JpegDecoder& decoder, const Region& region, std::int64_t& top, std::int64_t& left) {
  jpeg_decompress_struct& info = decoder.info;
  top = left = 0;
  if (setjmp(decoder.on_failure)) return false;
  jpeg_start_decompress(&info);
  if (smooths_blocks(info)) return true;
  JDIMENSION first = 0;
  const std::int64_t width = info.output_width;
  if (region.columns.size() + 2 * kMargin + kMinLeftOut <= width) {
    const std::int64_t from = std::max<std::int64_t>(region.columns.begin - kMargin, 0);
    const std::int64_t to = std::min<std::int64_t>(region.columns.end + kMargin, width);
    first = static_cast<JDIMENSION>(from);
    auto count = static_cast<JDIMENSION>(to - from);
    // The crop starts at an MCU, so it may start before `first`, and is then wider by the
    // difference.
    jpeg_crop_scanline(&info, &first, &count);
  }
  left = first;
  if (region.rows.begin > 0) {
    jpeg_skip_scanlines(&info, static_cast<JDIMENSION>(region.rows.begin));
  }
  top = region.rows.begin;
  return true;
}

/// Number of rows decoded at a time. They stay in the first-level cache.
constexpr std::int64_t kRows = 8;

/// Reads `count` rows, at most kRows. On failure, returns false and sets decoder.text.
bool read_rows(JpegDecoder& decoder, unsigned char* to, std::size_t stride, std::int64_t count) {
  jpeg_decompress_struct& info = decoder.info;
  if (setjmp(decoder.on_failure)) return false;
  JSAMPROW rows[kRows];
  for (std::int64_t y = 0; y < count; ++y) rows[y] = to + static_cast<std::size_t>(y) * stride;
  for (JDIMENSION done = 0; done < count;) {
    done += jpeg_read_scanlines(&info, rows + done, static_cast<JDIMENSION>(count) - done);
  }
  return true;
}

/// Returns true if an end-of-image marker follows the decoded data. A file without one is
/// truncated. A search for the marker is safe, because coded pixels never contain its two bytes.
bool has_end(const jpeg_decompress_struct& info) {
  // The marker may already be read, because it comes right after the bits of the last block.
  if (info.unread_marker == JPEG_EOI) return true;
  const JOCTET* bytes = info.src->next_input_byte;
  for (std::size_t i = info.src->bytes_in_buffer; i >= 2; --i) {
    if (bytes[i - 1] == JPEG_EOI && bytes[i - 2] == 0xff) return true;
  }
  return false;
}

/// Checks the end of the file. The decoded rows do not depend on it. If it is damaged, returns
/// false and sets decoder.text.
bool finish(JpegDecoder& decoder) {
  jpeg_decompress_struct& info = decoder.info;
  if (setjmp(decoder.on_failure)) return false;
  if (info.output_scanline == info.output_height) {
    jpeg_finish_decompress(&info);
  } else if (!decoder.salvage && !jpeg_input_complete(&info) && !has_end(info)) {
    WARNMS(&info, JWRN_JPEG_EOF);
  }
  return true;
}

/// One axis of a part at `eighths` of the image's size. The decoded region starts at `origin`.
struct ScaledAxis {
  std::int64_t origin;
  ResizeAxis axis;
};

ScaledAxis scaled_axis(std::int64_t first, std::int64_t size, int eighths, std::int64_t out,
                       std::int64_t window_first, std::int64_t window_size, ResizeFilter filter) {
  const double begin = static_cast<double>(first * eighths) / 8;
  const double end = static_cast<double>((first + size) * eighths) / 8;
  // Ignore everything outside the box, as in an exact part.
  const double origin = std::floor(begin);
  const auto in = static_cast<std::int64_t>(std::ceil(end) - origin);
  return {static_cast<std::int64_t>(origin),
          {in, begin - origin, end - origin, out, window_first, window_size, filter}};
}

/// Conversion from libjpeg's pixels to the pixels that are resized.
enum class Pixels { as_they_are, rgb_to_grey, cmyk_to_rgb, cmyk_to_grey };

}  // namespace

int jpeg_eighths(const ImagePart& part) {
  // libjpeg-turbo has vector instructions only for these sizes and for full size. The sizes in
  // between take longer than full size (docs/internals/performance.md).
  if (part.exact) return 8;
  for (const int eighths : {1, 2, 4}) {
    if (part.box.height * eighths >= part.height * 8 &&
        part.box.width * eighths >= part.width * 8) {
      return eighths;
    }
  }
  return 8;
}

Image decode_jpeg(std::span<const std::byte> file, const std::string& name, std::int64_t channels,
                  const ChoosePart& choose, const DecodeOptions& options) {
  JpegDecoder decoder;
  decoder.salvage = options.salvage;
  const auto check = [&](bool good) {
    if (good) return;
    fail(ErrorKind::data, "{}: {} JPEG: {}", name,
         decoder.is_unsupported ? "unsupported" : "corrupt", decoder.text);
  };
  if (options.salvage) file = without_torn_segment(file);
  check(read_header(decoder, reinterpret_cast<const unsigned char*>(file.data()), file.size()));
  jpeg_decompress_struct& info = decoder.info;
  check_image_size(name, info.image_width, info.image_height,
                   std::max<std::int64_t>(info.num_components, channels), file.size(),
                   info.arith_code ? kMaxArithmeticPixelsPerByte : kMaxJpegPixelsPerByte);
  const ImagePart part = choose(info.image_height, info.image_width);
  const PixelBox &box = part.box, &window = part.window;

  const int eighths = jpeg_eighths(part);
  info.scale_num = static_cast<unsigned int>(eighths);
  info.scale_denom = 8;
  Pixels pixels = Pixels::as_they_are;
  std::int64_t resized_channels = channels;
  if (info.jpeg_color_space == JCS_CMYK || info.jpeg_color_space == JCS_YCCK) {
    // Treat every CMYK file as one of Adobe's, with inverted values, even without Adobe's marker.
    // Pillow does the same.
    info.out_color_space = JCS_CMYK;
    pixels = channels == 1 ? Pixels::cmyk_to_grey : Pixels::cmyk_to_rgb;
  } else if (info.jpeg_color_space == JCS_GRAYSCALE) {
    info.out_color_space = JCS_GRAYSCALE;
    resized_channels = 1;
  } else if (channels == 1 && !part.exact) {
    info.out_color_space = JCS_GRAYSCALE;
  } else {
    info.out_color_space = JCS_RGB;
    if (channels == 1) pixels = Pixels::rgb_to_grey;
  }

  const ScaledAxis down = scaled_axis(box.top, box.height, eighths, part.height, window.top,
                                      window.height, part.filter);
  const ScaledAxis across =
      scaled_axis(box.left, box.width, eighths, part.width, window.left, window.width, part.filter);
  RowResizer resizer(down.axis, across.axis, resized_channels, resize_rows::best_vectors(),
                     stored_turn(options.stored_orientation));
  const auto moved = [](PixelRange range, std::int64_t by) {
    return PixelRange{range.begin + by, range.end + by};
  };
  const Region region{moved(resizer.rows(), down.origin), moved(resizer.columns(), across.origin)};
  const auto finished = [&] {
    Image image{window.height, window.width, resized_channels, {}};
    image.pixels.resize(static_cast<std::size_t>(window.height * window.width * resized_channels));
    resizer.write(std::as_writable_bytes(std::span(image.pixels)));
    return converted(std::move(image), channels);
  };
  if (pixels == Pixels::as_they_are && !options.only_libjpeg) {
    BaselineJpeg baseline(info, eighths, region.rows, region.columns, resized_channels == 1);
    if (baseline.decode()) {
      const std::int64_t from = (region.columns.begin - baseline.left()) * resized_channels;
      for (std::int64_t y = region.rows.begin; y < region.rows.end; y += kRows) {
        const std::int64_t count = std::min(kRows, region.rows.end - y);
        resizer.add(baseline.rows(y, count, resizer.bytes_beyond()) + from, baseline.stride(),
                    count);
      }
      return finished();
    }
  }
  std::int64_t top = 0, left = 0;
  check(start(decoder, region, top, left));
  const auto width = static_cast<std::size_t>(info.output_width);
  const std::size_t stride = width * static_cast<std::size_t>(info.output_components);
  std::vector<std::uint8_t> rows(stride * kRows + static_cast<std::size_t>(resizer.bytes_beyond()));
  for (; top < region.rows.begin; ++top) check(read_rows(decoder, rows.data(), stride, 1));
  const std::int64_t from = (region.columns.begin - left) * resized_channels;
  for (std::int64_t done = 0; done < region.rows.size(); done += kRows) {
    const std::int64_t count = std::min(kRows, region.rows.size() - done);
    check(read_rows(decoder, rows.data(), stride, count));
    for (std::int64_t y = 0; y < count; ++y) {
      std::uint8_t* row = rows.data() + static_cast<std::size_t>(y) * stride;
      if (pixels == Pixels::cmyk_to_rgb || pixels == Pixels::cmyk_to_grey) {
        inverted_cmyk_to_rgb(row, width);
      }
      if (pixels == Pixels::rgb_to_grey || pixels == Pixels::cmyk_to_grey) {
        rgb_to_grey(row, width, row);
      }
    }
    resizer.add(rows.data() + from, stride, count);
  }
  check(finish(decoder));
  return finished();
}

}  // namespace dpt
