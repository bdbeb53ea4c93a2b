// The inner loops of decoding a baseline JPEG (kernels/image/jpeg/baseline_jpeg.h): from Huffman
// codes to coefficients, the inverse DCT, upsampling of colours, and conversion to RGB. The results
// have the same bits as those of libjpeg-turbo's default methods (JDCT_ISLOW, fancy upsampling).
// The codes and the order of coefficients are from ITU-T T.81, and the formulas from libjpeg's
// jidctint.c, jidctred.c, jdsample.c and jdcolor.c.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/image/jpeg/jpeg_codes.h"

namespace dpt::jpeg_loops {

/// Positions of the coefficients in the order of the file. Surplus coefficients of a faulty file go
/// to the last position.
inline constexpr std::uint8_t kOrder[80] = {
    0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,  12, 19, 26, 33,
    40, 48, 41, 34, 27, 20, 13, 6,  7,  14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36,
    29, 22, 15, 23, 30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54,
    47, 55, 62, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63};

/// Coefficients of a block in libjpeg's order (row by row), dequantised.
using Block = std::int16_t[64];

/// One block of an MCU.
struct BlockKind {
  const Codes* dc = nullptr;
  const Codes* ac = nullptr;
  const std::uint16_t* quantisers = nullptr;  ///< one per entry of kOrder, in the order of the file
  int component = 0;
  bool is_wanted = true;  ///< true if its coefficients are stored
};

inline constexpr int kMaxBlocks = 6;

/// State of the decoder. kBytesBeyond zeros must follow the coded bytes, from which the stuffing
/// has been removed.
struct Scan {
  const std::uint8_t* next = nullptr;
  const std::uint8_t* end = nullptr;  ///< end of the coded bytes
  std::uint64_t window = 0;           ///< the next bits, highest first
  unsigned int count = 0;  ///< number of bits in `window`; they come from the bytes before `next`
  BlockKind blocks[kMaxBlocks];
  int block_count = 0;
  std::int32_t dc[3] = {};  ///< DC value of each component in the last block
  bool is_good = true;      ///< false once a fault was found

  /// Returns true if more bits were consumed than the file has.
  bool is_overrun() const { return next - count / 8 > end; }
};

/// Number of zero bytes after the coded bytes. It is more than an MCU can consume.
inline constexpr std::size_t kBytesBeyond = 2048;

/// Skips `mcus` MCUs.
void skip_mcus(Scan& scan, std::int64_t mcus);
/// Decodes one MCU. Sets has_ac[i] to true if block i has coefficients besides its mean.
void read_mcu(Scan& scan, Block* blocks, bool* has_ac);

/// Destination of a block's samples. Its rows are `stride` bytes apart. A block has 1, 2, 4 or 8
/// samples across, and as many down. This number is the `size` of the functions below.
struct BlockPlace {
  std::uint8_t* to = nullptr;
  std::ptrdiff_t stride = 0;
};
/// Fills the samples of a block that has only a mean. At size 1, fills the single sample of any
/// block.
void fill_block(std::int16_t mean, int size, BlockPlace place);
/// Computes the inverse DCT of two blocks, which may be the same. `size` is 2, 4 or 8. Returns
/// false if libjpeg's vector instructions would overflow. This cannot happen for a file encoded
/// from samples.
bool inverse_dct(const Block& a, BlockPlace of_a, const Block& b, BlockPlace of_b, int size);

/// Number of samples that the loops below handle at a time. They read and write multiples of it.
inline constexpr std::int64_t kSamples = 16;

/// Computes 3 * near + far for two rows of colour samples.
void weighted_rows(const std::uint8_t* near, const std::uint8_t* far, std::int64_t count,
                   std::int16_t* to);
void widened_row(const std::uint8_t* from, std::int64_t count, std::int16_t* to);
/// Doubles a row: turns each of its `count` samples into two, (3 * from[i] + from[i - 1] + before)
/// >> shift and (3 * from[i] + from[i + 1] + behind) >> shift. Also reads the sample before the
/// first and the one after the last.
void doubled_row(const std::int16_t* from, std::int64_t count, int before, int behind, int shift,
                 std::uint8_t* to);
/// Converts `count` pixels from Y, Cb and Cr to RGB. Writes up to 3 * (count rounded up to
/// kSamples) bytes.
void rgb_row(const std::uint8_t* y, const std::uint8_t* cb, const std::uint8_t* cr,
             std::int64_t count, std::uint8_t* to);

}  // namespace dpt::jpeg_loops
