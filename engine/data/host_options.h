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

/// Returns the beginning of messages about a transform: its place in the config and its name.
std::string place_of(const Variant& transform);

/// Returns "28x32" for a height of 28 and a width of 32.
std::string size_text(Size2 size);

/// Returns `values` as floats. Throws ErrorKind::usage unless there is one value for each channel
/// and all values are finite and, with `positive`, above 0.
std::vector<float> channel_values(const Variant& transform, const char* field,
                                  const std::vector<double>& values, std::int64_t channels,
                                  bool positive = false);

/// Returns "[1, 2.5]" for the numbers 1 and 2.5.
std::string numbers_text(const std::vector<double>& numbers);

/// Returns the problem of a range [minimum, maximum] that must be above 0; empty if there is none.
std::string problem_of_positive_range(const char* field, const std::vector<double>& range);

/// Converts [v] to -v..v and [a, b] to a..b. If there are four numbers, `pair` 1 selects the second
/// pair. Throws unless v >= 0 and a <= b.
Interval range_of(const Variant& transform, const char* field, const std::vector<double>& numbers,
                  std::size_t pair = 0);

/// Fill colour of the pixels that a transformed image does not cover.
class Fill {
 public:
  /// `values`: one for all channels, or one for each of three channels. Fractions are truncated.
  Fill(const Variant& transform, const std::vector<double>& values);
  /// Throws ErrorKind::usage if there are three values but not three channels.
  FillColour of(const Image& image) const;

 private:
  FillColour colour_{};
  bool is_rgb_;
  std::string place_;
};

/// Returns an option as the point (x, y); nothing if it is unset.
std::optional<Point> point_of(const std::optional<std::vector<double>>& numbers);

}  // namespace dpt
