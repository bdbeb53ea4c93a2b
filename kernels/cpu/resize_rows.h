// The inner loops of an antialiased resize of 8-bit pixels (engine/data/resize.h): weighted sums in
// integers, so that every instruction set gives the same bits. A weight is in units of 2^-22 and
// at most 2^22; a sum of products with pixels is taken modulo 2^32 and rounded to 8 bits.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dpt::resize_rows {

/// Bits of a weight after the point: 8 bits of pixel and 2 of headroom fill a word of 32.
inline constexpr int kPrecision = 32 - 8 - 2;
/// Vector instructions multiply pairs of 16-bit numbers: a weight is high * 2^11 + low.
inline constexpr int kLowBits = 11;

/// Two weights, of neighbouring inputs, as 16-bit numbers in one word; the first is the lower half.
constexpr std::int32_t high_pair(std::int32_t first, std::int32_t second) {
  return first >> kLowBits | second >> kLowBits << 16;
}
constexpr std::int32_t low_pair(std::int32_t first, std::int32_t second) {
  constexpr std::int32_t kMask = (1 << kLowBits) - 1;
  return (first & kMask) | (second & kMask) << 16;
}

/// Outputs of a pass along rows are made in blocks of so many.
inline constexpr std::int64_t kBlock = 8;
/// Words of the weights of one block for each group of inputs (RGB: two, grey: four).
inline constexpr std::int64_t kBlockWords = 64;
/// Bytes that a pass along columns handles at a time.
inline constexpr std::int64_t kColumns = 32;

/// Packed weights of a pass along rows: for each block and group of inputs kBlockWords words, made
/// of the pairs of high and low parts. `first` has the byte of its first input for every output of
/// every block.
///
/// RGB, groups of two inputs: for each q < 4 eight words of high and eight of low parts, four times
/// the pair of output q, then four times that of output q + 4.
/// Grey, groups of four inputs: for inputs 0 and 2, then for inputs 1 and 3, eight words of high
/// and eight of low parts, one for each output; the second half is not used.
struct PackedTaps {
  const std::int32_t* first;
  const std::int32_t* weights;
  std::int64_t blocks, groups;
};

/// Bytes that along_rows_* may read behind the last input of a row, and write behind the last
/// output of the last block.
constexpr std::int64_t bytes_read_beyond(std::int64_t groups) {
  return 6 * groups + 16;
}
inline constexpr std::int64_t kBytesWrittenBeyond = 4;

/// One row of RGB pixels to 3 * kBlock * blocks bytes; `to` is written in order. REQUIRES, as all
/// that follow: CpuFeatures::avx2.
void along_row_rgb_avx2(const std::uint8_t* from, const PackedTaps& taps, std::uint8_t* to);
/// One row of grey pixels to kBlock * blocks bytes.
void along_row_grey_avx2(const std::uint8_t* from, const PackedTaps& taps, std::uint8_t* to);
/// One row of outputs from 2 * pairs rows that are `stride` bytes apart: `bytes` (a multiple of
/// kColumns) of each. `weights` has a high and a low word for each pair of rows; the last row of an
/// odd number is its own pair (is_odd).
void along_columns_avx2(const std::uint8_t* from, std::int64_t stride, const std::int32_t* weights,
                        std::int64_t pairs, bool is_odd, std::int64_t bytes, std::uint8_t* to);

}  // namespace dpt::resize_rows
