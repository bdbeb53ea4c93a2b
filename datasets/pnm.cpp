// PNM (PBM, PGM, PPM), as text or as bytes, read as Pillow reads it.
#include <algorithm>
#include <cmath>

#include "datasets/image.h"
#include "datasets/pixels.h"
#include "kernels/error.h"

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
  /// Skips white space and comments; returns the first byte after them.
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
  /// Reads a number and the one white space after it.
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

/// Reads a PBM file: 1 is black.
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

/// Scales values to 8 bits: grey of more bits to 16 first, of which the upper 8 are kept.
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

void read_values(PnmFile& file, bool is_text, std::int64_t most, Image& image) {
  const PnmScale scale(most, most > 255 && image.channels == 1);
  if (is_text) {
    for (std::uint8_t& pixel : image.pixels) {
      const std::int64_t value = file.number();
      if (value > most) file.corrupt(fmt::format("a value of {} above {}", value, most));
      pixel = scale(value);
    }
    return;
  }
  const std::size_t bytes = most > 255 ? 2 : 1;
  const std::span<const std::byte> values = file.rest();
  if (values.size() / bytes < image.pixels.size()) file.corrupt("the file ends too early");
  for (std::size_t i = 0; i < image.pixels.size(); ++i) {
    const auto at = [&](std::size_t k) { return std::to_integer<std::int64_t>(values[k]); };
    image.pixels[i] = scale(bytes == 1 ? at(i) : at(2 * i) << 8 | at(2 * i + 1));
  }
}

}  // namespace

Image decode_pnm(std::span<const std::byte> bytes, const std::string& name, std::int64_t channels) {
  const int kind = std::to_integer<int>(bytes[1]) - '0';
  const bool is_text = kind <= 3, is_bits = kind % 3 == 1;
  PnmFile file(bytes, name);
  const std::int64_t width = file.number(), height = file.number();
  const std::int64_t most = is_bits ? 1 : file.number();
  if (most < 1 || most > 65535) {
    file.corrupt(fmt::format("expected a largest value of 1 to 65535, found {}", most));
  }
  check_image_size(name, width, height, 4, bytes.size(), is_bits && !is_text ? 8 : 1);
  Image image{height, width, kind % 3 == 0 ? 3 : 1, {}};
  image.pixels.resize(static_cast<std::size_t>(width * height * image.channels));
  if (is_bits) {
    read_bits(file, is_text, image);
  } else {
    read_values(file, is_text, most, image);
  }
  return converted(std::move(image), channels);
}

}  // namespace dpt
