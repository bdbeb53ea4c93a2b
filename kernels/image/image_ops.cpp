// Geometry of images. The formulas are those of Pillow 13, src/libImaging/Geometry.c and
// src/PIL/Image.py (rotate); of numpy.pad; and of torchvision 0.29,
// transforms/v2/functional/_geometry.py and _misc.py.
#include "kernels/image/image_ops.h"

#include <algorithm>
#include <cassert>
#include <charconv>
#include <cmath>
#include <cstring>
#include <numbers>
#include <utility>

namespace dpt {
namespace {

/// Memory of the image that this thread replaced last. It is reused, because allocating new memory
/// for each image takes longer than most transforms: the system clears it page by page.
thread_local std::vector<std::uint8_t> spare_pixels;

/// Returns an image with uninitialised pixels.
Image empty_like(const Image& image, std::int64_t height, std::int64_t width) {
  Image result{height, width, image.channels, std::exchange(spare_pixels, {})};
  result.pixels.resize(static_cast<std::size_t>(height * width * image.channels));
  return result;
}

Image filled_like(const Image& image, std::int64_t height, std::int64_t width, FillColour fill) {
  Image result = empty_like(image, height, width);
  if (image.channels == 1 || (fill[0] == fill[1] && fill[1] == fill[2])) {
    std::fill(result.pixels.begin(), result.pixels.end(), fill[0]);
    return result;
  }
  for (std::size_t i = 0; i < result.pixels.size(); i += 3) {
    std::memcpy(result.pixels.data() + i, fill.data(), 3);
  }
  return result;
}

template <std::int64_t kChannels>
void reverse_pixels(std::uint8_t* first, std::int64_t count) {
  std::uint8_t* last = first + (count - 1) * kChannels;
  for (; first < last; first += kChannels, last -= kChannels) {
    for (std::int64_t c = 0; c < kChannels; ++c) std::swap(first[c], last[c]);
  }
}

/// Returns the index to read for a position that may be outside 0..size-1.
std::int64_t padded_index(std::int64_t at, std::int64_t size, PaddingMode mode) {
  if (mode == PaddingMode::edge || size == 1) return std::clamp<std::int64_t>(at, 0, size - 1);
  // Go back and forth. `reflect` does not repeat the pixels at the edges.
  const std::int64_t period = mode == PaddingMode::reflect ? 2 * (size - 1) : 2 * size;
  const std::int64_t in_period = ((at % period) + period) % period;
  if (in_period < size) return in_period;
  return period - in_period - (mode == PaddingMode::reflect ? 0 : 1);
}

/// Rounds towards zero as Pillow's COORD does. Returns -1, which is outside, for a negative number.
std::int64_t coordinate(double v) {
  return v < 0.0 ? -1 : static_cast<std::int64_t>(std::min(v, 4e9));
}

/// Returns the range of those steps 0..count-1 that are inside. They are consecutive, because the
/// steps follow a line.
template <class T, class IsInside>
std::pair<T, T> steps_inside(T count, const IsInside& is_inside) {
  T first = 0, end = count;
  while (first < end && !is_inside(first)) ++first;
  while (end > first && !is_inside(end - 1)) --end;
  return {first, end};
}

/// Picks nearest pixels for a matrix without rotation and shear. Positions are running sums.
template <std::int64_t kChannels>
void scale_nearest(const Image& image, const AffineMatrix& m, Image& out) {
  std::vector<std::int64_t> from_x(static_cast<std::size_t>(out.width));
  double x_in = m[2] + m[0] * 0.5, y_in = m[5] + m[4] * 0.5;
  for (std::int64_t& from : from_x) {
    from = coordinate(x_in);
    x_in += m[0];
  }
  const auto [first, end] = steps_inside(out.width, [&](std::int64_t x) {
    const std::int64_t from = from_x[x];
    return from >= 0 && from < image.width;
  });
  const std::int64_t left = first, right = end;
  const bool is_run =
      right > left && from_x[right - 1] - from_x[left] == right - 1 - left && m[0] == 1.0;
  for (std::int64_t y = 0; y < out.height; ++y, y_in += m[4]) {
    const std::int64_t row = coordinate(y_in);
    if (row < 0 || row >= image.height || right <= left) continue;
    const std::uint8_t* from = image.pixels.data() + row * image.width * kChannels;
    std::uint8_t* to = out.pixels.data() + (y * out.width + left) * kChannels;
    if (is_run) {
      std::memcpy(to, from + from_x[left] * kChannels,
                  static_cast<std::size_t>((right - left) * kChannels));
      continue;
    }
    for (std::int64_t x = left; x < right; ++x, to += kChannels) {
      std::memcpy(to, from + from_x[x] * kChannels, kChannels);
    }
  }
}

/// Returns true if the source of corner (x, y) of the result fits into Pillow's fixed-point numbers
/// (16.16).
bool fits_fixed(const AffineMatrix& m, double x, double y) {
  return std::fabs(x * m[0] + y * m[1] + m[2]) < 32768.0 &&
         std::fabs(x * m[3] + y * m[4] + m[5]) < 32768.0;
}

/// Picks nearest pixels along a row of the result. `Position` turns a running sum of type T into
/// the index of a column or row. The index is negative if it is outside.
template <std::int64_t kChannels, class T, class Position>
void nearest_row(const Image& image, T x_in, T y_in, T x_step, T y_step, const Position& position,
                 std::int64_t width, std::uint8_t* to) {
  for (std::int64_t x = 0; x < width; ++x, to += kChannels, x_in += x_step, y_in += y_step) {
    const std::int64_t column = position(x_in), row = position(y_in);
    // One unsigned comparison checks both ends.
    if (static_cast<std::uint64_t>(column) < static_cast<std::uint64_t>(image.width) &&
        static_cast<std::uint64_t>(row) < static_cast<std::uint64_t>(image.height)) {
      std::memcpy(to, image.pixels.data() + (row * image.width + column) * kChannels, kChannels);
    }
  }
}

/// Picks nearest pixels with 16.16 fixed-point numbers. Their sums are exact, so only the ends of
/// the row need checks.
template <std::int64_t kChannels>
void nearest_row_fixed(const Image& image, std::int64_t x_in, std::int64_t y_in,
                       std::int64_t x_step, std::int64_t y_step, std::int64_t width,
                       std::uint8_t* to) {
  const auto [first, end] = steps_inside(width, [&](std::int64_t x) {
    const std::int64_t column = (x_in + x * x_step) >> 16, row = (y_in + x * y_step) >> 16;
    return column >= 0 && column < image.width && row >= 0 && row < image.height;
  });
  x_in += first * x_step;
  y_in += first * y_step;
  const std::uint8_t* from = image.pixels.data();
  const std::int64_t columns = image.width;
  to += first * kChannels;
  for (std::int64_t left = end - first; left > 0; --left, to += kChannels) {
    std::memcpy(to, from + ((y_in >> 16) * columns + (x_in >> 16)) * kChannels, kChannels);
    x_in += x_step;
    y_in += y_step;
  }
}

template <std::int64_t kChannels>
void affine_nearest(const Image& image, const AffineMatrix& m, Image& out) {
  if (m[1] == 0 && m[3] == 0) return scale_nearest<kChannels>(image, m, out);
  const auto width = static_cast<double>(out.width), height = static_cast<double>(out.height);
  const std::int64_t row_bytes = out.width * kChannels;
  if (fits_fixed(m, 0, 0) && fits_fixed(m, width, height) && fits_fixed(m, 0, height) &&
      fits_fixed(m, width, 0)) {
    const auto fixed = [](double v) {
      return static_cast<std::int64_t>(std::floor(v * 65536.0 + 0.5));
    };
    const std::int64_t x_by_x = fixed(m[0]), x_by_y = fixed(m[1]);
    const std::int64_t y_by_x = fixed(m[3]), y_by_y = fixed(m[4]);
    std::int64_t x_in = fixed(m[2] + m[0] * 0.5 + m[1] * 0.5);
    std::int64_t y_in = fixed(m[5] + m[3] * 0.5 + m[4] * 0.5);
    for (std::int64_t y = 0; y < out.height; ++y, x_in += x_by_y, y_in += y_by_y) {
      nearest_row_fixed<kChannels>(image, x_in, y_in, x_by_x, y_by_x, out.width,
                                   out.pixels.data() + y * row_bytes);
    }
    return;
  }
  double x_in = m[2] + m[1] * 0.5 + m[0] * 0.5, y_in = m[5] + m[4] * 0.5 + m[3] * 0.5;
  for (std::int64_t y = 0; y < out.height; ++y, x_in += m[1], y_in += m[4]) {
    nearest_row<kChannels>(image, x_in, y_in, m[0], m[3], coordinate, out.width,
                           out.pixels.data() + y * row_bytes);
  }
}

/// Returns a table of all bytes as doubles, because a lookup is faster than a conversion.
constexpr std::array<double, 256> make_byte_values() {
  std::array<double, 256> values{};
  for (std::size_t i = 0; i < 256; ++i) values[i] = static_cast<double>(i);
  return values;
}
constexpr std::array<double, 256> kByteValues = make_byte_values();

/// Computes a + (b - a) * d for each channel. Rounds only at the end, towards zero.
template <std::int64_t kChannels>
void affine_bilinear(const Image& image, const AffineMatrix& m, Image& out) {
  const auto columns = static_cast<std::size_t>(out.width);
  const auto limit_x = static_cast<double>(image.width);
  const auto limit_y = static_cast<double>(image.height);
  std::vector<double> xs(columns), ys(columns);
  for (std::int64_t y = 0; y < out.height; ++y) {
    const double y_out = static_cast<double>(y) + 0.5;
    for (std::size_t x = 0; x < columns; ++x) {
      const double x_out = static_cast<double>(static_cast<std::int32_t>(x)) + 0.5;
      xs[x] = m[0] * x_out + m[1] * y_out + m[2];
      ys[x] = m[3] * x_out + m[4] * y_out + m[5];
    }
    const auto [first, end] = steps_inside(columns, [&](std::size_t x) {
      return xs[x] >= 0.0 && xs[x] < limit_x && ys[x] >= 0.0 && ys[x] < limit_y;
    });
    std::uint8_t* to =
        out.pixels.data() + (y * out.width + static_cast<std::int64_t>(first)) * kChannels;
    for (std::size_t x = first; x < end; ++x, to += kChannels) {
      const double x_in = xs[x] - 0.5, y_in = ys[x] - 0.5;  // at least -0.5
      // Round down. A cast rounds towards zero, so subtract 1 from numbers below zero.
      const std::int32_t column = static_cast<std::int32_t>(x_in) - (x_in < 0.0 ? 1 : 0);
      const std::int32_t row = static_cast<std::int32_t>(y_in) - (y_in < 0.0 ? 1 : 0);
      const double dx = x_in - column, dy = y_in - row;
      const std::int64_t left = std::max(column, 0);
      const std::int64_t right = std::min<std::int64_t>(column + 1, image.width - 1);
      // Use the last row as the row below it, too.
      const std::int64_t top = std::max(row, 0);
      const std::int64_t bottom = row + 1 < image.height ? row + 1 : top;
      const std::uint8_t* upper = image.pixels.data() + top * image.width * kChannels;
      const std::uint8_t* lower = image.pixels.data() + bottom * image.width * kChannels;
      for (std::int64_t c = 0; c < kChannels; ++c) {
        const double a = kByteValues[upper[left * kChannels + c]];
        const double b = kByteValues[upper[right * kChannels + c]];
        const double p = kByteValues[lower[left * kChannels + c]];
        const double q = kByteValues[lower[right * kChannels + c]];
        const double above = a + (b - a) * dx, below = p + (q - p) * dx;
        to[c] = static_cast<std::uint8_t>(static_cast<int>(above + (below - above) * dy));
      }
    }
  }
}

/// Copies with the axes exchanged: pixel (y, x) of the result is pixel (x, y) of the image. The
/// source may be counted from the right or from the bottom.
template <std::int64_t kChannels>
Image transposed(const Image& image, bool from_right, bool from_bottom) {
  Image out = empty_like(image, image.width, image.height);
  const std::int64_t row_bytes = image.width * kChannels;
  const std::int64_t step = from_bottom ? -row_bytes : row_bytes;
  // Copy in blocks, so that both images stay in the cache.
  constexpr std::int64_t kBlock = 32;
  for (std::int64_t y0 = 0; y0 < out.height; y0 += kBlock) {
    for (std::int64_t x0 = 0; x0 < out.width; x0 += kBlock) {
      const std::int64_t first_row = from_bottom ? image.height - 1 - x0 : x0;
      const std::int64_t count = std::min(kBlock, out.width - x0);
      for (std::int64_t y = y0; y < std::min(y0 + kBlock, out.height); ++y) {
        const std::int64_t column = from_right ? image.width - 1 - y : y;
        const std::uint8_t* from = image.pixels.data() + first_row * row_bytes + column * kChannels;
        std::uint8_t* to = out.pixels.data() + (y * out.width + x0) * kChannels;
        for (std::int64_t x = 0; x < count; ++x) {
          std::memcpy(to + x * kChannels, from + x * step, kChannels);
        }
      }
    }
  }
  return out;
}

double radians(double degrees) {
  return degrees * (std::numbers::pi / 180.0);
}

/// Rounds like Python's round(value, 15): prints 15 decimal places and reads them back.
double rounded_to_15_places(double value) {
  std::array<char, 64> text{};
  const auto end =
      std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed, 15);
  assert(end.ec == std::errc());
  double result = value;
  std::from_chars(text.data(), end.ptr, result);
  return result;
}

Point mapped(const AffineMatrix& m, double x, double y) {
  return {m[0] * x + m[1] * y + m[2], m[3] * x + m[4] * y + m[5]};
}

}  // namespace

