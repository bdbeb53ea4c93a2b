// TIFF through libtiff: the first image of a file, read as Pillow reads it.
#include <tiffio.h>

#include <algorithm>
#include <bit>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>

#include "kernels/base/error.h"
#include "kernels/image/decode_options.h"
#include "kernels/image/decoders.h"
#include "kernels/image/file_orientation.h"
#include "kernels/image/metadata_orientation.h"
#include "kernels/image/palette.h"
#include "kernels/image/pixels.h"
#include "kernels/image/turned_image.h"

namespace dpt {
namespace {

/// A file in memory, and the first problem that libtiff reported.
struct TiffMemory {
  std::span<const std::byte> bytes;
  std::uint64_t at = 0;
  std::string problem{};
};

TiffMemory& tiff_memory(thandle_t handle) {
  return *static_cast<TiffMemory*>(handle);
}

tmsize_t read_tiff_bytes(thandle_t handle, void* to, tmsize_t count) {
  TiffMemory& memory = tiff_memory(handle);
  const std::uint64_t size = memory.bytes.size();
  const std::uint64_t left = memory.at < size ? size - memory.at : 0;
  const auto read = std::min<std::uint64_t>(static_cast<std::uint64_t>(count), left);
  if (read > 0) std::memcpy(to, memory.bytes.data() + memory.at, read);
  memory.at += read;
  return static_cast<tmsize_t>(read);
}

toff_t seek_in_tiff(thandle_t handle, toff_t offset, int whence) {
  TiffMemory& memory = tiff_memory(handle);
  memory.at = offset + (whence == SEEK_CUR   ? memory.at
                        : whence == SEEK_END ? memory.bytes.size()
                                             : 0);
  return memory.at;
}

void on_tiff_error(thandle_t handle, const char* /*module*/, const char* format,
                   std::va_list values) {
  if (!handle) return;
  std::string& problem = tiff_memory(handle).problem;
  if (!problem.empty()) return;
  char text[256];
  std::vsnprintf(text, sizeof text, format, values);
  problem = text;
  while (problem.ends_with('.')) problem.pop_back();
}

/// Makes an error of the warning that a field is beyond the end of the file. libtiff itself would
/// continue.
void on_tiff_warning(thandle_t handle, const char* module, const char* format,
                     std::va_list values) {
  if (std::string_view(format).starts_with("IO error")) {
    on_tiff_error(handle, module, "the file ends too early", values);
  }
}

/// Replaces libtiff's handlers, which are global. Only dpt uses the library in this process.
void silence_libtiff() {
  TIFFSetErrorHandler(nullptr);
  TIFFSetWarningHandler(nullptr);
  TIFFSetWarningHandlerExt(on_tiff_warning);
  TIFFSetErrorHandlerExt(on_tiff_error);
}

/// Fields of the first image of a file.
struct TiffLayout {
  std::uint32_t width = 0, height = 0;
  std::uint16_t bits = 1, samples = 1, photometric = PHOTOMETRIC_MINISWHITE;
  std::uint16_t compression = COMPRESSION_NONE, planar = PLANARCONFIG_CONTIG;
  std::uint16_t format = SAMPLEFORMAT_UINT, orientation = ORIENTATION_TOPLEFT;
  /// True if the first extra sample is alpha, and the colours are multiplied by it.
  bool is_premultiplied = false;

  bool is_separate() const { return planar == PLANARCONFIG_SEPARATE && samples > 1; }
  /// Returns the number of samples that make the colour of a pixel.
  std::int64_t colours() const {
    return photometric == PHOTOMETRIC_RGB ? 3 : photometric == PHOTOMETRIC_SEPARATED ? 4 : 1;
  }
};

/// Returns the maximum number of pixels that one compressed byte can hold.
std::int64_t most_pixels_per_byte(std::uint16_t compression) {
  switch (compression) {
    case COMPRESSION_NONE:
      return 8;
    case COMPRESSION_PACKBITS:
      return std::int64_t{64} * 8;
    case COMPRESSION_LZW:
      return std::int64_t{4096} * 8;
    case COMPRESSION_DEFLATE:
    case COMPRESSION_ADOBE_DEFLATE:
      return std::int64_t{1032} * 8;
    case COMPRESSION_JPEG:
      return 1024;
    default:  // A fax row may take one bit.
      return kMaxImageBytes;
  }
}

class TiffDecoder {
 public:
  TiffDecoder(std::span<const std::byte> file, const std::string& name)
      : name_(name), memory_{file}, tiff_(nullptr, TIFFClose) {
    static const bool is_silent = (silence_libtiff(), true);
    static_cast<void>(is_silent);
    // The m in "rm" makes libtiff read the file through these functions instead of mapping it.
    tiff_.reset(TIFFClientOpen(
        "image", "rm", &memory_, read_tiff_bytes,
        [](thandle_t, void*, tmsize_t) -> tmsize_t { return 0; }, seek_in_tiff,
        [](thandle_t) { return 0; },
        [](thandle_t handle) -> toff_t { return tiff_memory(handle).bytes.size(); },
        [](thandle_t, void**, toff_t*) { return 0; }, [](thandle_t, void*, toff_t) {}));
    if (!tiff_) corrupt();
  }

