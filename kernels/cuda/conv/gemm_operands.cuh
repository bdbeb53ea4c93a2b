// Copies the two factors of the implicit product from memory to shared memory.
//
// A factor's tile has kRows rows (columns, if it is the right factor) of kGemmWords words along k,
// the side that is summed over. A word is one fp32 number or two bf16 numbers with neighbouring k.
// The tile's layout in shared memory depends on the direction in which the factor is contiguous in
// memory:
//  - *panel*, for factors contiguous along k: [half of the words][row][16 words]. The four 16-byte
//    groups of words of a row are permuted depending on the row. Even and odd rows are exchanged in
//    the second half, and (again) in every second group of eight rows. So each of these accesses
//    touches different banks: eight rows, neighbours or every second one, at one k; two rows at all
//    four groups of words; the eight groups of words of one row.
//  - *major*, for factors contiguous along the rows: [word][row] with a pitch of kRows + 2, so that
//    words 0, 4, 8, 12 at eight neighbouring rows lie in different banks.
#pragma once

#include <type_traits>

#include "kernels/common/bf16.h"
#include "kernels/cuda/conv/implicit_gemm.h"
#include "kernels/cuda/runtime/launch.h"

namespace dpt::gemm {

/// Position of a pixel or a tap, ready to be added to one of the other kind. `offset` counts
/// elements of the gathered tensor (modulo 2^32, so that a position left of the image may be
/// "negative"). `extra` is a pixel's offset in the tensor that has the pixels, or a tap's offset in
/// the weights (backward data).
struct alignas(16) Place {
  std::uint32_t offset;
  int h, w;
  std::uint32_t extra;
};
inline constexpr int kNowhere = -(1 << 29);  // The sum of two is outside, too, without overflow.

__device__ inline Place nowhere() {
  return {0, kNowhere, kNowhere, 0};
}

/// Map from the grid indices and tap slots of one axis to positions, in one phase.
struct AxisPhase {
  int scale, base;              ///< gathered position of pixel i: i * scale + base
  int pixel_scale, pixel_base;  ///< position in the pixels' tensor: i * pixel_scale + pixel_base
  int first_tap, step;          ///< tap of slot 0; distance of gathered positions between slots
};

template <Pass kPass>
__device__ inline AxisPhase axis_phase(const GemmAxis& axis, int phase) {
  if constexpr (kPass != Pass::backward_data) {
    return {axis.stride, -axis.padding, 1, 0, 0, axis.dilation};
  }
  // dx at h has terms of dy at (h + padding - tap * dilation) / stride, where that is an integer.
  int first = 0;
  while (first < axis.tap_step && (phase + axis.padding - first * axis.dilation) % axis.stride) {
    ++first;
  }
  if (first == axis.tap_step) first = axis.taps;  // This phase has no taps.
  return {1,           (phase + axis.padding - first * axis.dilation) / axis.stride,
          axis.stride, phase,
          first,       -axis.gathered_step};
}

/// Part of the problem on which a block works, in addition to its tile.
struct BlockPart {
  AxisPhase h, w;
  int group;
};

/// Returns the index of position (h, w) of an image, modulo 2^32.
__device__ inline std::uint32_t position(std::uint32_t image, int height, int width, int h, int w) {
  return (image * static_cast<std::uint32_t>(height) + static_cast<std::uint32_t>(h)) *
             static_cast<std::uint32_t>(width) +
         static_cast<std::uint32_t>(w);
}

/// Operand that is affected by pooling inside the product.
enum class Pooled : std::uint8_t {
  no,
  pixels,    ///< the tensor with the pixels is pooled (forward, backward weights)
  gathered,  ///< the gathered tensor is pooled (backward data)
};
template <Pass kPass, bool kPooled>
inline constexpr Pooled kWhatIsPooled = !kPooled                       ? Pooled::no
                                        : kPass == Pass::backward_data ? Pooled::gathered
                                                                       : Pooled::pixels;
/// Returns which corner of its window a pixel is. The pixels of a window are consecutive.
__device__ inline int window_corner(int pixel) {
  return pixel & 3;
}

/// Returns the place of pixel `index` of the phase's grid, or nowhere() if `index` is not below
/// `end`.
template <Pooled kPooled>
__device__ inline Place pixel_place(const ConvGemm& g, const BlockPart& part, int index, int end) {
  if (index >= end) return nowhere();
  auto j = static_cast<std::uint32_t>(kPooled == Pooled::pixels ? index / 4 : index);
  const std::uint32_t image = g.per_image.split(j);
  std::uint32_t i = g.per_row.split(j);
  Place place;
  if constexpr (kPooled == Pooled::pixels) {
    place.extra =
        position(image, g.pool.height, g.pool.width, static_cast<int>(i), static_cast<int>(j)) *
            static_cast<std::uint32_t>(g.pixel_channels) +
        static_cast<std::uint32_t>(part.group * g.pixel_group);
    i = 2 * i + static_cast<std::uint32_t>(window_corner(index)) / 2;
    j = 2 * j + static_cast<std::uint32_t>(window_corner(index)) % 2;
  }
  const int own_h = static_cast<int>(i) * part.h.pixel_scale + part.h.pixel_base;
  const int own_w = static_cast<int>(j) * part.w.pixel_scale + part.w.pixel_base;
  if (own_h >= g.h.pixels || own_w >= g.w.pixels) return nowhere();
  place.h = static_cast<int>(i) * part.h.scale + part.h.base;
  place.w = static_cast<int>(j) * part.w.scale + part.w.base;
  // If the gathered tensor is pooled, leave out the position, because the sum of a pixel and a tap
  // must be halved first. load_gathered adds it.
  place.offset = (kPooled == Pooled::gathered
                      ? position(image, g.pool.height, g.pool.width, 0, 0)
                      : position(image, g.h.gathered, g.w.gathered, place.h, place.w)) *
                     static_cast<std::uint32_t>(g.gathered_channels) +
                 static_cast<std::uint32_t>(part.group * g.gathered_group);
  if constexpr (kPooled != Pooled::pixels) {
    place.extra = position(image, g.h.pixels, g.w.pixels, own_h, own_w) *
                      static_cast<std::uint32_t>(g.pixel_channels) +
                  static_cast<std::uint32_t>(part.group * g.pixel_group);
  }
  return place;
}

/// Returns the place of `index`, which counts channels within tap slots; nowhere() after the last.
template <Pooled kPooled>
__device__ inline Place tap_place(const ConvGemm& g, const BlockPart& part, int index) {
  if (index >= g.taps) return nowhere();
  auto channel = static_cast<std::uint32_t>(index);
  std::uint32_t slot = g.per_tap.split(channel);
  const auto i = static_cast<int>(g.per_tap_row.split(slot));
  const auto j = static_cast<int>(slot);
  const int r = part.h.first_tap + i * g.h.tap_step, s = part.w.first_tap + j * g.w.tap_step;
  if (r >= g.h.taps || s >= g.w.taps) return nowhere();
  Place place;
  place.h = i * part.h.step;
  place.w = j * part.w.step;
  place.offset = channel;
  if constexpr (kPooled != Pooled::gathered) {
    place.offset += position(0, 0, g.w.gathered, place.h, place.w) *
                    static_cast<std::uint32_t>(g.gathered_channels);
  }
  const std::uint32_t row = static_cast<std::uint32_t>(part.group * g.gathered_group) + channel;
  place.extra = (row * static_cast<std::uint32_t>(g.h.taps * g.w.taps) +
                 static_cast<std::uint32_t>(r * g.w.taps + s)) *
                static_cast<std::uint32_t>(g.pixel_group);
  return place;
}

__device__ inline bool inside(const ConvGemm& g, const Place& pixel, const Place& tap) {
  return static_cast<unsigned>(pixel.h + tap.h) < static_cast<unsigned>(g.h.gathered) &&
         static_cast<unsigned>(pixel.w + tap.w) < static_cast<unsigned>(g.w.gathered);
}

/// Calls use(std::integral_constant) for 0, kBy, 2 kBy, ... below kCount.
template <int kCount, int kBy, int kFirst = 0, class Use>
__device__ inline void unrolled(const Use& use) {
  if constexpr (kFirst < kCount) {
    use(std::integral_constant<int, kFirst>());
    unrolled<kCount, kBy, kFirst + kBy>(use);
  }
}

/// Loads kVector elements into `words`, starting at element kAt; zeros if `from` is null. Calls for
/// the halves of one word must be in ascending order. Elements of one byte must be loaded with a
/// single call.
template <class Element, int kVector, int kAt, int kWords>
__device__ inline void load_vector(std::uint32_t (&words)[kWords], const Element* from) {
  constexpr int kSize = static_cast<int>(sizeof(Element));
  constexpr int kBytes = kVector * kSize, kWord = kAt * kSize / 4;
  if constexpr (kBytes == 16) {
    const uint4 value = from ? *reinterpret_cast<const uint4*>(from) : uint4{0, 0, 0, 0};
    words[kWord] = value.x;
    words[kWord + 1] = value.y;
    words[kWord + 2] = value.z;
    words[kWord + 3] = value.w;
  } else if constexpr (kBytes == 8) {
    const uint2 value = from ? *reinterpret_cast<const uint2*>(from) : uint2{0, 0};
    words[kWord] = value.x;
    words[kWord + 1] = value.y;
  } else if constexpr (kBytes == 4) {
    words[kWord] = from ? *reinterpret_cast<const std::uint32_t*>(from) : 0;
  } else if constexpr (kSize == 1) {
    words[kWord] = !from ? 0 : kBytes == 2 ? *reinterpret_cast<const std::uint16_t*>(from) : *from;
  } else {
    const std::uint32_t half = from ? *reinterpret_cast<const std::uint16_t*>(from) : 0;
    words[kWord] = kAt % 2 == 0 ? half : words[kWord] | (half << 16);
  }
}

/// Multiplies element kAt of `words` by `scale`, or sets it to zero if `open` is false.
template <class Element, int kAt, int kWords>
__device__ inline void pass_open(std::uint32_t (&words)[kWords], bool open, float scale) {
  if constexpr (sizeof(Element) == 4) {
    words[kAt] =
        open ? __builtin_bit_cast(std::uint32_t, __builtin_bit_cast(float, words[kAt]) * scale) : 0;
  } else {
    constexpr int kShift = 16 * (kAt % 2);
    std::uint32_t& word = words[kAt / 2];
    const Bf16 value{static_cast<std::uint16_t>(word >> kShift)};
    const std::uint32_t bits = open ? to_bf16(to_float(value) * scale).bits : 0;
    word = (word & ~(0xFFFFU << kShift)) | bits << kShift;
  }
}

/// Does the same as load_vector for a pooled gradient: loads the values at corner `corner` of its
/// windows. `open` are the mask bytes of `from`.
template <class Element, int kVector, int kAt, int kWords>
__device__ inline void load_open(std::uint32_t (&words)[kWords], const Element* from,
                                 const std::uint8_t* open, int corner, float scale) {
  load_vector<Element, kVector, kAt>(words, from);
  if (!from) return;
  std::uint32_t bytes[2] = {};
  load_vector<std::uint8_t, kVector, 0>(bytes, open);
  unrolled<kVector, 1>([&](auto i) {
    constexpr int kByte = decltype(i)::value;
    const bool is_open = bytes[kByte / 4] >> (8 * (kByte % 4) + corner) & 1U;
    pass_open<Element, kAt + kByte>(words, is_open, scale);
  });
}

/// Interleaves two rows of four bf16, at k and k + 1, into four words.
__device__ inline void interleave(const std::uint32_t (&low)[2], const std::uint32_t (&high)[2],
                                  std::uint32_t (&words)[4]) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    words[2 * i] = (low[i] & 0xFFFFU) | (high[i] << 16);
    words[2 * i + 1] = (low[i] >> 16) | (high[i] & 0xFFFF0000U);
  }
}

