// Baseline JPEG files, decoded without libjpeg: most of the time of reading photos is the decoding
// of Huffman codes, which takes about half as long here. The bits are libjpeg-turbo's. Whatever is
// unusual or faulty is left to libjpeg, whose messages and salvaging count.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>

#include <jpeglib.h>

#include "kernels/image/jpeg/jpeg_loops.h"
#include "kernels/image/resize.h"

namespace dpt {

/// A part of a JPEG. A thread has one at a time, whose memory its next one uses again.
class BaselineJpeg {
 public:
  /// `info` has read the header of the file and nothing else. The rows and columns are those of the
  /// image at `eighths` (1, 2, 4 or 8) of its size. `grey`: only the luma is wanted.
  BaselineJpeg(const jpeg_decompress_struct& info, int eighths, PixelRange rows, PixelRange columns,
               bool grey);

  /// Decodes the rows and columns. False for a file that is not faultless up to the last of the
  /// rows, or not of the kind: baseline, in one scan, without restart markers; grey, or YCbCr with
  /// colours sampled 4:4:4, 4:2:0 or, at full size, 4:2:2. Or if the processor lacks AVX2, or the
  /// part is large.
  bool decode();

  /// The column of the first pixel of rows(), at most the first one asked for.
  std::int64_t left() const { return mcu_columns_.begin * mcu_width_; }
  /// Bytes from one row to the next.
  std::size_t stride() const;
  /// Row `top` and those below it, `count` in all: a few. Valid until the next call.
  /// Behind the last of the columns asked for, `beyond` bytes may be read.
  const std::uint8_t* rows(std::int64_t top, std::int64_t count, std::int64_t beyond);

 private:
  struct Workspace;
  /// Samples of one component at the MCUs that are decoded.
  struct Plane {
    std::int64_t across = 1, down = 1;  ///< blocks of an MCU
    std::int64_t block = DCTSIZE;       ///< samples of a block, across and down
    std::int64_t stride = 0;
    std::int64_t height = 0, width = 0;  ///< size of the whole image
  };

  static Workspace& workspace();
  bool is_of_the_kind() const;
  bool find_codes();
  bool find_coded_bytes();
  void read_mcu(std::int64_t row, std::int64_t column);
  std::uint8_t* plane_row(int component, std::int64_t row) const;
  /// A row of colours as wide as the luma.
  const std::uint8_t* colour_row(int component, std::int64_t row);

  const jpeg_decompress_struct& info_;
  Workspace& memory_;
  int eighths_;
  PixelRange rows_, columns_;
  int components_;  ///< that are wanted
  std::int64_t mcu_width_ = 0, mcu_height_ = 0, mcus_per_row_ = 0;
  PixelRange mcu_rows_, mcu_columns_;
  Plane planes_[3];
  jpeg_loops::Scan scan_;
};

}  // namespace dpt
