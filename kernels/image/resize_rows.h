// The inner loops of an antialiased resize of 8-bit pixels (kernels/image/resize.h). They are
// weighted sums in integers, so that every instruction set gives the same bits. A weight is in
// units of 2^-22, at least 0 and at most 2^22. A sum of products with pixels is taken modulo 2^32
// and rounded to 8 bits.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dpt::resize_rows {

/// Number of fractional bits of a weight. Together with 8 bits of a pixel and 2 bits of headroom,
/// they fill 32 bits.
inline constexpr int kPrecision = 32 - 8 - 2;

/// Instruction set of the loops.
enum class Vectors : std::uint8_t { none, avx2, vnni };
/// Returns the best instruction set that this processor has.
Vectors best_vectors();

// A weight has too many bits for the instructions that multiply and add neighbours, so it is split
// into parts. The sums of the parts are added at the end.
//
// AVX2 multiplies pairs of 16-bit numbers. A weight is high * 2^11 + low. One word has the same
// part of two weights, the first in its lower half.
//
// VNNI multiplies four bytes with four signed bytes. A weight is (a * 2^8 + b) * 2^8 + c, with b
// and c from -128 to 127. One word has the same part of four weights, the first in its lowest byte.
inline constexpr int kLowBits = 11, kDigitBits = 8;

/// Number of outputs in a block of a pass along rows.
inline constexpr std::int64_t kBlock = 8;
/// Number of bytes that a pass along columns handles at a time.
inline constexpr std::int64_t kColumns = 64;
/// Number of bytes that along_row may write after the last output of the last block.
inline constexpr std::int64_t kBytesWrittenBeyond = 8;

/// Packed weights of a pass along rows. Inputs are handled in groups. For each block of outputs,
/// each group has words_of_group words.
struct PackedTaps {
  const std::int32_t* first;   ///< (blocks, kBlock): byte at which each output's first input begins
  const std::int32_t* places;  ///< RGB, VNNI: (blocks, kPlaces), from pack_places
  const std::int32_t* weights;
  std::int64_t blocks, groups;
};

/// Returns the number of inputs in a group. Here and below, `channels` is 1 or 3, and `vectors` is
/// not `none`.
std::int64_t inputs_of_group(Vectors vectors, std::int64_t channels);
std::int64_t words_of_group(Vectors vectors, std::int64_t channels);
/// Stores the weights of one group for output `lane` of a block, in the order of along_row.
void pack_group(Vectors vectors, std::int64_t channels, const std::int32_t* weights,
                std::int64_t lane, std::int32_t* words);
/// Number of words for the places of a block.
inline constexpr std::int64_t kPlaces = 32;
/// Computes the places of each output's inputs for a block of RGB outputs. Places are offsets in
/// the 64 bytes that start at the first output's first input. `first` has the byte at which each
/// output's first input begins. REQUIRES: fits_places.
void pack_places(const std::int32_t* first, std::int32_t* places);
/// Returns true if, for all outputs of a block, the inputs of one group are within 64 bytes.
bool fits_places(const std::int32_t* first);
/// Returns how many bytes along_row may read after the last input of a row.
std::int64_t bytes_read_beyond(Vectors vectors, std::int64_t channels, std::int64_t groups);
/// Resizes one row to channels * kBlock * blocks bytes. Writes `to` in order.
void along_row(Vectors vectors, std::int64_t channels, const std::uint8_t* from,
               const PackedTaps& taps, std::uint8_t* to);

/// Packs the weights of `length` rows into words. There are at most `length` words, rounded up to
/// 4.
void pack_column(Vectors vectors, const std::int32_t* weights, std::int64_t length,
                 std::int32_t* words);
/// Computes one row of outputs from `length` rows that are `stride` bytes apart. Uses `bytes` bytes
/// of each row. REQUIRES: `bytes` is a multiple of kColumns.
void along_columns(Vectors vectors, const std::uint8_t* from, std::int64_t stride,
                   const std::int32_t* words, std::int64_t length, std::int64_t bytes,
                   std::uint8_t* to);

// Kernels that the functions above call. REQUIRES: CpuFeatures::avx2 or CpuFeatures::vnni,
// according to the name. A group consists of:
//
// RGB, AVX2: 64 words for two inputs. For each q < 4: eight words of high parts, then eight of low
// parts. These eight are four copies of the word of output q, then four copies of the word of
// output q + 4.
//
// Grey, AVX2: 32 words for four inputs. For inputs 0 and 2, then for inputs 1 and 3: eight words of
// high parts, then eight of low parts, one for each output.
//
// RGB, VNNI: 96 words for four inputs. For outputs 0 to 3, then for outputs 4 to 7, and each time
// for a, b and c: four copies of the word of each output. REQUIRES: fits_places for every block.
//
// Grey, VNNI: 24 words for four inputs. For each of a, b and c: one word for each output.
void along_row_rgb_avx2(const std::uint8_t* from, const PackedTaps& taps, std::uint8_t* to);
void along_row_grey_avx2(const std::uint8_t* from, const PackedTaps& taps, std::uint8_t* to);
void along_columns_avx2(const std::uint8_t* from, std::int64_t stride, const std::int32_t* words,
                        std::int64_t length, std::int64_t bytes, std::uint8_t* to);
void along_row_rgb_vnni(const std::uint8_t* from, const PackedTaps& taps, std::uint8_t* to);
void along_row_grey_vnni(const std::uint8_t* from, const PackedTaps& taps, std::uint8_t* to);
void along_columns_vnni(const std::uint8_t* from, std::int64_t stride, const std::int32_t* words,
                        std::int64_t length, std::int64_t bytes, std::uint8_t* to);

}  // namespace dpt::resize_rows
