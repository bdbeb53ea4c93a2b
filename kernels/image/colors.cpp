// Colours of images. The formulas are those of Pillow 13, src/libImaging/Blend.c, Convert.c (L and
// HSV) and Filter.c, src/PIL/ImageEnhance.py, ImageStat.py and ImageOps.py; and of torchvision
// 0.29, transforms/_functional_pil.py (adjust_hue).
#include "kernels/image/colors.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>

#include "kernels/image/image_ops.h"
#include "kernels/image/pixels.h"

namespace dpt {
namespace {

using ByteTable = std::array<std::uint8_t, 256>;
using Histogram = std::array<std::int64_t, 256>;

/// Returns one byte of Image.blend(from, to, factor), computed in float32 and truncated towards
/// zero.
inline std::uint8_t blended(int from, int to, float factor) {
  float value = static_cast<float>(from) + factor * static_cast<float>(to - from);
  value = value < 0.0F ? 0.0F : value;
  value = value > 255.0F ? 255.0F : value;
  return static_cast<std::uint8_t>(static_cast<int>(value));
}

/// Returns the table of blends of each byte with a constant.
ByteTable blended_with(int from, float factor) {
  ByteTable table{};
  for (int i = 0; i < 256; ++i) table[i] = blended(from, i, factor);
  return table;
}

void apply_table(Image& image, const ByteTable& table) {
  for (std::uint8_t& pixel : image.pixels) pixel = table[pixel];
}

/// Applies one table per channel.
void apply_tables(Image& image, const std::array<ByteTable, 3>& tables) {
  if (image.channels == 1) return apply_table(image, tables[0]);
  std::uint8_t* pixel = image.pixels.data();
  for (std::size_t i = 0; i < image.pixels.size(); i += 3, pixel += 3) {
    pixel[0] = tables[0][pixel[0]];
    pixel[1] = tables[1][pixel[1]];
    pixel[2] = tables[2][pixel[2]];
  }
}

std::array<Histogram, 3> histograms(const Image& image) {
  std::array<Histogram, 3> result{};
  const auto channels = static_cast<std::size_t>(image.channels);
  const std::uint8_t* pixel = image.pixels.data();
  for (std::size_t i = 0; i < image.pixels.size(); i += channels, pixel += channels) {
    for (std::size_t c = 0; c < channels; ++c) ++result[c][pixel[c]];
  }
  return result;
}

/// Returns ImageStat's mean of the image in mode L, rounded as in ImageEnhance.Contrast.
int mean_luma(const Image& image) {
  std::uint64_t sum = 0;
  std::size_t count = image.pixels.size();
  if (image.channels == 1) {
    for (const std::uint8_t pixel : image.pixels) sum += pixel;
  } else {
    for (std::size_t i = 0; i < image.pixels.size(); i += 3) sum += luma(image.pixels.data() + i);
    count /= 3;
  }
  return static_cast<int>(static_cast<double>(sum) / static_cast<double>(count) + 0.5);
}

/// Tables for Pillow's conversions to HSV and back. The conversions need divisions and fmod, but
/// each of their steps has few different inputs.
struct HueTables {
  /// Hue, indexed by the order of the channels (6 ways) and by (largest - middle, largest -
  /// smallest). The latter pairs form a triangle.
  static constexpr std::size_t kTriangle = std::size_t{256} * 257 / 2;
  std::array<std::array<std::uint8_t, kTriangle>, 6> hue;
  /// Saturation, indexed by largest - smallest and largest.
  std::array<std::uint8_t, std::size_t{256} * 256> saturation;
  /// Smallest channel, indexed by saturation and value.
  std::array<std::uint8_t, std::size_t{256} * 256> least;
  std::array<float, 256> saturation_share;
  struct Sector {
    double part;           ///< (largest - middle) / (largest - smallest)
    bool is_falling;       ///< true if the middle channel falls; saturation * part is then float32
    std::uint8_t r, g, b;  ///< shifts that select from largest | middle << 8 | smallest << 16
  };
  std::array<Sector, 256> sector;

