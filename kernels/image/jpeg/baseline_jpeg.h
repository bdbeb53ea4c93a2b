// Decodes baseline JPEG files without libjpeg. Reading photos mostly consists of decoding Huffman
// codes, and this decoder does that in about half the time. The decoded bits equal libjpeg-turbo's.
// Unusual and faulty files are left to libjpeg, which also reports and salvages damage.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>

#include <jpeglib.h>

#include "kernels/image/jpeg/jpeg_loops.h"
#include "kernels/image/resize.h"

namespace dpt {

/// Decoder of a part of a JPEG. A thread may have only one at a time, because each reuses the
/// memory of the one before it.
class BaselineJpeg {
 public:
  /// `info` must have read only the header of the file. The rows and columns are those of the image
  /// at `eighths` (1, 2, 4 or 8) of its size. `grey` is true if only the luma is needed.
  BaselineJpeg(const jpeg_decompress_struct& info, int eighths, PixelRange rows, PixelRange columns,
               bool grey);

  /// Decodes the rows and columns. Returns false if the file has a fault above or in the last row,
  /// if the part is large, if the processor lacks AVX2, or if the file is of an unsupported kind.
  /// Supported files are baseline files of one scan without restart markers. They must be grey, or
  /// YCbCr with colours sampled 4:4:4, 4:2:0 or, at full size, 4:2:2.
  bool decode();

  /// Returns the column of the first pixel of rows(). It is at most the first requested column.
  std::int64_t left() const { return mcu_columns_.begin * mcu_width_; }
  /// Returns the number of bytes from one row to the next.
  std::size_t stride() const;
  /// Returns `count` rows (a few), beginning with row `top`. They are valid until the next call. Up
  /// to `beyond` bytes after the last requested column may be read.
  const std::uint8_t* rows(std::int64_t top, std::int64_t count, std::int64_t beyond);

 private:
  struct Workspace;
  /// Samples of one component in the decoded MCUs.
  struct Plane {
    std::int64_t across = 1, down = 1;  ///< blocks of an MCU, across and down
    std::int64_t block = DCTSIZE;       ///< samples of a block, across and down
    std::int64_t stride = 0;
    std::int64_t height = 0, width = 0;  ///< samples of the whole image, down and across
  };

  static Workspace& workspace();
  bool is_of_the_kind() const;
  bool find_codes();
  bool find_coded_bytes();
  void read_mcu(std::int64_t row, std::int64_t column);
  std::uint8_t* plane_row(int component, std::int64_t row) const;
  /// Returns a row of colour samples as wide as the luma.
  const std::uint8_t* colour_row(int component, std::int64_t row);

  const jpeg_decompress_struct& info_;
  Workspace& memory_;
  int eighths_;
  PixelRange rows_, columns_;
  int components_;  ///< number of components that are needed
  std::int64_t mcu_width_ = 0, mcu_height_ = 0, mcus_per_row_ = 0;
  PixelRange mcu_rows_, mcu_columns_;
  Plane planes_[3];
  jpeg_loops::Scan scan_;
};

}  // namespace dpt
