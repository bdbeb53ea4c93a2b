// Resizing in Pillow's arithmetic, so that a network trained on images resized by Pillow gets the
// same bytes. The formulas are those of Pillow, src/libImaging/Resample.c and, for nearest pixels,
// Geometry.c. No library can replace this code: libswscale, VIPS and OpenCV use other filter
// weights or other rounding, so their antialiased results differ from Pillow's in the last bits.
#include "kernels/image/resize.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>

#include "kernels/base/divide.h"
#include "kernels/base/stage_clock.h"
#include "kernels/image/image.h"
#include "kernels/image/resize_rows.h"

namespace dpt {
namespace {

using resize_rows::kBlock;
using resize_rows::kColumns;
using resize_rows::kPrecision;

std::uint8_t rounded(std::int32_t sum) {
  return static_cast<std::uint8_t>(std::clamp<std::int32_t>(sum >> kPrecision, 0, 255));
}

/// Returns Pillow's bicubic_filter.
double cubic(double x) {
  constexpr double a = -0.5;
  x = std::abs(x);
  if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
  if (x < 2.0) return (((x - 5) * x + 8) * x - 4) * a;
  return 0.0;
}

/// Computes each output pixel of a row from its inputs. `kChannels` is `channels`, or 0 if that may
/// be any number.
template <int kChannels>
void along_row(const std::uint8_t* from, const ResizeTaps& taps, std::int64_t channels,
               std::uint8_t* to) {
  const std::int64_t step = kChannels > 0 ? kChannels : channels;
  for (std::int64_t i = 0; i < taps.count(); ++i) {
    const std::int32_t* weights = taps.weights(i);
    const std::uint8_t* pixel = from + taps.first(i) * step;
    const std::int64_t length = taps.length(i);
    for (std::int64_t c = 0; c < step; ++c) {
      std::int32_t sum = 1 << (kPrecision - 1);
      for (std::int64_t x = 0; x < length; ++x) sum += pixel[x * step + c] * weights[x];
      *to++ = rounded(sum);
    }
  }
}

/// Computes one row from several rows. `sums` has room for one number per byte of `bytes`.
void along_columns(const std::uint8_t* from, std::int64_t stride, const std::int32_t* weights,
                   std::int64_t length, std::int64_t bytes, std::int32_t* sums, std::uint8_t* to) {
  std::fill_n(sums, bytes, 1 << (kPrecision - 1));
  for (std::int64_t y = 0; y < length; ++y) {
    const std::uint8_t* row = from + y * stride;
    const std::int32_t weight = weights[y];
    for (std::int64_t i = 0; i < bytes; ++i) sums[i] += row[i] * weight;
  }
  for (std::int64_t i = 0; i < bytes; ++i) to[i] = rounded(sums[i]);
}

/// Returns the same axis in reverse.
ResizeAxis mirrored(const ResizeAxis& axis) {
  ResizeAxis result = axis;
  result.begin = static_cast<double>(axis.in) - axis.end;
  result.end = static_cast<double>(axis.in) - axis.begin;
  result.first = axis.out - axis.first - axis.count;
  return result;
}

}  // namespace

ResizeTaps::ResizeTaps(const ResizeAxis& given, bool is_mirrored) {
  const ResizeAxis axis = is_mirrored ? mirrored(given) : given;
  const double size = axis.end - axis.begin;
  assert(0 <= axis.begin && size > 0 && axis.end <= static_cast<double>(axis.in));
  assert(axis.first >= 0 && axis.count > 0 && axis.first + axis.count <= axis.out);
  first_.resize(static_cast<std::size_t>(axis.count));
  if (size == static_cast<double>(axis.out) && std::floor(axis.begin) == axis.begin) {
    take_inputs(given);
    return;
  }
  if (axis.filter == ResizeFilter::nearest) {
    take_nearest(axis);
  } else if (axis.filter == ResizeFilter::bicubic) {
    take_weighted(axis, 2.0, cubic);
  } else {
    take_weighted(axis, 1.0, [](double x) { return std::max(0.0, 1.0 - std::abs(x)); });
  }
  if (is_mirrored) mirror(axis.in);
  // Both ends of a kernel move to the right with its centre, so these are the extremes.
  range_ = {first_.front(), first_.back() + length_.back()};
  for (std::int32_t& first : first_) first -= static_cast<std::int32_t>(range_.begin);
}

/// Turns the taps of a mirrored axis into those of the axis itself.
void ResizeTaps::mirror(std::int64_t in) {
  for (std::size_t i = 0; i < first_.size(); ++i) {
    first_[i] = static_cast<std::int32_t>(in) - first_[i] - length_[i];
    const auto row = weights_.begin() + static_cast<std::ptrdiff_t>(i) * row_;
    std::reverse(row, row + length_[i]);
  }
  std::reverse(first_.begin(), first_.end());
  std::reverse(length_.begin(), length_.end());
  std::vector<std::int32_t> weights;
  for (std::size_t i = first_.size(); i-- > 0;) {
    const auto row = weights_.begin() + static_cast<std::ptrdiff_t>(i) * row_;
    weights.insert(weights.end(), row, row + row_);
  }
  weights_ = std::move(weights);
}

void ResizeTaps::take_inputs(const ResizeAxis& axis) {
  identity_ = true;
  range_.begin = static_cast<std::int64_t>(axis.begin) + axis.first;
  range_.end = range_.begin + axis.count;
  longest_ = 1;
  for (std::size_t i = 0; i < first_.size(); ++i) first_[i] = static_cast<std::int32_t>(i);
  length_.assign(first_.size(), 1);
  weights_.assign(first_.size(), 1 << kPrecision);
}

void ResizeTaps::take_nearest(const ResizeAxis& axis) {
  const double scale = (axis.end - axis.begin) / static_cast<double>(axis.out);
  longest_ = 1;
  length_.assign(first_.size(), 1);
  weights_.assign(first_.size(), 1 << kPrecision);
  // Add up positions from the first output on, so that they have the same rounding errors as in
  // Pillow (ImagingScaleAffine).
  double place = axis.begin + scale * 0.5;
  for (std::int64_t i = 0; i < axis.first; ++i) place += scale;
  for (std::int32_t& first : first_) {
    first = static_cast<std::int32_t>(std::min(static_cast<std::int64_t>(place), axis.in - 1));
    place += scale;
  }
}

/// Computes inputs and weights for a `kernel` that is 0 beyond `radius`. The unit is an output
/// pixel, or an input pixel if the image is enlarged.
template <class Kernel>
void ResizeTaps::take_weighted(const ResizeAxis& axis, double radius, Kernel kernel) {
  const double scale = (axis.end - axis.begin) / static_cast<double>(axis.out);
  const double stretch = std::max(scale, 1.0);
  const double support = radius * stretch;  // in input pixels
  row_ = std::min(static_cast<std::int64_t>(std::ceil(support)) * 2 + 1, axis.in);
  length_.resize(first_.size());
  weights_.assign(first_.size() * static_cast<std::size_t>(row_), 0);
  std::vector<double> raw(static_cast<std::size_t>(row_));
  for (std::size_t i = 0; i < first_.size(); ++i) {
    const double output = static_cast<double>(axis.first) + static_cast<double>(i);
    const double center = axis.begin + (output + 0.5) * scale;
    const std::int64_t first =
        std::max<std::int64_t>(static_cast<std::int64_t>(center - support + 0.5), 0);
    const std::int64_t length =
        std::min<std::int64_t>(static_cast<std::int64_t>(center + support + 0.5), axis.in) - first;
    assert(length <= row_);
    double sum = 0;
    for (std::int64_t x = 0; x < length; ++x) {
      const double distance = (static_cast<double>(x + first) - center + 0.5) * (1.0 / stretch);
      raw[x] = kernel(distance);
      sum += raw[x];
    }
    std::int32_t* weights = weights_.data() + i * static_cast<std::size_t>(row_);
    for (std::int64_t x = 0; x < length; ++x) {
      const double weight = raw[x] / sum * (1 << kPrecision);
      weights[x] = static_cast<std::int32_t>(weight < 0 ? weight - 0.5 : weight + 0.5);
    }
    first_[i] = static_cast<std::int32_t>(first);
    length_[i] = static_cast<std::int32_t>(length);
    longest_ = std::max(longest_, length);
  }
}

RowResizer::RowResizer(const ResizeAxis& rows, const ResizeAxis& columns, std::int64_t channels,
                       Vectors vectors, const StoredTurn& turn)
    : rows_(rows, turn.mirrors_rows),
      columns_(columns, turn.mirrors_columns),
      channels_(channels),
      vectors_(vectors) {
  assert(vectors <= resize_rows::best_vectors() && rows.filter == columns.filter);
  // The vector instructions require non-negative weights.
  if (rows.filter == ResizeFilter::bicubic) vectors_ = Vectors::none;
  // Each pass rounds, so the order of passes affects the result. This is the order of Pillow 13.
  // Earlier versions always resize along rows first.
  const ResizeAxis &down = turn.exchanges_sides ? columns : rows,
                   &across = turn.exchanges_sides ? rows : columns;
  const std::int64_t fewer_rows = down.in - down.out;
  height_first_ = fewer_rows > 0 && fewer_rows > 2 * (across.in - across.out);
  if (turn.exchanges_sides) height_first_ = !height_first_;
  if (vectors_ != Vectors::none && !columns_.is_identity() && (channels == 1 || channels == 3)) {
    pack_columns();
  }
  row_bytes_ = columns_.count() * channels_;
  // Number of bytes that a pass along rows writes.
  written_bytes_ =
      std::max(row_bytes_, blocks_ * kBlock * channels_ + resize_rows::kBytesWrittenBeyond);
  kept_bytes_ = height_first_ ? columns_.range().size() * channels_ : row_bytes_;
  stride_ = align_up(height_first_ ? kept_bytes_ : written_bytes_, kColumns);
  kept_.reset(new std::uint8_t[stride_ * this->rows().size()]);
}

void RowResizer::pack_columns() {
  blocks_ = ceil_div(columns_.count(), kBlock);
  packed_first_.resize(static_cast<std::size_t>(blocks_ * kBlock));
  for (std::int64_t i = 0; i < blocks_ * kBlock; ++i) {
    // The last block may have unused outputs.
    packed_first_[i] =
        static_cast<std::int32_t>(columns_.first(std::min(i, columns_.count() - 1)) * channels_);
  }
  row_vectors_ = vectors_;
  if (vectors_ == Vectors::vnni && channels_ == 3) pack_places();
  const std::int64_t inputs = resize_rows::inputs_of_group(row_vectors_, channels_);
  const std::int64_t words = resize_rows::words_of_group(row_vectors_, channels_);
  groups_ = ceil_div(columns_.longest(), inputs);
  beyond_ = resize_rows::bytes_read_beyond(row_vectors_, channels_, groups_);
  packed_weights_.resize(static_cast<std::size_t>(blocks_ * groups_ * words));
  for (std::int64_t i = 0; i < blocks_ * kBlock; ++i) {
    const std::int32_t* weights = columns_.weights(std::min(i, columns_.count() - 1));
    std::int32_t* packed = packed_weights_.data() + i / kBlock * groups_ * words;
    for (std::int64_t x = 0; x < groups_ * inputs; x += inputs, packed += words) {
      std::int32_t group[4] = {};
      std::copy_n(weights + x, std::min(inputs, columns_.longest() - x), group);
      resize_rows::pack_group(row_vectors_, channels_, group, i % kBlock, packed);
    }
  }
}

void RowResizer::pack_places() {
  packed_places_.resize(static_cast<std::size_t>(blocks_ * resize_rows::kPlaces));
  for (std::int64_t block = 0; block < blocks_; ++block) {
    const std::int32_t* first = packed_first_.data() + block * kBlock;
    if (!resize_rows::fits_places(first)) {
      // The image becomes much narrower, so each output's inputs have to be loaded separately.
      row_vectors_ = Vectors::avx2;
      return;
    }
    resize_rows::pack_places(first, packed_places_.data() + block * resize_rows::kPlaces);
  }
}

void RowResizer::along(const std::uint8_t* row, std::uint8_t* to) const {
  if (columns_.is_identity()) {
    std::memcpy(to, row, static_cast<std::size_t>(row_bytes_));
  } else if (blocks_ > 0) {
    const resize_rows::PackedTaps taps{packed_first_.data(), packed_places_.data(),
                                       packed_weights_.data(), blocks_, groups_};
    resize_rows::along_row(row_vectors_, channels_, row, taps, to);
  } else if (channels_ == 3) {
    along_row<3>(row, columns_, 3, to);
  } else if (channels_ == 1) {
    along_row<1>(row, columns_, 1, to);
  } else {
    along_row<0>(row, columns_, channels_, to);
  }
}

void RowResizer::down(std::int64_t output, std::span<std::int32_t> words, std::uint8_t* to) const {
  const std::uint8_t* from = kept_.get() + rows_.first(output) * stride_;
  const std::int32_t* weights = rows_.weights(output);
  const std::int64_t length = rows_.length(output);
  if (rows_.is_identity()) {
    std::memcpy(to, from, static_cast<std::size_t>(kept_bytes_));
  } else if (vectors_ != Vectors::none) {
    resize_rows::pack_column(vectors_, weights, length, words.data());
    resize_rows::along_columns(vectors_, from, stride_, words.data(), length,
                               align_up(kept_bytes_, kColumns), to);
  } else {
    along_columns(from, stride_, weights, length, kept_bytes_, words.data(), to);
  }
}

void RowResizer::add(const std::uint8_t* row, std::size_t stride, std::int64_t count) {
  const StageTimer timer(DataStage::resize);
  assert(added_ + count <= rows().size());
  for (const std::int64_t end = added_ + count; added_ < end; ++added_, row += stride) {
    std::uint8_t* to = kept_.get() + added_ * stride_;
    if (height_first_) {
      std::memcpy(to, row, static_cast<std::size_t>(kept_bytes_));
    } else {
      along(row, to);
    }
  }
}

void RowResizer::write(std::span<std::byte> to) const {
  const StageTimer timer(DataStage::resize);
  assert(added_ == rows().size());
  assert(to.size() == static_cast<std::size_t>(rows_.count() * row_bytes_));
  auto* out = reinterpret_cast<std::uint8_t*>(to.data());
  std::vector<std::uint8_t> row(
      static_cast<std::size_t>(align_up(kept_bytes_, kColumns) + beyond_));
  std::vector<std::uint8_t> shortened(static_cast<std::size_t>(height_first_ ? written_bytes_ : 0));
  std::vector<std::int32_t> words(static_cast<std::size_t>(
      vectors_ == Vectors::none ? kept_bytes_ : align_up(rows_.longest(), std::int64_t{4})));
  const std::uint8_t* end = out + to.size();
  for (std::int64_t y = 0; y < rows_.count(); ++y, out += row_bytes_) {
    // The next row overwrites the bytes written after this row.
    if (!height_first_ && end - out >= align_up(kept_bytes_, kColumns)) {
      down(y, words, out);
      continue;
    }
    down(y, words, row.data());
    if (height_first_) along(row.data(), shortened.data());
    std::memcpy(out, height_first_ ? shortened.data() : row.data(),
                static_cast<std::size_t>(row_bytes_));
  }
}

namespace {

/// Passes the rows of `image` to the resizer. The top left pixel of `image` is at (top, left) of
/// the axes.
void resize_rows_of(const ImageView& image, std::int64_t top, std::int64_t left,
                    RowResizer& resizer, std::span<std::byte> to) {
  const PixelRange rows = resizer.rows(), columns = resizer.columns();
  const auto needed = static_cast<std::size_t>(columns.size() * image.channels);
  const std::size_t readable = needed + static_cast<std::size_t>(resizer.bytes_beyond());
  const auto stride = static_cast<std::size_t>(image.width * image.channels);
  const auto offset = [&](std::int64_t y) {
    return static_cast<std::size_t>(((top + y) * image.width + left + columns.begin) *
                                    image.channels);
  };
  // Copy the last rows, because the image has too few readable bytes after them.
  std::int64_t inside = rows.end;
  while (inside > rows.begin && offset(inside - 1) + readable > image.pixels.size()) --inside;
  resizer.add(image.pixels.data() + offset(rows.begin), stride, inside - rows.begin);
  std::vector<std::uint8_t> last(readable);
  for (std::int64_t y = inside; y < rows.end; ++y) {
    std::copy_n(image.pixels.data() + offset(y), needed, last.begin());
    resizer.add(last.data(), 0, 1);
  }
  resizer.write(to);
}

ResizeAxis whole_axis(std::int64_t in, std::int64_t out, std::int64_t first, std::int64_t count,
                      ResizeFilter filter = ResizeFilter::bilinear) {
  return {in, 0, static_cast<double>(in), out, first, count, filter};
}

}  // namespace

void resize_bilinear(const Image& image, std::int64_t height, std::int64_t width,
                     std::span<std::byte> to) {
  RowResizer resizer(whole_axis(image.height, height, 0, height),
                     whole_axis(image.width, width, 0, width), image.channels);
  resize_rows_of(image, 0, 0, resizer, to);
}

ImagePart whole_image(std::int64_t image_height, std::int64_t image_width, std::int64_t height,
                      std::int64_t width) {
  return {{0, 0, image_height, image_width}, height, width, {0, 0, height, width}};
}

Image part_of(const ImageView& image, const ImagePart& part) {
  return part_of_stored(image, part, {});
}

Image part_of_stored(const ImageView& image, const ImagePart& part, const StoredTurn& turn) {
  const PixelBox &box = part.box, &window = part.window;
  RowResizer resizer(whole_axis(box.height, part.height, window.top, window.height, part.filter),
                     whole_axis(box.width, part.width, window.left, window.width, part.filter),
                     image.channels, resize_rows::best_vectors(), turn);
  Image result{window.height, window.width, image.channels, {}};
  result.pixels.resize(static_cast<std::size_t>(window.height * window.width * image.channels));
  resize_rows_of(image, box.top, box.left, resizer,
                 std::as_writable_bytes(std::span(result.pixels)));
  return result;
}

}  // namespace dpt
