// Resizes rows as they are decoded. Reads only the inputs on which the wanted outputs depend.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/image/image.h"
#include "kernels/image/resize_rows.h"

namespace dpt {

/// One axis of a resize. The pixels [begin, end) of `in` pixels become `out` pixels. Only `count`
/// of these, from `first` on, are wanted. REQUIRES: 0 <= begin < end <= in, in pixels; 0 <= first,
/// 1 <= count <= out - first.
struct ResizeAxis {
  std::int64_t in = 0;
  double begin = 0, end = 0;
  std::int64_t out = 0;
  std::int64_t first = 0, count = 0;
  ResizeFilter filter = ResizeFilter::bilinear;
};

/// Relation of a stored image to its upright image. The stored image is resized first and turned
/// afterwards, but the passes, weights and rounding are those of a resize of the upright image.
struct StoredTurn {
  /// True if rows, or columns, run backwards in the upright image.
  bool mirrors_rows = false, mirrors_columns = false;
  bool exchanges_sides = false;  ///< true if rows are columns of the upright image
};

/// Range [begin, end) of inputs of an axis.
struct PixelRange {
  std::int64_t begin = 0, end = 0;
  std::int64_t size() const { return end - begin; }
};

/// The inputs of each wanted output and their weights, as Pillow computes them.
class ResizeTaps {
 public:
  explicit ResizeTaps(const ResizeAxis& axis, bool is_mirrored = false);
  /// Returns the range of inputs that are read.
  PixelRange range() const { return range_; }
  /// Returns true if the outputs equal the inputs in range(), one by one.
  bool is_identity() const { return identity_; }
  std::int64_t count() const { return static_cast<std::int64_t>(first_.size()); }
  /// These two return the first input of an output, relative to range().begin, and its number of
  /// inputs.
  std::int64_t first(std::int64_t output) const { return first_[output]; }
  std::int64_t length(std::int64_t output) const { return length_[output]; }
  /// Returns the maximum number of inputs of an output.
  std::int64_t longest() const { return longest_; }
  /// Returns length(output) weights in units of 2^-22, followed by zeros up to longest().
  const std::int32_t* weights(std::int64_t output) const { return weights_.data() + output * row_; }

 private:
  void mirror(std::int64_t in);
  void take_inputs(const ResizeAxis& axis);
  void take_nearest(const ResizeAxis& axis);
  template <class Kernel>
  void take_weighted(const ResizeAxis& axis, double radius, Kernel kernel);

  PixelRange range_;
  bool identity_ = false;
  std::int64_t longest_ = 0, row_ = 1;
  std::vector<std::int32_t> first_, length_;
  std::vector<std::int32_t> weights_;  // (count, row_), row_ >= longest_, 0 after length
};

/// Resizer that takes the rows of an image from top to bottom. Not thread-safe.
class RowResizer {
 public:
  using Vectors = resize_rows::Vectors;

  /// `vectors` does not change the bits. REQUIRES: this processor has these instructions, and both
  /// axes have the same filter.
  RowResizer(const ResizeAxis& rows, const ResizeAxis& columns, std::int64_t channels,
             Vectors vectors = resize_rows::best_vectors(), const StoredTurn& turn = {});
  /// These two return the ranges of rows and columns that are needed.
  PixelRange rows() const { return rows_.range(); }
  PixelRange columns() const { return columns_.range(); }
  /// Returns how many bytes after the last pixel of a row must be readable. Their values do not
  /// matter.
  std::int64_t bytes_beyond() const { return height_first_ ? 0 : beyond_; }
  /// Adds the next `count` of rows(), which are `stride` bytes apart. `row` points to the first
  /// row's pixel at columns().begin.
  void add(const std::uint8_t* row, std::size_t stride, std::int64_t count);
  /// Writes all outputs, (rows.count, columns.count, channels). REQUIRES: all of rows() were added.
  void write(std::span<std::byte> to) const;

 private:
  void pack_columns();
  void pack_places();
  /// Runs the pass along a row. `to` must have room for written_bytes_ bytes.
  void along(const std::uint8_t* row, std::uint8_t* to) const;
  /// Computes one output of the pass along columns. `to` must have room for kept_bytes_ bytes,
  /// rounded up to whole vectors.
  void down(std::int64_t output, std::span<std::int32_t> words, std::uint8_t* to) const;

  ResizeTaps rows_, columns_;
  std::int64_t channels_, beyond_ = 0, added_ = 0;
  Vectors vectors_;
  bool height_first_ = false;
  std::int64_t row_bytes_ = 0, written_bytes_ = 0;
  std::int64_t blocks_ = 0, groups_ = 0;  // counts of the packed columns; 0 blocks: not packed
  Vectors row_vectors_ = Vectors::none;   // instructions of the pass along rows
  std::vector<std::int32_t> packed_first_, packed_places_, packed_weights_;
  // Rows as added (height_first_) or already resized along rows.
  std::int64_t kept_bytes_ = 0, stride_ = 0;
  std::unique_ptr<std::uint8_t[]> kept_;  // (rows().size(), stride_)
};

/// Returns a part that is a whole image, resized.
ImagePart whole_image(std::int64_t image_height, std::int64_t image_width, std::int64_t height,
                      std::int64_t width);

/// Resizes to (height, width) like Pillow's BILINEAR (torchvision's antialias=True). It applies a
/// triangle filter as wide as the reduction along rows and along columns, and rounds to 8 bits
/// after each. As in Pillow 13, columns come first if the height shrinks more than twice as much as
/// the width. Earlier versions always start with rows, which can change a result by 1. `to` has
/// room for height * width * image.channels bytes.
void resize_bilinear(const Image& image, std::int64_t height, std::int64_t width,
                     std::span<std::byte> to);

/// Returns a part of an image. It has the bits of a crop to `box`, a resize, and a crop to
/// `window`. Ignores `exact`.
Image part_of(const ImageView& image, const ImagePart& part);

/// Does the same as part_of, for an image that is turned afterwards.
Image part_of_stored(const ImageView& image, const ImagePart& part, const StoredTurn& turn);

}  // namespace dpt
