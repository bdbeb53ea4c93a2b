// BMP (Windows and OS/2 bitmaps), read as Pillow reads it: 1, 4, 8, 16, 24 and 32 bits, RLE.
#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "kernels/base/error.h"
#include "kernels/image/decode_options.h"
#include "kernels/image/decoders.h"
#include "kernels/image/palette.h"
#include "kernels/image/pixels.h"

namespace dpt {
namespace {

enum class BmpCoding : std::uint32_t { plain = 0, rle8 = 1, rle4 = 2, masks = 3 };

struct BmpHeader {
  std::uint32_t header_bytes = 0, offset = 0;
  std::int64_t width = 0, height = 0;
  bool is_top_down = false;
  int bits = 0;
  BmpCoding coding = BmpCoding::plain;
  std::uint32_t colours = 0;
  std::array<std::uint32_t, 3> masks{};  ///< bit masks of red, green and blue
};

/// Reader of the little-endian numbers in a file.
class BmpFile {
 public:
  BmpFile(std::span<const std::byte> bytes, const std::string& name) : bytes_(bytes), name_(name) {}

  [[noreturn]] void corrupt(const std::string& why) const {
    fail(ErrorKind::data, "{}: corrupt BMP: {}", name_, why);
  }
  [[noreturn]] void unsupported(const std::string& what) const {
    fail(ErrorKind::data, "{}: unsupported BMP: {}: convert it to PNG", name_, what);
  }
  std::uint32_t byte(std::size_t at) const {
    if (at >= bytes_.size()) corrupt("the file ends too early");
    return std::to_integer<std::uint32_t>(bytes_[at]);
  }
  std::uint32_t word(std::size_t at) const { return byte(at) | byte(at + 1) << 8; }
  std::uint32_t dword(std::size_t at) const { return word(at) | word(at + 2) << 16; }
  std::span<const std::byte> from(std::size_t at) const {
    if (at > bytes_.size()) corrupt("the file ends too early");
    return bytes_.subspan(at);
  }
  std::size_t size() const { return bytes_.size(); }
  const std::string& name() const { return name_; }

 private:
  std::span<const std::byte> bytes_;
  const std::string& name_;
};

BmpHeader read_bmp_header(const BmpFile& file) {
  BmpHeader header;
  header.offset = file.dword(10);
  header.header_bytes = file.dword(14);
  if (header.header_bytes == 12) {
    header.width = file.word(18);
    header.height = file.word(20);
    header.bits = static_cast<int>(file.word(24));
  } else {
    header.is_top_down = file.byte(25) == 0xff;
    header.width = file.dword(18);
    const std::uint32_t height = file.dword(22);
    header.height = header.is_top_down ? (std::int64_t{1} << 32) - height : height;
    header.bits = static_cast<int>(file.word(28));
    header.coding = static_cast<BmpCoding>(file.dword(30));
    header.colours = file.dword(46);
  }
  if (header.colours == 0 && header.bits <= 8) header.colours = 1U << header.bits;
  constexpr std::array kBits{1, 4, 8, 16, 24, 32};
  if (std::find(kBits.begin(), kBits.end(), header.bits) == kBits.end()) {
    file.unsupported(fmt::format("{} bits per pixel", header.bits));
  }
  if (header.coding > BmpCoding::masks) {
    file.unsupported(fmt::format("compression {}", static_cast<std::uint32_t>(header.coding)));
  }
  if (header.coding == BmpCoding::masks) {
    for (std::size_t c = 0; c < 3; ++c) header.masks[c] = file.dword(54 + 4 * c);
  }
  return header;
}

/// Returns the offset of the palette, and the number of bytes per colour.
std::pair<std::size_t, std::size_t> palette_place(const BmpHeader& header) {
  return {14 + header.header_bytes, header.header_bytes == 12 ? 3 : 4};
}

Palette read_palette(const BmpFile& file, const BmpHeader& header) {
  const auto [begin, stride] = palette_place(header);
  if (header.colours > 65536) file.corrupt(fmt::format("a palette of {} colours", header.colours));
  Palette palette;
  for (std::size_t i = 0; i < std::min(header.colours, 256U); ++i) {
    const std::size_t at = begin + i * stride;
    palette.set(i, {static_cast<std::uint8_t>(file.byte(at + 2)),
                    static_cast<std::uint8_t>(file.byte(at + 1)),
                    static_cast<std::uint8_t>(file.byte(at))});
  }
  // Do not complete a palette of two colours, not even one of the greys 0 and 1. Pillow does not
  // either.
  if (header.colours != 2) palette.complete();
  return palette;
}

std::size_t pixel_offset(const BmpHeader& header) {
  const auto [begin, stride] = palette_place(header);
  const std::size_t palette_bytes = header.bits <= 8 ? stride * header.colours : 0;
  // Some programs write an offset that does not count the palette, or 0.
  const bool is_wrong = header.offset == begin || header.offset == 0;
  return is_wrong ? begin + palette_bytes : header.offset;
}

/// Checks that all rows exist, and returns the bytes of the pixels.
std::span<const std::byte> plain_rows(const BmpFile& file, const BmpHeader& header,
                                      std::size_t stride) {
  const std::span<const std::byte> rows = file.from(pixel_offset(header));
  if (rows.size() / stride < static_cast<std::size_t>(header.height)) {
    file.corrupt("the file ends too early");
  }
  return rows;
}

std::size_t row_bytes(const BmpHeader& header) {
  return (static_cast<std::size_t>(header.width) * static_cast<std::size_t>(header.bits) + 31) /
         32 * 4;
}

/// Returns the row of the image that the file stores as row `y`.
std::int64_t image_row(const BmpHeader& header, std::int64_t y) {
  return header.is_top_down ? y : header.height - 1 - y;
}

std::vector<std::uint8_t> plain_indices(const BmpFile& file, const BmpHeader& header) {
  const std::size_t stride = row_bytes(header);
  const std::span<const std::byte> rows = plain_rows(file, header, stride);
  std::vector<std::uint8_t> indices;
  indices.resize(static_cast<std::size_t>(header.width * header.height));
  const int per_byte = 8 / header.bits;
  for (std::int64_t y = 0; y < header.height; ++y) {
    const std::byte* row = rows.data() + static_cast<std::size_t>(y) * stride;
    std::uint8_t* to = indices.data() + image_row(header, y) * header.width;
    for (std::int64_t x = 0; x < header.width; ++x) {
      const int shift = 8 - header.bits * static_cast<int>(x % per_byte + 1);
      to[x] = static_cast<std::uint8_t>(std::to_integer<int>(row[x / per_byte]) >> shift &
                                        ((1 << header.bits) - 1));
    }
  }
  return indices;
}

/// Decoder of run-length-encoded indices. Skipped pixels have index 0.
class RleDecoder {
 public:
  RleDecoder(const BmpFile& file, const BmpHeader& header)
      : file_(file),
        header_(header),
        at_(pixel_offset(header)),
        total_(static_cast<std::size_t>(header.width * header.height)) {}