void replace_image(Image& image, Image&& result) {
  spare_pixels = std::move(image.pixels);
  image = std::move(result);
}

void flip_horizontally(Image& image) {
  for (std::int64_t y = 0; y < image.height; ++y) {
    std::uint8_t* row = image.pixels.data() + y * image.width * image.channels;
    if (image.channels == 1) {
      std::reverse(row, row + image.width);
    } else {
      reverse_pixels<3>(row, image.width);
    }
  }
}

void flip_vertically(Image& image) {
  const std::int64_t row = image.width * image.channels;
  for (std::int64_t y = 0; y < image.height / 2; ++y) {
    std::uint8_t* top = image.pixels.data() + y * row;
    std::swap_ranges(top, top + row, image.pixels.data() + (image.height - 1 - y) * row);
  }
}

Image padded(const Image& image, const Padding& padding, PaddingMode mode, FillColour fill) {
  assert(padding.left >= 0 && padding.top >= 0 && padding.right >= 0 && padding.bottom >= 0);
  const std::int64_t height = image.height + padding.top + padding.bottom;
  const std::int64_t width = image.width + padding.left + padding.right;
  const bool is_constant = mode == PaddingMode::constant;
  Image out =
      is_constant ? filled_like(image, height, width, fill) : empty_like(image, height, width);
  const std::int64_t channels = image.channels;
  const auto row_bytes = static_cast<std::size_t>(image.width * channels);
  for (std::int64_t y = 0; y < height; ++y) {
    std::int64_t row = y - padding.top;
    if (is_constant && (row < 0 || row >= image.height)) continue;
    row = is_constant ? row : padded_index(row, image.height, mode);
    const std::uint8_t* from = image.pixels.data() + row * image.width * channels;
    std::uint8_t* to = out.pixels.data() + y * width * channels;
    std::memcpy(to + padding.left * channels, from, row_bytes);
    if (is_constant) continue;
    const auto copy = [&](std::int64_t x) {
      const std::int64_t column = padded_index(x - padding.left, image.width, mode);
      std::copy_n(from + column * channels, channels, to + x * channels);
    };
    for (std::int64_t x = 0; x < padding.left; ++x) copy(x);
    for (std::int64_t x = padding.left + image.width; x < width; ++x) copy(x);
  }
  return out;
}

