#include "engine/data/host_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cassert>
#include <cmath>

#include "kernels/base/error.h"

namespace dpt {

std::string place_of(const Variant& transform) {
  return fmt::format("{}: {}", transform.where.text(), transform.type);
}

std::string size_text(Size2 size) {
  return fmt::format("{}x{}", size.h, size.w);
}

std::vector<float> channel_values(const Variant& transform, const char* field,
                                  const std::vector<double>& values, std::int64_t channels,
                                  bool positive) {
  if (static_cast<std::int64_t>(values.size()) != channels) {
    fail(ErrorKind::usage, "{}: {} has {} value{}, but the images have {} channel{}",
         place_of(transform), field, values.size(), values.size() == 1 ? "" : "s", channels,
         channels == 1 ? "" : "s");
  }
  std::vector<float> result;
  for (const double value : values) {
    const auto as_float = static_cast<float>(value);
    if (!std::isfinite(as_float) || (positive && as_float <= 0.0F)) {
      fail(ErrorKind::usage, "{}: {} must hold {}, found {}", place_of(transform), field,
           positive ? "numbers above 0" : "finite numbers", value);
    }
    result.push_back(as_float);
  }
  return result;
}

std::string numbers_text(const std::vector<double>& numbers) {
  return fmt::format("[{}]", fmt::join(numbers, ", "));
}

std::string problem_of_positive_range(const char* field, const std::vector<double>& range) {
  if (range[0] > 0 && range[0] <= range[1]) return {};
  return fmt::format("{}: expected [minimum, maximum] above 0, found {}", field,
                     numbers_text(range));
}

Interval range_of(const Variant& transform, const char* field, const std::vector<double>& numbers,
                  std::size_t pair) {
  assert(!numbers.empty());
  if (numbers.size() == 1) {
    if (!(numbers[0] >= 0)) {
      fail(ErrorKind::usage,
           "{}: {}: expected a number of at least 0, or [minimum, maximum], found {}",
           place_of(transform), field, numbers[0]);
    }
    return {-numbers[0], numbers[0]};
  }
  const Interval range{numbers.at(2 * pair), numbers.at(2 * pair + 1)};
  if (!(range.low <= range.high)) {
    fail(ErrorKind::usage, "{}: {}: expected the smaller number first, found {}",
         place_of(transform), field, numbers_text(numbers));
  }
  return range;
}

Fill::Fill(const Variant& transform, const std::vector<double>& values)
    : is_rgb_(values.size() == 3), place_(place_of(transform)) {
  if (values.size() != 1 && values.size() != 3) {
    fail(ErrorKind::usage, "{}: fill: expected 1 or 3 numbers, found {}: {}", place_, values.size(),
         numbers_text(values));
  }
  for (std::size_t c = 0; c < colour_.size(); ++c) {
    colour_[c] = static_cast<std::uint8_t>(values[is_rgb_ ? c : 0]);
  }
}

FillColour Fill::of(const Image& image) const {
  if (is_rgb_ && image.channels != 3) {
    fail(ErrorKind::usage, "{}: fill: expected 1 number, as the images have {} channel{}, found 3",
         place_, image.channels, image.channels == 1 ? "" : "s");
  }
  return colour_;
}

std::optional<Point> point_of(const std::optional<std::vector<double>>& numbers) {
  if (!numbers) return std::nullopt;
  assert(numbers->size() == 2);
  return Point{numbers->at(0), numbers->at(1)};
}

}  // namespace dpt