/// Part of a tile of kRows rows that one thread copies: units of four words.
template <int kRows>
using Carried = std::uint32_t[kRows / 16][4];
inline constexpr int kRowsApart = kGemmThreads / 8;  // rows between a thread's units in a panel

/// Loads kVector elements of the gathered tensor at pixel + tap, from element kAt of `words` on.
template <class Element, Pooled kPooled, int kVector, int kAt, int kWords>
__device__ inline void load_gathered(std::uint32_t (&words)[kWords], const ConvGemm& g,
                                     const Place& pixel, const Place& tap) {
  const auto* from = static_cast<const Element*>(g.gathered);
  const bool there = inside(g, pixel, tap);
  std::uint32_t offset = pixel.offset + tap.offset;
  if constexpr (kPooled == Pooled::gathered) {
    const int h = pixel.h + tap.h, w = pixel.w + tap.w;
    offset += position(0, 0, g.pool.width, h >> 1, w >> 1) *
              static_cast<std::uint32_t>(g.gathered_channels);
    load_open<Element, kVector, kAt>(words, there ? from + offset : nullptr, g.pool.open + offset,
                                     (h & 1) * 2 + (w & 1), g.pool.scale);
  } else {
    load_vector<Element, kVector, kAt>(words, there ? from + offset : nullptr);
  }
}