  std::vector<std::uint8_t> decode() {
    while (!is_done_ && pixels_.size() < total_) {
      const std::uint32_t count = next(), value = next();
      if (count > 0) {
        add_run(count, value);
      } else if (value > 2) {
        add_absolute(value);
      } else {
        escape(value);
      }
    }
    pixels_.resize(total_);
    std::vector<std::uint8_t> indices(total_);
    for (std::int64_t y = 0; y < header_.height; ++y) {
      std::copy_n(pixels_.begin() + y * header_.width, header_.width,
                  indices.begin() + image_row(header_, y) * header_.width);
    }
    return indices;
  }

 private:
  std::uint32_t next() { return file_.byte(at_++); }
  bool is_rle4() const { return header_.coding == BmpCoding::rle4; }
  std::uint32_t half(std::uint32_t byte, std::uint32_t i) const {
    return i % 2 == 0 ? byte >> 4 : byte & 15;
  }

  /// Adds a run. Drops pixels beyond the end of the row.
  void add_run(std::uint32_t count, std::uint32_t value) {
    const auto left = static_cast<std::uint32_t>(std::max<std::int64_t>(header_.width - x_, 0));
    const std::uint32_t used = std::min(count, left);
    for (std::uint32_t i = 0; i < used; ++i) {
      pixels_.push_back(static_cast<std::uint8_t>(is_rle4() ? half(value, i) : value));
    }
    x_ += used;
  }

  void add_absolute(std::uint32_t count) {
    const auto used =
        static_cast<std::uint32_t>(std::min<std::size_t>(count, total_ - pixels_.size()));
    std::uint32_t byte = 0;
    for (std::uint32_t i = 0; i < used; ++i) {
      if (!is_rle4() || i % 2 == 0) byte = next();
      pixels_.push_back(static_cast<std::uint8_t>(is_rle4() ? half(byte, i) : byte));
    }
    x_ += count;
    // A run of literal indices is padded to an even number of bytes.
    at_ += at_ % 2;
  }