AffineMatrix affine_matrix(const AffineParams& params, Point center) {
  const double rotation = radians(params.angle);
  const double shear_x = radians(params.shear_x), shear_y = radians(params.shear_y);
  const double x = center.x + static_cast<double>(params.translate_x);
  const double y = center.y + static_cast<double>(params.translate_y);
  // The matrix without the scale, made of rotation and shears: [[a, b], [c, d]]. Its determinant is
  // 1.
  const double a = std::cos(rotation - shear_y) / std::cos(shear_y);
  const double b = -(a * std::tan(shear_x) + std::sin(rotation));
  const double c = std::sin(rotation - shear_y) / std::cos(shear_y);
  const double d = std::cos(rotation) - c * std::tan(shear_x);
  const double scale = params.scale;
  AffineMatrix m{d / scale, -b / scale, 0.0, -c / scale, a / scale, 0.0};
  m[2] += center.x - m[0] * x - m[1] * y;
  m[5] += center.y - m[3] * x - m[4] * y;
  return m;
}

Image warped(const Image& image, const AffineMatrix& matrix, std::int64_t height,
             std::int64_t width, Interpolation interpolation, FillColour fill) {
  Image out = filled_like(image, height, width, fill);
  const bool is_grey = image.channels == 1;
  if (interpolation == Interpolation::nearest) {
    is_grey ? affine_nearest<1>(image, matrix, out) : affine_nearest<3>(image, matrix, out);
  } else {
    is_grey ? affine_bilinear<1>(image, matrix, out) : affine_bilinear<3>(image, matrix, out);
  }
  return out;
}