/// Loads a panel tile of the gathered tensor; `pixels` are its rows, `taps` its k.
template <class Element, Pooled kPooled, int kRows, int kVector>
__device__ inline void fetch_gathered_panel(const ConvGemm& g, const Place* pixels,
                                            const Place* taps, Carried<kRows>& units) {
  constexpr int kElements = 16 / static_cast<int>(sizeof(Element));
  const int row = static_cast<int>(threadIdx.x) / 8,
            k = static_cast<int>(threadIdx.x) % 8 * kElements;
  unrolled<kElements, kVector>([&](auto i) {
    const Place tap = taps[k + i()];
#pragma unroll
    for (int u = 0; u < kRows / 16; ++u) {
      const Place pixel = pixels[row + u * kRowsApart];
      load_gathered<Element, kPooled, kVector, i()>(units[u], g, pixel, tap);
    }
    // Join half words before loading more, because they would not all fit into registers.
    if constexpr (kVector * sizeof(Element) == 2) __syncwarp();
  });
}

/// Loads a panel tile of the weights, starting at `row` and `k`.
template <class Element, int kRows, int kVector>
__device__ inline void fetch_weight_panel(const ConvGemm& g, const BlockPart& part, int row, int k,
                                          Carried<kRows>& units) {
  constexpr int kElements = 16 / static_cast<int>(sizeof(Element));
  row += static_cast<int>(threadIdx.x) / 8;
  k += static_cast<int>(threadIdx.x) % 8 * kElements;
  const Element* from = static_cast<const Element*>(g.matrix) +
                        static_cast<std::int64_t>(part.group * g.columns) * g.taps + k;
#pragma unroll
  for (int u = 0; u < kRows / 16; ++u) {
    const int at = row + u * kRowsApart;
    const Element* line = from + static_cast<std::int64_t>(at) * g.taps;
    unrolled<kElements, kVector>([&](auto i) {
      load_vector<Element, kVector, i()>(units[u],
                                         at < g.columns && k + i() < g.taps ? line + i() : nullptr);
    });
  }
}

