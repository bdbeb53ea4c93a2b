// Options that several transforms share: ranges of numbers, values per channel, fill colours and
// error texts. An error names the transform's place, what was expected and what was found.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/data/host_transform.h"
#include "kernels/image/image_ops.h"

namespace dpt {

/// Numbers from `low` to `high`.
struct Interval {
  double low = 0, high = 0;
};

/// Draws a number uniformly from the range.
inline double draw_uniform(const Interval& range, DrawStream& draws) {
  return draws.uniform(range.low, range.high);
}

/// The place and name of a transform, with which its messages begin.
std::string place_of(const Variant& transform);

/// "28x32", height first.
std::string size_text(Size2 size);

/// Returns one value per channel of the images. Throws ErrorKind::usage unless there are as many,
/// all finite and, with `positive`, above 0.
std::vector<float> channel_values(const Variant& transform, const char* field,
                                  const std::vector<double>& values, std::int64_t channels,
                                  bool positive = false);

/// "[1, 2.5]"
std::string numbers_text(const std::vector<double>& numbers);

/// [v] -> -v..v, [a, b] -> a..b; the second pair of four with `pair` 1. Throws unless v >= 0 and
/// a <= b.
Interval range_of(const Variant& transform, const char* field, const std::vector<double>& numbers,
                  std::size_t pair = 0);

/// Colour outside the image after it moved.
class Fill {
 public:
  /// `values`: one for every channel, or one for each of three. Fractions are cut off.
  Fill(const Variant& transform, const std::vector<double>& values);
  /// Throws ErrorKind::usage if there are three values but not three channels.
  FillColour of(const Image& image) const;

 private:
  FillColour colour_{};
  bool is_rgb_;
  std::string place_;
};

/// (x, y) of an option; nothing where it is not set.
std::optional<Point> point_of(const std::optional<std::vector<double>>& numbers);

}  // namespace dpt
