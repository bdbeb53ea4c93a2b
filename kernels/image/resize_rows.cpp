// Packs weights for the vector loops of resize_rows.h, and chooses between the loops.
#include "kernels/image/resize_rows.h"

#include <algorithm>
#include <array>

#include "kernels/base/cpu_features.h"

namespace dpt::resize_rows {
namespace {

std::int32_t high_pair(std::int32_t first, std::int32_t second) {
  return first >> kLowBits | second >> kLowBits << 16;
}

std::int32_t low_pair(std::int32_t first, std::int32_t second) {
  constexpr std::int32_t kMask = (1 << kLowBits) - 1;
  return (first & kMask) | (second & kMask) << 16;
}

/// Returns the words of the parts a, b and c of four weights.
std::array<std::int32_t, 3> digits(const std::int32_t* weights) {
  std::array<std::uint32_t, 3> words{};
  for (int i = 0; i < 4; ++i) {
    std::int32_t rest = weights[i];
    for (int part = 2; part >= 0; --part) {
      // Take the signed byte with the lowest bits.
      const auto digit = static_cast<std::int8_t>(rest & 0xff);
      words[part] |= static_cast<std::uint32_t>(digit & 0xff) << 8 * i;
      rest = (rest - digit) >> kDigitBits;
    }
  }
  return {static_cast<std::int32_t>(words[0]), static_cast<std::int32_t>(words[1]),
          static_cast<std::int32_t>(words[2])};
}

}  // namespace

Vectors best_vectors() {
  static const Vectors best = [] {
    const CpuFeatures features = CpuFeatures::detect();
    return features.vnni ? Vectors::vnni : features.avx2 ? Vectors::avx2 : Vectors::none;
  }();
  return best;
}

std::int64_t inputs_of_group(Vectors vectors, std::int64_t channels) {
  return vectors == Vectors::avx2 && channels == 3 ? 2 : 4;
}

std::int64_t words_of_group(Vectors vectors, std::int64_t channels) {
  if (vectors == Vectors::avx2) return channels == 3 ? 64 : 32;
  return channels == 3 ? 96 : 24;
}

void pack_group(Vectors vectors, std::int64_t channels, const std::int32_t* weights,
                std::int64_t lane, std::int32_t* words) {
  const std::int32_t* w = weights;
  if (vectors == Vectors::avx2 && channels == 3) {
    std::int32_t* four = words + lane % 4 * 16 + lane / 4 * 4;
    std::fill_n(four, 4, high_pair(w[0], w[1]));
    std::fill_n(four + 8, 4, low_pair(w[0], w[1]));
  } else if (vectors == Vectors::avx2) {
    words[lane] = high_pair(w[0], w[2]);
    words[lane + 8] = low_pair(w[0], w[2]);
    words[lane + 16] = high_pair(w[1], w[3]);
    words[lane + 24] = low_pair(w[1], w[3]);
  } else {
    for (const std::int32_t word : digits(w)) {
      if (channels == 3) {
        std::fill_n(words + lane / 4 * 48 + lane % 4 * 4, 4, word);
        words += 16;
      } else {
        words[lane] = word;
        words += 8;
      }
    }
  }
}

void pack_places(const std::int32_t* first, std::int32_t* places) {
  // For each channel, an output gets a word whose bytes are the places of four pixels. It also gets
  // an unused fourth word.
  for (std::int64_t output = 0; output < kBlock; ++output) {
    for (int channel = 0; channel < 4; ++channel) {
      std::uint32_t word = 0;
      for (int pixel = 0; channel < 3 && pixel < 4; ++pixel) {
        const std::int32_t place = first[output] - first[0] + 3 * pixel + channel;
        word |= static_cast<std::uint32_t>(place) << 8 * pixel;
      }
      *places++ = static_cast<std::int32_t>(word);
    }
  }
}

bool fits_places(const std::int32_t* first) {
  return first[kBlock - 1] - first[0] + 12 <= 64;
}

std::int64_t bytes_read_beyond(Vectors vectors, std::int64_t channels, std::int64_t groups) {
  return inputs_of_group(vectors, channels) * channels * groups + 64;
}

void along_row(Vectors vectors, std::int64_t channels, const std::uint8_t* from,
               const PackedTaps& taps, std::uint8_t* to) {
  if (vectors == Vectors::avx2) {
    (channels == 3 ? along_row_rgb_avx2 : along_row_grey_avx2)(from, taps, to);
  } else {
    (channels == 3 ? along_row_rgb_vnni : along_row_grey_vnni)(from, taps, to);
  }
}

void pack_column(Vectors vectors, const std::int32_t* weights, std::int64_t length,
                 std::int32_t* words) {
  if (vectors == Vectors::avx2) {
    for (std::int64_t y = 0; y < length; y += 2) {
      const std::int32_t second = y + 1 < length ? weights[y + 1] : 0;
      *words++ = high_pair(weights[y], second);
      *words++ = low_pair(weights[y], second);
    }
    return;
  }
  for (std::int64_t y = 0; y < length; y += 4) {
    std::int32_t four[4] = {};
    std::copy_n(weights + y, std::min<std::int64_t>(4, length - y), four);
    const auto parts = digits(four);
    words = std::copy(parts.begin(), parts.end(), words);
  }
}

void along_columns(Vectors vectors, const std::uint8_t* from, std::int64_t stride,
                   const std::int32_t* words, std::int64_t length, std::int64_t bytes,
                   std::uint8_t* to) {
  (vectors == Vectors::avx2 ? along_columns_avx2 : along_columns_vnni)(from, stride, words, length,
                                                                       bytes, to);
}

}  // namespace dpt::resize_rows