/// Loads a major tile: calls load(words of four rows, first row, k) for this thread's part.
template <class Element, int kRows, class Load>
__device__ inline void fetch_major(Carried<kRows>& units, const Load& load) {
  constexpr int kUnits = kRows / 4;  // units along the rows
  const int row = static_cast<int>(threadIdx.x) % kUnits * 4;
#pragma unroll
  for (int u = 0; u < kRows / 16; ++u) {
    const int word = static_cast<int>(threadIdx.x) / kUnits + u * (kGemmThreads / kUnits);
    if constexpr (sizeof(Element) == 4) {
      load(units[u], row, word);
    } else {
      std::uint32_t low[2], high[2];
      load(low, row, 2 * word);
      load(high, row, 2 * word + 1);
      interleave(low, high, units[u]);
    }
  }
}

/// Loads a major tile of the matrix, whose rows begin at the `extra` of `places`. `first` is the
/// tile's first row, `end` the end of the matrix's rows. If pixels are pooled, the matrix is the
/// pooled gradient.
template <class Element, Pooled kPooled, int kRows, int kVector>
__device__ inline void fetch_matrix_major(const ConvGemm& g, const Place* places, int first,
                                          int end, Carried<kRows>& units) {
  const auto* from = static_cast<const Element*>(g.matrix);
  fetch_major<Element, kRows>(units, [&](auto& words, int row, int k) {
    const Place place = places[k];
    unrolled<4, kVector>([&](auto i) {
      const int at = first + row + i();
      const std::uint32_t offset = place.extra + static_cast<std::uint32_t>(at);
      const Element* address = place.h != kNowhere && at < end ? from + offset : nullptr;
      if constexpr (kPooled == Pooled::pixels) {
        load_open<Element, kVector, i()>(words, address, g.pool.open + offset, window_corner(k),
                                         g.pool.scale);
      } else {
        load_vector<Element, kVector, i()>(words, address);
      }
    });
  });
}