Image rotated(const Image& image, double angle, Interpolation interpolation, bool expand,
              const Point* center, FillColour fill) {
  angle = std::fmod(angle, 360.0);
  if (angle < 0) angle += 360.0;
  if (!center) {
    if (angle == 0) return image;
    if (angle == 180) {
      Image out = image;
      flip_horizontally(out);
      flip_vertically(out);
      return out;
    }
    if ((angle == 90 || angle == 270) && (expand || image.width == image.height)) {
      return image.channels == 1 ? transposed<1>(image, angle == 90, angle == 270)
                                 : transposed<3>(image, angle == 90, angle == 270);
    }
  }
  auto width = static_cast<double>(image.width), height = static_cast<double>(image.height);
  const Point around = center ? *center : Point{width / 2, height / 2};
  const double turn = -radians(angle);
  AffineMatrix m{rounded_to_15_places(std::cos(turn)),  rounded_to_15_places(std::sin(turn)), 0.0,
                 rounded_to_15_places(-std::sin(turn)), rounded_to_15_places(std::cos(turn)), 0.0};
  const Point moved = mapped(m, -around.x, -around.y);
  m[2] = moved.x + around.x;
  m[5] = moved.y + around.y;
  if (expand) {
    const std::array<Point, 4> corners = {mapped(m, 0, 0), mapped(m, width, 0),
                                          mapped(m, width, height), mapped(m, 0, height)};
    const auto span = [&](double Point::*axis) {
      double low = corners[0].*axis, high = low;
      for (const Point& corner : corners) {
        low = std::min(low, corner.*axis);
        high = std::max(high, corner.*axis);
      }
      return std::ceil(high) - std::floor(low);
    };
    const double new_width = span(&Point::x), new_height = span(&Point::y);
    const Point shifted = mapped(m, -(new_width - width) / 2.0, -(new_height - height) / 2.0);
    m[2] = shifted.x;
    m[5] = shifted.y;
    width = new_width;
    height = new_height;
  }
  return warped(image, m, static_cast<std::int64_t>(height), static_cast<std::int64_t>(width),
                interpolation, fill);
}