  HueTables();
};

std::size_t triangle_index(unsigned step, unsigned range) {
  return std::size_t{range} * (range + 1) / 2 + step;
}

HueTables::HueTables() {
  for (unsigned range = 0; range < 256; ++range) {
    const auto cr = static_cast<float>(range);
    for (unsigned step = 0; step <= range; ++step) {
      // Distances of the channels from the largest one, divided by the range: 0, `mid` and 1.
      const float mid = range == 0 ? 0.0F : static_cast<float>(step) / cr;
      const float one = 1.0F;
      const std::array<float, 6> sixths = {
          mid - one,                            // largest r, smallest g: bc - gc
          one - mid,                            // largest r, smallest b
          static_cast<float>(2.0 + one - mid),  // largest g, smallest r: 2 + rc - bc
          static_cast<float>(2.0 + mid - one),  // largest g, smallest b
          static_cast<float>(4.0 + mid - one),  // largest b, smallest r: 4 + gc - rc
          static_cast<float>(4.0 + one - mid),  // largest b, smallest g
      };
      for (std::size_t way = 0; way < 6; ++way) {
        const auto h = static_cast<float>(std::fmod(sixths[way] / 6.0 + 1.0, 1.0));
        hue[way][triangle_index(step, range)] =
            range == 0 ? 0
                       : static_cast<std::uint8_t>(std::clamp(static_cast<int>(h * 255.0), 0, 255));
      }
    }
    for (unsigned largest = 0; largest < 256; ++largest) {
      // A range above the largest value never occurs.
      const float s = largest < range || range == 0 ? 0.0F : cr / static_cast<float>(largest);
      saturation[range * 256 + largest] = static_cast<std::uint8_t>(static_cast<int>(s * 255.0));
    }
  }
  for (unsigned s = 0; s < 256; ++s) {
    const auto share = static_cast<float>(static_cast<float>(s) / 255.0);
    saturation_share[s] = share;
    for (unsigned v = 0; v < 256; ++v) {
      least[s * 256 + v] =
          static_cast<std::uint8_t>(std::round(static_cast<float>(v) * (1.0 - share)));
    }
  }
  // Shifts of red, green and blue (see Sector) in each sixth of the circle.
  constexpr std::array<std::array<std::uint8_t, 3>, 6> kShifts = {
      {{0, 8, 16}, {8, 0, 16}, {16, 0, 8}, {16, 8, 0}, {8, 16, 0}, {0, 16, 8}}};
  for (unsigned h = 0; h < 256; ++h) {
    const double sixths = static_cast<float>(h) * 6.0 / 255.0;
    const int i = static_cast<int>(std::floor(sixths));
    const auto f = static_cast<float>(sixths - static_cast<float>(i));
    const bool is_falling = i % 2 == 1;
    const auto& shifts = kShifts[i % 6];
    sector[h] = {is_falling ? f : 1.0 - f, is_falling, shifts[0], shifts[1], shifts[2]};
  }
}

const HueTables& hue_tables() {
  // Allocate the tables, because half a megabyte is too much for a stack.
  static const std::unique_ptr<const HueTables> tables = std::make_unique<const HueTables>();
  return *tables;
}

/// Adds `turn` to the hue of a pixel, modulo 256.
inline void turn_hue(std::uint8_t* rgb, std::uint8_t turn, const HueTables& tables) {
  const unsigned r = rgb[0], g = rgb[1], b = rgb[2];
  const unsigned largest = std::max(r, std::max(g, b));
  const unsigned smallest = std::min(r, std::min(g, b));
  const unsigned middle = r + g + b - largest - smallest;
  const unsigned range = largest - smallest;
  // Index of the order of the channels in HueTables::hue. If two channels are equal, both orders
  // give the same hue.
  const unsigned way = r == largest   ? (g < b ? 0U : 1U)
                       : g == largest ? (r < b ? 2U : 3U)
                                      : (r < g ? 4U : 5U);
  const unsigned saturation = tables.saturation[range * 256 + largest];
  const auto hue =
      static_cast<std::uint8_t>(tables.hue[way][triangle_index(largest - middle, range)] + turn);
  const HueTables::Sector& sector = tables.sector[hue];
  const double exact = tables.saturation_share[saturation] * sector.part;
  const double product = sector.is_falling ? static_cast<float>(exact) : exact;
  // Round halves up: the values are not negative.
  const auto mixed = static_cast<unsigned>(static_cast<int>(largest * (1.0 - product) + 0.5));
  const unsigned packed = largest | mixed << 8 | tables.least[saturation * 256 + largest] << 16U;
  rgb[0] = static_cast<std::uint8_t>(packed >> sector.r);
  rgb[1] = static_cast<std::uint8_t>(packed >> sector.g);
  rgb[2] = static_cast<std::uint8_t>(packed >> sector.b);
}

}  // namespace

void adjust_brightness(Image& image, double factor) {
  assert(factor >= 0);
  apply_table(image, blended_with(0, static_cast<float>(factor)));
}

void adjust_contrast(Image& image, double factor) {
  assert(factor >= 0);
  apply_table(image, blended_with(mean_luma(image), static_cast<float>(factor)));
}

void adjust_saturation(Image& image, double factor) {
  assert(factor >= 0);
  if (image.channels == 1) return;
  const auto share = static_cast<float>(factor);
  const auto row_bytes = static_cast<std::size_t>(image.width * 3);
  // Repeat the luma three times, so that the blend is one run of bytes.
  std::vector<std::uint8_t> grey(row_bytes);
  for (std::int64_t y = 0; y < image.height; ++y) {
    std::uint8_t* row = image.pixels.data() + static_cast<std::size_t>(y) * row_bytes;
    for (std::size_t i = 0; i < row_bytes; i += 3) {
      const std::uint8_t value = luma(row + i);
      grey[i] = grey[i + 1] = grey[i + 2] = value;
    }
    for (std::size_t i = 0; i < row_bytes; ++i) row[i] = blended(grey[i], row[i], share);
  }
}

void adjust_sharpness(Image& image, double factor) {
  assert(factor >= 0);
  if (image.height < 3 || image.width < 3) return;
  const auto share = static_cast<float>(factor);
  const std::int64_t channels = image.channels, row = image.width * channels;
  const std::vector<std::uint8_t> before = image.pixels;
  const auto inner = static_cast<std::size_t>(row - 2 * channels);
  std::vector<std::uint16_t> sums(static_cast<std::size_t>(row));
  for (std::int64_t y = 1; y + 1 < image.height; ++y) {
    const std::uint8_t* at = before.data() + y * row;
    for (std::size_t i = 0; i < sums.size(); ++i) {
      const std::uint8_t* column = at + i;
      sums[i] = static_cast<std::uint16_t>(column[-row] + column[0] + column[row]);
    }
    std::uint8_t* to = image.pixels.data() + y * row + channels;
    const std::uint8_t* center = at + channels;
    const std::uint16_t* left = sums.data();
    const std::uint16_t* mid = left + channels;
    const std::uint16_t* right = mid + channels;
    for (std::size_t i = 0; i < inner; ++i) {
      // Pillow's SMOOTH has weights of 1, and 5 in the middle, and divides by 13. Its float32 sums
      // are off by less than 0.001, which does not change the result: (2 * sum + 13) / 26 has an
      // odd numerator, so it is at least 1/26 away from a whole number.
      const auto sum = static_cast<std::uint16_t>(left[i] + mid[i] + right[i] + 4 * center[i]);
      const auto smooth = static_cast<std::uint16_t>(static_cast<std::uint16_t>(2 * sum + 13) / 26);
      to[i] = blended(smooth, center[i], share);
    }
  }
}

void adjust_hue(Image& image, double factor) {
  assert(factor >= -0.5 && factor <= 0.5);
  if (image.channels == 1) return;
  const auto turn = static_cast<std::uint8_t>(static_cast<int>(factor * 255));
  const HueTables& tables = hue_tables();
  std::uint8_t* rgb = image.pixels.data();
  for (std::size_t i = 0; i < image.pixels.size(); i += 3) turn_hue(rgb + i, turn, tables);
}

void to_grayscale(Image& image) {
  if (image.channels == 1) return;
  std::uint8_t* rgb = image.pixels.data();
  for (std::size_t i = 0; i < image.pixels.size(); i += 3) {
    const std::uint8_t value = luma(rgb + i);
    rgb[i] = rgb[i + 1] = rgb[i + 2] = value;
  }
}

void posterize(Image& image, int bits) {
  assert(bits >= 1 && bits <= 8);
  const auto mask = static_cast<std::uint8_t>(0xFF << (8 - bits));
  for (std::uint8_t& pixel : image.pixels) pixel &= mask;
}

void solarize(Image& image, double threshold) {
  ByteTable table{};
  for (int i = 0; i < 256; ++i) {
    table[i] = static_cast<std::uint8_t>(i < threshold ? i : 255 - i);
  }
  apply_table(image, table);
}

void autocontrast(Image& image) {
  const std::array<Histogram, 3> all = histograms(image);
  std::array<ByteTable, 3> tables{};
  for (std::size_t c = 0; c < static_cast<std::size_t>(image.channels); ++c) {
    int low = 0, high = 255;
    while (low < 255 && all[c][low] == 0) ++low;
    while (high > 0 && all[c][high] == 0) --high;
    const double scale = high > low ? 255.0 / (high - low) : 1.0;
    const double offset = high > low ? -low * scale : 0.0;
    for (int i = 0; i < 256; ++i) {
      tables[c][i] =
          static_cast<std::uint8_t>(std::clamp(static_cast<int>(i * scale + offset), 0, 255));
    }
  }
  apply_tables(image, tables);
}

void equalize(Image& image) {
  const std::array<Histogram, 3> all = histograms(image);
  std::array<ByteTable, 3> tables{};
  for (std::size_t c = 0; c < static_cast<std::size_t>(image.channels); ++c) {
    const Histogram& histogram = all[c];
    std::int64_t last = 0;  // count of the largest value that occurs
    for (const std::int64_t count : histogram) last = count > 0 ? count : last;
    const std::int64_t step =
        (std::accumulate(histogram.begin(), histogram.end(), std::int64_t{0}) - last) / 255;
    std::int64_t n = step / 2;
    for (std::size_t i = 0; i < 256; ++i) {
      // A table entry above 255 belongs to a value that does not occur.
      tables[c][i] = static_cast<std::uint8_t>(step == 0 ? static_cast<std::int64_t>(i)
                                                         : std::min<std::int64_t>(n / step, 255));
      n += histogram[i];
    }
  }
  apply_tables(image, tables);
}

}  // namespace dpt