  Image decode(std::int64_t channels) {
    read_layout();
    check_layout();
    if (needs_conversion()) return converted(upright(convert_by_libtiff()), channels);
    read_samples();
    return converted(upright(colours()), channels);
  }

  int used_bits() {
    read_layout();
    const bool is_dark_low =
        layout_.photometric == PHOTOMETRIC_MINISBLACK || layout_.photometric == PHOTOMETRIC_RGB;
    if (layout_.bits != 16 || !is_dark_low) return 0;
    check_layout();
    read_samples();
    return std::bit_width(all_values_);
  }

  /// Returns the orientation, 1 to 8. REQUIRES: the layout was read.
  int orientation() const {
    const int stored = layout_.orientation;
    return 2 <= stored && stored <= 8 ? stored : 1;
  }

  void read_layout() {
    TIFF* tiff = tiff_.get();
    if (!TIFFGetField(tiff, TIFFTAG_IMAGEWIDTH, &layout_.width) ||
        !TIFFGetField(tiff, TIFFTAG_IMAGELENGTH, &layout_.height)) {
      corrupt();
    }
    TIFFGetFieldDefaulted(tiff, TIFFTAG_BITSPERSAMPLE, &layout_.bits);
    TIFFGetFieldDefaulted(tiff, TIFFTAG_SAMPLESPERPIXEL, &layout_.samples);
    TIFFGetFieldDefaulted(tiff, TIFFTAG_COMPRESSION, &layout_.compression);
    TIFFGetFieldDefaulted(tiff, TIFFTAG_PLANARCONFIG, &layout_.planar);
    TIFFGetFieldDefaulted(tiff, TIFFTAG_SAMPLEFORMAT, &layout_.format);
    TIFFGetFieldDefaulted(tiff, TIFFTAG_ORIENTATION, &layout_.orientation);
    TIFFGetField(tiff, TIFFTAG_PHOTOMETRIC, &layout_.photometric);
    std::uint16_t extras = 0, *kinds = nullptr;
    TIFFGetFieldDefaulted(tiff, TIFFTAG_EXTRASAMPLES, &extras, &kinds);
    layout_.is_premultiplied = extras > 0 && kinds && kinds[0] == EXTRASAMPLE_ASSOCALPHA;
    if (layout_.photometric == PHOTOMETRIC_YCBCR && layout_.compression == COMPRESSION_JPEG &&
        layout_.planar == PLANARCONFIG_CONTIG) {
      TIFFSetField(tiff, TIFFTAG_JPEGCOLORMODE, JPEGCOLORMODE_RGB);
      layout_.photometric = PHOTOMETRIC_RGB;
    }
  }

 private:
  [[noreturn]] void corrupt() const {
    fail(ErrorKind::data, "{}: corrupt TIFF: {}", name_,
         memory_.problem.empty() ? "damaged data" : memory_.problem);
  }
  [[noreturn]] void unsupported(const std::string& what) const {
    fail(ErrorKind::data, "{}: unsupported TIFF: {}: convert it to PNG", name_, what);
  }

  void check_layout() const {
    if (!memory_.problem.empty()) corrupt();
    check_image_size(name_, layout_.width, layout_.height,
                     std::max<std::int64_t>(layout_.samples * layout_.bits / 8, 4),
                     memory_.bytes.size(), most_pixels_per_byte(layout_.compression));
  }

  bool needs_conversion() const {
    return layout_.photometric == PHOTOMETRIC_YCBCR || layout_.compression == COMPRESSION_OJPEG;
  }

  Image convert_by_libtiff() {
    const std::int64_t height = layout_.height, width = layout_.width;
    std::vector<std::uint32_t> raster(static_cast<std::size_t>(height * width));
    if (!TIFFReadRGBAImageOriented(tiff_.get(), layout_.width, layout_.height, raster.data(),
                                   layout_.orientation, 1)) {
      corrupt();
    }
    Image image{height, width, 3, {}};
    for (const std::uint32_t pixel : raster) {
      for (const std::uint32_t value : {TIFFGetR(pixel), TIFFGetG(pixel), TIFFGetB(pixel)}) {
        image.pixels.push_back(static_cast<std::uint8_t>(value));
      }
    }
    return image;
  }

