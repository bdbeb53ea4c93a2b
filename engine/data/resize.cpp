// Antialiased bilinear resizing in Pillow's arithmetic, so that a net trained on images resized
// there sees the same bytes here. Source of the formulas: Pillow, src/libImaging/Resample.c.
#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>

#include "engine/data/image.h"

namespace dpt {
namespace {

/// Weights are integers in units of 2^-22: 8 bits of pixel and 2 of headroom fill the word.
constexpr int kPrecision = 32 - 8 - 2;

/// The inputs of one output pixel and their weights.
struct Tap {
  std::int64_t first = 0, count = 0;
  std::size_t weights = 0;  ///< index of the first weight
};

struct Taps {
  std::vector<Tap> taps;
  std::vector<std::int32_t> weights;
};

Taps make_taps(std::int64_t in, std::int64_t out) {
  const double scale = static_cast<double>(in) / static_cast<double>(out);
  const double support = std::max(scale, 1.0);  // of the triangle, in input pixels
  Taps result;
  std::vector<double> raw;
  for (std::int64_t i = 0; i < out; ++i) {
    const double center = (static_cast<double>(i) + 0.5) * scale;
    Tap tap;
    tap.first = std::max<std::int64_t>(static_cast<std::int64_t>(center - support + 0.5), 0);
    tap.count =
        std::min<std::int64_t>(static_cast<std::int64_t>(center + support + 0.5), in) - tap.first;
    tap.weights = result.weights.size();
    raw.clear();
    double sum = 0;
    for (std::int64_t x = 0; x < tap.count; ++x) {
      const double distance = (static_cast<double>(x + tap.first) - center + 0.5) * (1.0 / support);
      raw.push_back(std::max(0.0, 1.0 - std::abs(distance)));
      sum += raw.back();
    }
    for (const double weight : raw) {
      result.weights.push_back(static_cast<std::int32_t>(0.5 + weight / sum * (1 << kPrecision)));
    }
    result.taps.push_back(tap);
  }
  return result;
}

std::uint8_t rounded(std::int32_t sum) {
  return static_cast<std::uint8_t>(std::clamp<std::int32_t>(sum >> kPrecision, 0, 255));
}

/// from (height, width, channels) -> to (height, taps, channels).
void along_rows(const std::uint8_t* from, std::int64_t height, std::int64_t width,
                std::int64_t channels, const Taps& taps, std::uint8_t* to) {
  for (std::int64_t y = 0; y < height; ++y, from += width * channels) {
    for (const Tap& tap : taps.taps) {
      const std::int32_t* weights = taps.weights.data() + tap.weights;
      for (std::int64_t c = 0; c < channels; ++c) {
        const std::uint8_t* pixel = from + tap.first * channels + c;
        std::int32_t sum = 1 << (kPrecision - 1);
        for (std::int64_t x = 0; x < tap.count; ++x) sum += pixel[x * channels] * weights[x];
        *to++ = rounded(sum);
      }
    }
  }
}

/// from (height, row) -> to (taps, row), where a row is `row` bytes.
void along_columns(const std::uint8_t* from, std::int64_t row, const Taps& taps, std::uint8_t* to) {
  std::vector<std::int32_t> sums(static_cast<std::size_t>(row));
  for (const Tap& tap : taps.taps) {
    std::fill(sums.begin(), sums.end(), 1 << (kPrecision - 1));
    for (std::int64_t y = 0; y < tap.count; ++y) {
      const std::uint8_t* line = from + (tap.first + y) * row;
      const std::int32_t weight = taps.weights[tap.weights + static_cast<std::size_t>(y)];
      for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += line[i] * weight;
    }
    for (const std::int32_t sum : sums) *to++ = rounded(sum);
  }
}

}  // namespace

void resize_bilinear(const Image& image, std::int64_t height, std::int64_t width,
                     std::span<std::byte> to) {
  assert(to.size() == static_cast<std::size_t>(height * width * image.channels));
  const std::uint8_t* from = image.pixels.data();
  auto* out = reinterpret_cast<std::uint8_t*>(to.data());
  // An axis that keeps its size is left alone.
  std::vector<std::uint8_t> narrowed;
  if (width != image.width) {
    const bool is_last = height == image.height;
    if (!is_last) {
      narrowed.resize(static_cast<std::size_t>(image.height * width * image.channels));
    }
    std::uint8_t* rows = is_last ? out : narrowed.data();
    along_rows(from, image.height, image.width, image.channels, make_taps(image.width, width),
               rows);
    from = rows;
  }
  if (height != image.height) {
    along_columns(from, width * image.channels, make_taps(image.height, height), out);
  } else if (from != out) {
    std::memcpy(out, from, to.size());
  }
}

namespace {

Image cropped(const Image& image, const PixelBox& box) {
  Image result{box.height, box.width, image.channels, {}};
  const auto row = static_cast<std::size_t>(box.width * image.channels);
  result.pixels.resize(row * static_cast<std::size_t>(box.height));
  for (std::int64_t y = 0; y < box.height; ++y) {
    const std::int64_t from = ((box.top + y) * image.width + box.left) * image.channels;
    std::memcpy(result.pixels.data() + static_cast<std::size_t>(y) * row,
                image.pixels.data() + from, row);
  }
  return result;
}

}  // namespace

PicturePart whole_picture(std::int64_t picture_height, std::int64_t picture_width,
                          std::int64_t height, std::int64_t width) {
  return {{0, 0, picture_height, picture_width}, height, width, {0, 0, height, width}};
}

Image part_of(const Image& image, const PicturePart& part) {
  const PixelBox all{0, 0, image.height, image.width};
  const Image box = part.box == all ? Image{} : cropped(image, part.box);
  const Image& from = part.box == all ? image : box;
  Image resized{part.height, part.width, image.channels, {}};
  resized.pixels.resize(static_cast<std::size_t>(part.height * part.width * image.channels));
  resize_bilinear(from, part.height, part.width, std::as_writable_bytes(std::span(resized.pixels)));
  if (part.window == PixelBox{0, 0, part.height, part.width}) return resized;
  return cropped(resized, part.window);
}

}  // namespace dpt