namespace {

/// Returns the weights of v2.functional.gaussian_blur along one axis. They are a softmax over the
/// squares of positions that span (size - 1) / sqrt(2).
std::vector<float> gaussian_weights(std::int64_t size, double sigma) {
  std::vector<double> weights;
  const double limit = static_cast<double>(size - 1) / (2.0 * std::numbers::sqrt2);
  double sum = 0;
  for (std::int64_t i = 0; i < size; ++i) {
    const double at =
        size == 1 ? 0.0
                  : -limit + 2 * limit * static_cast<double>(i) / static_cast<double>(size - 1);
    weights.push_back(std::exp(-(at / sigma) * (at / sigma)));
    sum += weights.back();
  }
  std::vector<float> result;
  for (const double weight : weights) result.push_back(static_cast<float>(weight / sum));
  return result;
}

}  // namespace

Image gaussian_blurred(const Image& image, Size2 kernel, double sigma_x, double sigma_y) {
  assert(kernel.h % 2 == 1 && kernel.w % 2 == 1 && sigma_x > 0 && sigma_y > 0);
  const std::vector<float> across = gaussian_weights(kernel.w, sigma_x);
  const std::vector<float> down = gaussian_weights(kernel.h, sigma_y);
  const Image wide = padded(image, {kernel.w / 2, kernel.h / 2, kernel.w / 2, kernel.h / 2},
                            PaddingMode::reflect, {});
  const std::int64_t channels = image.channels, row = image.width * channels;
  const auto row_size = static_cast<std::size_t>(row);
  std::vector<float> narrow(static_cast<std::size_t>(wide.height) * row_size);
  for (std::int64_t y = 0; y < wide.height; ++y) {
    const std::uint8_t* from = wide.pixels.data() + y * wide.width * channels;
    float* to = narrow.data() + y * row;
    for (std::size_t k = 0; k < across.size(); ++k) {
      const float weight = across[k];
      const std::uint8_t* shifted = from + static_cast<std::int64_t>(k) * channels;
      for (std::size_t i = 0; i < row_size; ++i) to[i] += weight * static_cast<float>(shifted[i]);
    }
  }
  Image out = empty_like(image, image.height, image.width);
  std::vector<float> sums(row_size);
  for (std::int64_t y = 0; y < image.height; ++y) {
    std::fill(sums.begin(), sums.end(), 0.0F);
    for (std::size_t k = 0; k < down.size(); ++k) {
      const float weight = down[k];
      const float* from = narrow.data() + (y + static_cast<std::int64_t>(k)) * row;
      for (std::size_t i = 0; i < row_size; ++i) sums[i] += weight * from[i];
    }
    std::uint8_t* to = out.pixels.data() + y * row;
    for (std::size_t i = 0; i < row_size; ++i) {
      to[i] = static_cast<std::uint8_t>(std::min(std::nearbyint(sums[i]), 255.0F));
    }
  }
  return out;
}

}  // namespace dpt