  void check_supported() const {
    const bool is_grey = layout_.photometric == PHOTOMETRIC_MINISBLACK ||
                         layout_.photometric == PHOTOMETRIC_MINISWHITE;
    const bool is_colour =
        layout_.photometric == PHOTOMETRIC_RGB || layout_.photometric == PHOTOMETRIC_SEPARATED;
    const bool is_palette = layout_.photometric == PHOTOMETRIC_PALETTE;
    if (!is_grey && !is_colour && !is_palette) {
      unsupported(fmt::format("photometric interpretation {}", layout_.photometric));
    }
    const int bits = layout_.bits;
    const bool fits = bits == 8 || (bits == 16 && !is_palette) ||
                      (!is_colour && (bits == 1 || bits == 2 || bits == 4));
    if (!fits) unsupported(fmt::format("{} bits per sample", bits));
    if (layout_.format != SAMPLEFORMAT_UINT && !(layout_.format == SAMPLEFORMAT_INT && bits == 8)) {
      unsupported("samples that are not unsigned integers");
    }
    if (layout_.samples < layout_.colours() || layout_.samples > 8) {
      unsupported(fmt::format("{} samples per pixel", layout_.samples));
    }
  }

  /// Writes the values of a packed row to every `stride`-th byte. Keeps the upper 8 bits of 16-bit
  /// values. The first value is sample `first` of a pixel.
  void unpack(const std::uint8_t* from, std::size_t count, std::uint8_t* to, std::size_t stride,
              std::size_t first) {
    const unsigned bits = layout_.bits;
    for (std::size_t i = 0; i < count; ++i, to += stride) {
      if (bits == 16) {
        std::uint16_t value = 0;
        std::memcpy(&value, from + 2 * i, 2);
        *to = static_cast<std::uint8_t>(value >> 8);
        const std::size_t sample = layout_.is_separate() ? first : i % layout_.samples;
        if (sample < static_cast<std::size_t>(layout_.colours())) all_values_ |= value;
      } else if (bits == 8) {
        *to = from[i];
      } else {
        const std::size_t at = i * bits;
        *to = static_cast<std::uint8_t>(from[at / 8] >> (8 - bits - at % 8) & ((1U << bits) - 1));
      }
    }
  }

  /// Returns the number of bytes that `pixels` pixels take in a row of a plane.
  std::size_t packed_bytes(std::size_t pixels) const {
    const std::size_t values = pixels * (layout_.is_separate() ? 1 : layout_.samples);
    return (values * layout_.bits + 7) / 8;
  }

  /// Writes `count` pixels of a row of a plane.
  void put(const std::uint8_t* packed, std::uint32_t x, std::uint32_t y, std::size_t count,
           std::uint16_t plane) {
    std::uint8_t* to =
        samples_.data() + (std::size_t{y} * layout_.width + x) * layout_.samples + plane;
    if (layout_.is_separate()) {
      unpack(packed, count, to, layout_.samples, plane);
    } else {
      unpack(packed, count * layout_.samples, to, 1, 0);
    }
  }

  std::uint16_t planes() const { return layout_.is_separate() ? layout_.samples : 1; }

  void read_samples() {
    check_supported();
    samples_.resize(std::size_t{layout_.width} * layout_.height * layout_.samples);
    if (TIFFIsTiled(tiff_.get())) {
      read_tiles();
    } else {
      read_rows();
    }
  }

  void read_rows() {
    const auto bytes =
        static_cast<std::size_t>(std::max<tmsize_t>(TIFFScanlineSize(tiff_.get()), 0));
    if (bytes < packed_bytes(layout_.width) || bytes > std::size_t{kMaxImageBytes}) corrupt();
    std::vector<std::uint8_t> row(bytes);
    for (std::uint16_t plane = 0; plane < planes(); ++plane) {
      for (std::uint32_t y = 0; y < layout_.height; ++y) {
        if (TIFFReadScanline(tiff_.get(), row.data(), y, plane) < 0) corrupt();
        put(row.data(), 0, y, layout_.width, plane);
      }
    }
  }

