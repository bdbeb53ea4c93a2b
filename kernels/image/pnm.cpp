// PNM (PBM, PGM, PPM), as text or as bytes, read as Pillow reads it.
#include <algorithm>
#include <bit>
#include <cmath>

#include "kernels/base/error.h"
#include "kernels/image/decoders.h"
#include "kernels/image/pixels.h"

namespace dpt {
namespace {

bool is_pnm_space(int c) {
  return c == ' ' || ('\t' <= c && c <= '\r');
}

class PnmFile {
 public:
  PnmFile(std::span<const std::byte> bytes, const std::string& name)
      : rest_(bytes.subspan(2)), name_(name) {}

  [[noreturn]] void corrupt(const std::string& why) const {
    fail(ErrorKind::data, "{}: corrupt PNM: {}", name_, why);
  }
  /// Returns the next byte, or -1 at the end of the file.
  int next() {
    if (rest_.empty()) return -1;
    const int c = std::to_integer<int>(rest_[0]);
    rest_ = rest_.subspan(1);
    return c;
  }
  int next_or_fail() {
    const int c = next();
    if (c < 0) corrupt("the file ends too early");
    return c;
  }
  /// Skips white space and comments. Returns the first byte after them.
  int next_after_space() {
    int c = next_or_fail();
    while (is_pnm_space(c) || c == '#') {
      while (c == '#' || (c != '\n' && c != '\r' && in_comment_)) {
        in_comment_ = true;
        c = next_or_fail();
      }
      in_comment_ = false;
      c = next_or_fail();
    }
    return c;
  }
  /// Reads a number and the white-space character after it.
  std::int64_t number() {
    int c = next_after_space();
    std::int64_t value = 0;
    for (int digits = 0; c >= 0 && !is_pnm_space(c); ++digits, c = next()) {
      if (c < '0' || c > '9' || digits == 10) corrupt("expected a number");
      value = 10 * value + (c - '0');
    }
    return value;
  }
  std::span<const std::byte> rest() const { return rest_; }

 private:
  std::span<const std::byte> rest_;
  const std::string& name_;
  bool in_comment_ = false;
};

/// Reads a PBM file, in which 1 is black.
void read_bits(PnmFile& file, bool is_text, Image& image) {
  const auto width = static_cast<std::size_t>(image.width);
  const std::size_t stride = (width + 7) / 8;
  const std::span<const std::byte> rows = file.rest();
  if (!is_text && rows.size() / stride < static_cast<std::size_t>(image.height)) {
    file.corrupt("the file ends too early");
  }
  for (std::size_t i = 0; i < image.pixels.size(); ++i) {
    bool is_black = false;
    if (is_text) {
      const int c = file.next_after_space();
      if (c != '0' && c != '1') file.corrupt("expected 0 or 1");
      is_black = c == '1';
    } else {
      const std::size_t y = i / width, x = i % width;
      is_black = (std::to_integer<int>(rows[y * stride + x / 8]) >> (7 - x % 8) & 1) != 0;
    }
    image.pixels[i] = is_black ? 0 : 255;
  }
}

/// Conversion of values to 8 bits. Grey with more than 8 bits is first scaled to 16 bits, and then
/// keeps the upper 8.
class PnmScale {
 public:
  PnmScale(std::int64_t most, bool is_deep) : most_(most), is_deep_(is_deep) {}
  std::uint8_t operator()(std::int64_t value) const {
    const double out = is_deep_ ? 65535 : 255;
    const double scaled =
        std::nearbyint(static_cast<double>(value) / static_cast<double>(most_) * out);
    const auto whole = static_cast<std::uint32_t>(std::min(scaled, out));
    return static_cast<std::uint8_t>(is_deep_ ? whole >> 8 : whole);
  }

 private:
  std::int64_t most_;
  bool is_deep_;
};

struct PnmHeader {
  bool is_text, is_bits;
  std::int64_t width, height, channels;
  std::int64_t most;  ///< largest possible value
};

/// Reads the header, up to the first value.
PnmHeader read_pnm_header(PnmFile& file, std::span<const std::byte> bytes,
                          const std::string& name) {
  const int kind = std::to_integer<int>(bytes[1]) - '0';
  PnmHeader header{kind <= 3, kind % 3 == 1, 0, 0, kind % 3 == 0 ? 3 : 1, 1};
  header.width = file.number();
  header.height = file.number();
  if (!header.is_bits) header.most = file.number();
  if (header.most < 1 || header.most > 65535) {
    file.corrupt(fmt::format("expected a maximum value from 1 to 65535, found {}", header.most));
  }
  check_image_size(name, header.width, header.height, 4, bytes.size(),
                   header.is_bits && !header.is_text ? 8 : 1);
  return header;
}

/// Calls use(index, value) for every value of a file.
template <class Use>
void read_values(PnmFile& file, const PnmHeader& header, const Use& use) {
  const auto count = static_cast<std::size_t>(header.width * header.height * header.channels);
  if (header.is_text) {
    for (std::size_t i = 0; i < count; ++i) {
      const std::int64_t value = file.number();
      if (value > header.most) {
        file.corrupt(
            fmt::format("found a value of {}, above the maximum of {}", value, header.most));
      }
      use(i, value);
    }
    return;
  }
  const std::size_t bytes = header.most > 255 ? 2 : 1;
  const std::span<const std::byte> values = file.rest();
  if (values.size() / bytes < count) file.corrupt("the file ends too early");
  for (std::size_t i = 0; i < count; ++i) {
    const auto at = [&](std::size_t k) { return std::to_integer<std::int64_t>(values[k]); };
    use(i, bytes == 1 ? at(i) : at(2 * i) << 8 | at(2 * i + 1));
  }
}

}  // namespace

int pnm_used_bits(std::span<const std::byte> bytes, const std::string& name) {
  PnmFile file(bytes, name);
  const PnmHeader header = read_pnm_header(file, bytes, name);
  if (header.most <= 255) return 0;
  std::int64_t largest = 0;
  read_values(file, header, [&](std::size_t, std::int64_t value) {
    largest = std::max(largest, std::min(value, header.most));
  });
  // Scale the values so that `most` becomes the largest 16-bit value.
  return std::bit_width(static_cast<std::uint64_t>(largest * 65535 / header.most));
}

Image decode_pnm(std::span<const std::byte> bytes, const std::string& name, std::int64_t channels) {
  PnmFile file(bytes, name);
  const PnmHeader header = read_pnm_header(file, bytes, name);
  Image image{header.height, header.width, header.channels, {}};
  image.pixels.resize(static_cast<std::size_t>(header.width * header.height * header.channels));
  if (header.is_bits) {
    read_bits(file, header.is_text, image);
  } else {
    const PnmScale scale(header.most, header.most > 255 && header.channels == 1);
    read_values(file, header,
                [&](std::size_t i, std::int64_t value) { image.pixels[i] = scale(value); });
  }
  return converted(std::move(image), channels);
}

}  // namespace dpt