  void escape(std::uint32_t code) {
    const auto width = static_cast<std::size_t>(header_.width);
    if (code == 0) {
      pixels_.resize((pixels_.size() + width - 1) / width * width);
      x_ = 0;
    } else if (code == 1) {
      is_done_ = true;
    } else {
      const std::uint32_t right = next(), up = next();
      pixels_.resize(std::min(total_, pixels_.size() + right + up * width));
      x_ = static_cast<std::int64_t>(pixels_.size() % width);
    }
  }

  const BmpFile& file_;
  const BmpHeader& header_;
  std::size_t at_, total_;
  std::int64_t x_ = 0;
  bool is_done_ = false;
  std::vector<std::uint8_t> pixels_;
};

/// Returns, for each channel, the index of its byte among the four bytes of a pixel.
std::array<std::size_t, 3> channel_bytes(const BmpFile& file, const BmpHeader& header) {
  std::array<std::size_t, 3> places{2, 1, 0};
  if (header.coding != BmpCoding::masks || header.masks == std::array<std::uint32_t, 3>{}) {
    return places;
  }
  for (std::size_t c = 0; c < 3; ++c) {
    std::size_t place = 0;
    while (place < 4 && header.masks[c] != 0xffU << 8 * place) ++place;
    if (place == 4) file.unsupported(fmt::format("a channel mask of {:#x}", header.masks[c]));
    places[c] = place;
  }
  return places;
}

/// Decoder of 16-bit pixels: 5 bits per channel, or 6 for green.
class SixteenBits {
 public:
  SixteenBits(const BmpFile& file, const BmpHeader& header) {
    using Masks = std::array<std::uint32_t, 3>;
    has_six_ = header.coding == BmpCoding::masks && header.masks == Masks{0xf800, 0x7e0, 0x1f};
    if (header.coding == BmpCoding::masks && !has_six_ &&
        header.masks != Masks{0x7c00, 0x3e0, 0x1f}) {
      file.unsupported("channel masks other than 5-5-5 and 5-6-5");
    }
  }
  void write(std::uint32_t pixel, std::uint8_t* rgb) const {
    const auto scaled = [](std::uint32_t value, std::uint32_t most) {
      return static_cast<std::uint8_t>(value * 255 / most);
    };
    rgb[0] = scaled(pixel >> (has_six_ ? 11 : 10) & 31, 31);
    rgb[1] = has_six_ ? scaled(pixel >> 5 & 63, 63) : scaled(pixel >> 5 & 31, 31);
    rgb[2] = scaled(pixel & 31, 31);
  }

 private:
  bool has_six_ = false;
};

Image true_colour(const BmpFile& file, const BmpHeader& header) {
  const std::size_t stride = row_bytes(header);
  const std::span<const std::byte> rows = plain_rows(file, header, stride);
  const std::size_t bytes = static_cast<std::size_t>(header.bits) / 8;
  std::optional<SixteenBits> sixteen;
  if (bytes == 2) sixteen.emplace(file, header);
  const std::array<std::size_t, 3> places =
      bytes == 4 ? channel_bytes(file, header) : std::array<std::size_t, 3>{2, 1, 0};
  Image image{header.height, header.width, 3, {}};
  image.pixels.resize(static_cast<std::size_t>(header.width * header.height * 3));
  for (std::int64_t y = 0; y < header.height; ++y) {
    const auto* from =
        reinterpret_cast<const std::uint8_t*>(rows.data()) + static_cast<std::size_t>(y) * stride;
    std::uint8_t* to = image.pixels.data() + image_row(header, y) * header.width * 3;
    for (std::int64_t x = 0; x < header.width; ++x, from += bytes, to += 3) {
      if (sixteen) {
        sixteen->write(from[0] | static_cast<std::uint32_t>(from[1]) << 8, to);
      } else {
        for (std::size_t c = 0; c < 3; ++c) to[c] = from[places[c]];
      }
    }
  }
  return image;
}

}  // namespace

Image decode_bmp(std::span<const std::byte> bytes, const std::string& name, std::int64_t channels) {
  const BmpFile file(bytes, name);
  const BmpHeader header = read_bmp_header(file);
  const bool is_rle = header.coding == BmpCoding::rle8 || header.coding == BmpCoding::rle4;
  // An RLE file may skip any number of rows; other files store every pixel.
  check_image_size(name, header.width, header.height, 4, bytes.size(), is_rle ? kMaxImageBytes : 8);
  if (header.bits > 8) {
    if (is_rle) file.corrupt("run-length encoding without a palette");
    return converted(true_colour(file, header), channels);
  }
  const Palette palette = read_palette(file, header);
  const std::vector<std::uint8_t> indices =
      is_rle ? RleDecoder(file, header).decode() : plain_indices(file, header);
  return palette.applied(indices, header.height, header.width, channels);
}

}  // namespace dpt