/// Loads a major tile of the gathered tensor; `taps` are its rows, `pixels` its k. Row `ones`,
/// unless negative, is 1 at every pixel.
template <class Element, int kRows, int kVector>
__device__ inline void fetch_gathered_major(const ConvGemm& g, const Place* taps,
                                            const Place* pixels, int ones, Carried<kRows>& units) {
  fetch_major<Element, kRows>(units, [&](auto& words, int row, int k) {
    const Place pixel = pixels[k];
    unrolled<4, kVector>([&](auto i) {
      const Place tap = taps[row + i()];
      load_gathered<Element, Pooled::no, kVector, i()>(words, g, pixel, tap);
    });
    if (pixel.h == kNowhere) return;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (row + i != ones) continue;
      if constexpr (sizeof(Element) == 4) {
        words[i] = 0x3F800000U;  // 1 as fp32
      } else {
        words[i / 2] |= 0x3F80U << (16 * (i % 2));  // 1 as bf16
      }
    }
  });
}

/// Returns the words of shared memory of one tile.
constexpr int tile_words(bool panel, int rows) {
  return kGemmWords * (panel ? rows : rows + 2);
}

/// Returns the index in a panel of the four words that start at word 4 * quad.
template <int kRows>
__device__ inline int panel_index(int row, int quad) {
  const int half = quad / 4, line = row ^ half ^ ((row >> 3) & 1);
  return half * (kRows * 16) + line * 16 + ((quad & 3) ^ ((row >> 1) & 3)) * 4;
}

/// Writes the words that the threads hold to shared memory. Math::factor converts a word to a
/// factor.
template <class Math, bool kPanel, int kRows>
__device__ inline void store_tile(std::uint32_t* tile, const Carried<kRows>& units) {
#pragma unroll
  for (int u = 0; u < kRows / 16; ++u) {
    const uint2 left = {Math::factor(units[u][0]), Math::factor(units[u][1])};
    const uint2 right = {Math::factor(units[u][2]), Math::factor(units[u][3])};
    if constexpr (kPanel) {
      const int row = static_cast<int>(threadIdx.x) / 8 + u * kRowsApart;
      const int quad = static_cast<int>(threadIdx.x) % 8;
      *reinterpret_cast<uint4*>(tile + panel_index<kRows>(row, quad)) = {left.x, left.y, right.x,
                                                                         right.y};
    } else {
      constexpr int kUnits = kRows / 4;
      const int row = static_cast<int>(threadIdx.x) % kUnits * 4;
      const int word = static_cast<int>(threadIdx.x) / kUnits + u * (kGemmThreads / kUnits);
      auto* to = reinterpret_cast<uint2*>(tile + word * (kRows + 2) + row);
      to[0] = left;
      to[1] = right;
    }
  }
}

/// Reads the words 4 * quad to 4 * quad + 3 of a row.
template <bool kPanel, int kRows>
__device__ inline void read_words(const std::uint32_t* tile, int row, int quad,
                                  std::uint32_t (&words)[4]) {
  if constexpr (kPanel) {
    const uint4 value = *reinterpret_cast<const uint4*>(tile + panel_index<kRows>(row, quad));
    words[0] = value.x;
    words[1] = value.y;
    words[2] = value.z;
    words[3] = value.w;
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) words[i] = tile[(4 * quad + i) * (kRows + 2) + row];
  }
}

}  // namespace dpt::gemm