  void read_tiles() {
    std::uint32_t width = 0, height = 0;
    TIFFGetField(tiff_.get(), TIFFTAG_TILEWIDTH, &width);
    TIFFGetField(tiff_.get(), TIFFTAG_TILELENGTH, &height);
    const tmsize_t size = TIFFTileSize(tiff_.get()), row_size = TIFFTileRowSize(tiff_.get());
    if (width == 0 || height == 0 || size < 1 || size > kMaxImageBytes ||
        row_size < static_cast<tmsize_t>(packed_bytes(width)) || size / row_size < height) {
      corrupt();
    }
    std::vector<std::uint8_t> tile(static_cast<std::size_t>(size));
    for (std::uint16_t plane = 0; plane < planes(); ++plane) {
      for (std::uint32_t y = 0; y < layout_.height; y += height) {
        for (std::uint32_t x = 0; x < layout_.width; x += width) {
          if (TIFFReadTile(tiff_.get(), tile.data(), x, y, 0, plane) < 0) corrupt();
          const std::uint32_t rows = std::min(height, layout_.height - y);
          for (std::uint32_t k = 0; k < rows; ++k) {
            put(tile.data() + k * static_cast<std::size_t>(row_size), x, y + k,
                std::min(width, layout_.width - x), plane);
          }
        }
      }
    }
  }

  /// Converts the samples to grey or RGB pixels.
  Image colours() const {
    const std::int64_t height = layout_.height, width = layout_.width;
    const auto pixels = static_cast<std::size_t>(height * width);
    if (layout_.photometric == PHOTOMETRIC_PALETTE) return palette_colours();
    Image image{height, width, layout_.colours(), {}};
    const auto count = static_cast<std::size_t>(image.channels);
    image.pixels.resize(pixels * count);
    for (std::size_t p = 0; p < pixels; ++p) {
      std::memcpy(&image.pixels[p * count], &samples_[p * layout_.samples], count);
    }
    if (count == 1) {
      const unsigned most = layout_.bits < 8 ? (1U << layout_.bits) - 1 : 255;
      const bool is_inverted = layout_.photometric == PHOTOMETRIC_MINISWHITE;
      for (std::uint8_t& value : image.pixels) {
        const unsigned grey = value * 255U / most;
        value = static_cast<std::uint8_t>(is_inverted ? 255 - grey : grey);
      }
    } else if (count == 4) {
      for (std::uint8_t& value : image.pixels) value = static_cast<std::uint8_t>(255 - value);
      inverted_cmyk_to_rgb(image.pixels.data(), pixels);
      image.pixels.resize(pixels * 3);
      image.channels = 3;
    } else if (layout_.is_premultiplied) {
      divide_by_alpha(image);
    }
    return image;
  }

  void divide_by_alpha(Image& image) const {
    for (std::size_t i = 0; i < image.pixels.size(); ++i) {
      const unsigned alpha = samples_[i / 3 * layout_.samples + 3];
      const unsigned value = image.pixels[i];
      image.pixels[i] = alpha == 0 ? std::uint8_t{0}
                                   : static_cast<std::uint8_t>(std::min(value * 255 / alpha, 255U));
    }
  }

  Image palette_colours() const {
    std::uint16_t *red = nullptr, *green = nullptr, *blue = nullptr;
    if (!TIFFGetField(tiff_.get(), TIFFTAG_COLORMAP, &red, &green, &blue)) corrupt();
    Palette palette;
    for (std::size_t i = 0; i < std::size_t{1} << layout_.bits; ++i) {
      palette.set(i,
                  {static_cast<std::uint8_t>(red[i] >> 8), static_cast<std::uint8_t>(green[i] >> 8),
                   static_cast<std::uint8_t>(blue[i] >> 8)});
    }
    std::vector<std::uint8_t> indices(std::size_t{layout_.width} * layout_.height);
    for (std::size_t p = 0; p < indices.size(); ++p) indices[p] = samples_[p * layout_.samples];
    return palette.applied(indices, layout_.height, layout_.width, 3);
  }

  /// Turns the image by its orientation, as Pillow does for TIFF.
  Image upright(Image image) const {
    const int stored = orientation();
    return stored == 1 ? std::move(image) : turned_upright(image, stored);
  }

  const std::string& name_;
  TiffMemory memory_;
  std::unique_ptr<TIFF, decltype(&TIFFClose)> tiff_;
  TiffLayout layout_;
  std::vector<std::uint8_t> samples_;  ///< samples of all pixels, or indices of a palette
  std::uint16_t all_values_ = 0;       ///< bitwise OR of all 16-bit colour values
};

}  // namespace

int tiff_orientation(std::span<const std::byte> file) {
  const std::string name;
  try {
    TiffDecoder decoder(file, name);
    decoder.read_layout();
    return decoder.orientation();
  } catch (const Error&) {
    return 1;
  }
}

int tiff_used_bits(std::span<const std::byte> file, const std::string& name) {
  return TiffDecoder(file, name).used_bits();
}

Image decode_tiff(std::span<const std::byte> file, const std::string& name, std::int64_t channels) {
  return TiffDecoder(file, name).decode(channels);
}

}  // namespace dpt
