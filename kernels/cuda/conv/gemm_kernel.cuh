// Kernel of the implicit product, for implicit_gemm_{f32,tf32,bf16}.cu. See implicit_gemm.h for the
// product and gemm_operands.cuh for the layout of factors in shared memory.
//
// A block computes one tile of the product in steps of kGemmWords words of k. While it multiplies
// one step from shared memory, it loads the next step from memory into registers and computes the
// table of places (offsets of pixels or taps) of the step after that. So shared memory holds two
// steps and two tables. Every element is summed in the order of k by one thread or warp, so the
// bits do not depend on timing.
#pragma once

#include "kernels/cuda/conv/gemm_math.cuh"
#include "kernels/cuda/conv/gemm_store.cuh"

namespace dpt::gemm {

/// Sums of one thread on tensor cores. The four warps share the tile: each computes kRows /
/// kWarpsDown rows times kColumns * kWarpsDown / 4 columns.
template <class Math, int kRows, int kColumns, bool kPanelA, bool kPanelB>
class TensorSums {
 public:
  /// Distance in lanes from one row to the next.
  static constexpr unsigned kLanesApart = 4;

  /// Adds the products of one step, whose first `halves` halves (1 or 2) contain data.
  __device__ void add(const std::uint32_t* a_tile, const std::uint32_t* b_tile, int halves) {
    for (int half = 0; half < halves; ++half) {
      // The instruction multiplies words t and t + 4 of the depth in lane t, but any assignment of
      // words gives the same sum if both factors use it. Lane t takes words 4t to 4t + 3 for two
      // instructions, so it reads them as one quad.
      const int quad = half * 4 + lane() % 4;
      std::uint32_t b[kDown8][4];
#pragma unroll
      for (int j = 0; j < kDown8; ++j) {
        read_words<kPanelB, kColumns>(b_tile, first_column() + 8 * j + lane() / 4, quad, b[j]);
      }
#pragma unroll
      for (int i = 0; i < kDown16; ++i) {
        std::uint32_t upper[4], lower[4];
        const int row = first_row() + 16 * i + lane() / 4;
        read_words<kPanelA, kRows>(a_tile, row, quad, upper);
        read_words<kPanelA, kRows>(a_tile, row + 8, quad, lower);
#pragma unroll
        for (int step = 0; step < 2; ++step) {
          const std::uint32_t a[4] = {upper[2 * step], lower[2 * step], upper[2 * step + 1],
                                      lower[2 * step + 1]};
#pragma unroll
          for (int j = 0; j < kDown8; ++j) {
            Math::mma(sums_[i][j], a, {b[j][2 * step], b[j][2 * step + 1]});
          }
        }
      }
    }
  }

  /// Calls use(row, column, value, value at column + 1) for every pair of sums.
  template <class Use>
  __device__ void for_pairs(const Use& use) const {
#pragma unroll
    for (int i = 0; i < kDown16; ++i) {
#pragma unroll
      for (int j = 0; j < kDown8; ++j) {
        const int row = first_row() + 16 * i + lane() / 4;
        const int column = first_column() + 8 * j + lane() % 4 * 2;
        use(row, column, sums_[i][j][0], sums_[i][j][1]);
        use(row + 8, column, sums_[i][j][2], sums_[i][j][3]);
      }
    }
  }

 private:
  static constexpr int kWarpsDown = kRows == 128 ? 4 : 2;
  static constexpr int kWarpRows = kRows / kWarpsDown, kWarpColumns = kColumns * kWarpsDown / 4;
  static constexpr int kDown16 = kWarpRows / 16, kDown8 = kWarpColumns / 8;

  __device__ static int lane() {
    return static_cast<int>(threadIdx.x) % 32;
  }
  __device__ static int warp() {
    return static_cast<int>(threadIdx.x) / 32;
  }
  __device__ static int first_row() {
    return warp() % kWarpsDown * kWarpRows;
  }
  __device__ static int first_column() {
    return warp() / kWarpsDown * kWarpColumns;
  }

  float sums_[kDown16][kDown8][4] = {};
};

/// Sums of one thread by ordinary arithmetic: every 16th row and every 8th pair of columns.
template <int kRows, int kColumns, bool kPanelA, bool kPanelB>
class ScalarSums {
 public:
  static constexpr unsigned kLanesApart = 8;

  __device__ void add(const std::uint32_t* a_tile, const std::uint32_t* b_tile, int halves) {
    for (int quad = 0; quad < 4 * halves; ++quad) {
      std::uint32_t b[kAcross][4];
#pragma unroll
      for (int j = 0; j < kAcross; ++j) {
        read_words<kPanelB, kColumns>(b_tile, column(j), quad, b[j]);
      }
#pragma unroll
      for (int i = 0; i < kDown; ++i) {
        std::uint32_t a[4];
        read_words<kPanelA, kRows>(a_tile, row(i), quad, a);
#pragma unroll
        for (int word = 0; word < 4; ++word) {
#pragma unroll
          for (int j = 0; j < kAcross; ++j) {
            sums_[i][j] = fmaf(__builtin_bit_cast(float, a[word]),
                               __builtin_bit_cast(float, b[j][word]), sums_[i][j]);
          }
        }
      }
    }
  }

  template <class Use>
  __device__ void for_pairs(const Use& use) const {
#pragma unroll
    for (int i = 0; i < kDown; ++i) {
#pragma unroll
      for (int j = 0; j < kAcross; j += 2) use(row(i), column(j), sums_[i][j], sums_[i][j + 1]);
    }
  }

 private:
  static constexpr int kDown = kRows / 16, kAcross = kColumns / 8;

  __device__ static int row(int i) {
    return static_cast<int>(threadIdx.x) / 8 + 16 * i;
  }
  __device__ static int column(int j) {
    return static_cast<int>(threadIdx.x) % 8 * 2 + j / 2 * 16 + j % 2;
  }

  float sums_[kDown][kAcross] = {};
};

/// Calls `with` with the number of elements of one load as a compile-time constant.
template <int kMax, class With>
__device__ inline void with_vector(int vector, const With& with) {
  if (vector >= kMax) {
    with(std::integral_constant<int, kMax>());
  } else if constexpr (kMax > 1) {
    with_vector<kMax / 2>(vector, with);
  }
}

/// Stores dweight and dbias, or one split's part of their sums.
template <class Sums>
__device__ inline void store_weights(const ConvGemm& g, const BlockPart& part, int split,
                                     int first_row, int first_column, const Sums& sums) {
  auto* out = static_cast<float*>(g.out);
  const auto put = [&](int row, int column, float value) {
    if (row >= g.pixel_group || column >= g.columns) return;
    const std::int64_t channel = part.group * g.pixel_group + row;
    if (g.splits > 1) {
      out[(split * static_cast<std::int64_t>(g.pixel_channels) + channel) * g.columns + column] =
          value;
      return;
    }
    if (column == g.taps && !g.dbias) return;
    float& to = column < g.taps ? out[channel * g.taps + column] : g.dbias[channel];
    to = g.add ? to + value : value;
  };
  sums.for_pairs([&](int row, int column, float left, float right) {
    put(first_row + row, first_column + column, left);
    put(first_row + row, first_column + column + 1, right);
  });
}

/// Layout and size of the shared memory of a block.
template <class Math, GemmTile kTile, Pass kPass>
struct Shared {
  static constexpr bool kWeights = kPass == Pass::backward_weights;
  static constexpr bool kPanelA = !kWeights, kPanelB = kPass == Pass::forward;
  static constexpr int kRows = gemm_tile_rows(kTile), kColumns = gemm_tile_columns(kTile);
  static constexpr int kStep = kGemmWords * 4 / static_cast<int>(sizeof(typename Math::Element));
  static constexpr int kWordsA = tile_words(kPanelA, kRows),
                       kWordsB = tile_words(kPanelB, kColumns);
  static constexpr int kFixedPlaces = kWeights ? kColumns : kRows;
  static constexpr std::size_t kBytes =
      2 * (kWordsA + kWordsB) * sizeof(std::uint32_t) + (kFixedPlaces + 2 * kStep) * sizeof(Place);
  static_assert(kBytes <= 48 << 10, "more would have to be allowed first");
};

/// Computes the product. Grid for forward and backward data: (tiles of pixels, tiles of columns,
/// groups * phases); for backward weights: (tiles of columns, tiles of rows, groups * splits).
template <class Math, GemmTile kTile, Pass kPass, bool kPool>
__global__ void __launch_bounds__(kGemmThreads, 3) conv_gemm(const ConvGemm g) {
  constexpr Pooled kPooled = kWhatIsPooled<kPass, kPool>;
  using Element = typename Math::Element;
  using Layout = Shared<Math, kTile, kPass>;
  constexpr bool kWeights = Layout::kWeights, kPanelA = Layout::kPanelA, kPanelB = Layout::kPanelB;
  constexpr int kRows = Layout::kRows, kColumns = Layout::kColumns, kStep = Layout::kStep;
  static_assert(kStep <= kGemmThreads && Layout::kFixedPlaces <= kGemmThreads);

  auto* a_tiles = dynamic_shared<std::uint32_t>();
  std::uint32_t* b_tiles = a_tiles + 2 * Layout::kWordsA;
  auto* fixed_places = reinterpret_cast<Place*>(b_tiles + 2 * Layout::kWordsB);
  Place* step_places = fixed_places + Layout::kFixedPlaces;

  const int thread = static_cast<int>(threadIdx.x), z = static_cast<int>(blockIdx.z);
  const int first_row = static_cast<int>(kWeights ? blockIdx.y : blockIdx.x) * kRows;
  const int first_column = static_cast<int>(kWeights ? blockIdx.x : blockIdx.y) * kColumns;
  const int phases = kPass == Pass::backward_data ? g.h.stride * g.w.stride : 1;
  const int phase = z % phases, split = kWeights ? z % g.splits : 0;
  const BlockPart part = {axis_phase<kPass>(g.h, phase / g.w.stride),
                          axis_phase<kPass>(g.w, phase % g.w.stride),
                          kWeights ? z / g.splits : z / phases};
  int k_begin = 0, k_end = g.taps;
  if constexpr (kWeights) {
    k_begin = split * g.split_pixels;
    k_end = g.pixels - k_begin < g.split_pixels ? g.pixels : k_begin + g.split_pixels;
  } else if (part.h.first_tap >= g.h.taps || part.w.first_tap >= g.w.taps) {
    k_end = 0;
  }
  const int steps = (k_end - k_begin + kStep - 1) / kStep;

  const auto fill_places = [&](int step) {
    if (thread >= kStep) return;
    const int k = k_begin + step * kStep + thread;
    step_places[step % 2 * kStep + thread] =
        kWeights ? pixel_place<kPooled>(g, part, k, k_end) : tap_place<kPooled>(g, part, k);
  };
  Carried<kRows> a_units;
  Carried<kColumns> b_units;
  const auto fetch = [&](int step) {
    const Place* places = step_places + step % 2 * kStep;
    if constexpr (kWeights) {
      with_vector<4>(g.matrix_vector, [&](auto vector) {
        fetch_matrix_major<Element, kPooled, kRows, vector()>(g, places, first_row, g.pixel_group,
                                                              a_units);
      });
      with_vector<4>(g.gathered_vector, [&](auto vector) {
        fetch_gathered_major<Element, kColumns, vector()>(
            g, fixed_places, places, g.ones ? g.taps - first_column : -1, b_units);
      });
    } else {
      with_vector<16 / static_cast<int>(sizeof(Element))>(g.gathered_vector, [&](auto vector) {
        fetch_gathered_panel<Element, kPooled, kRows, vector()>(g, fixed_places, places, a_units);
      });
      if constexpr (kPanelB) {
        with_vector<16 / static_cast<int>(sizeof(Element))>(g.matrix_vector, [&](auto vector) {
          fetch_weight_panel<Element, kColumns, vector()>(g, part, first_column, step * kStep,
                                                          b_units);
        });
      } else {
        with_vector<4>(g.matrix_vector, [&](auto vector) {
          fetch_matrix_major<Element, Pooled::no, kColumns, vector()>(g, places, first_column,
                                                                      g.columns, b_units);
        });
      }
    }
  };
  const auto put = [&](int step) {
    store_tile<Math, kPanelA, kRows>(a_tiles + step % 2 * Layout::kWordsA, a_units);
    store_tile<Math, kPanelB, kColumns>(b_tiles + step % 2 * Layout::kWordsB, b_units);
  };

  if (thread < Layout::kFixedPlaces) {
    fixed_places[thread] = kWeights ? tap_place<kPooled>(g, part, first_column + thread)
                                    : pixel_place<kPooled>(g, part, first_row + thread, g.pixels);
  }
  fill_places(0);
  __syncthreads();
  if (steps > 0) {
    fetch(0);
    fill_places(1);
    put(0);
  }
  __syncthreads();

  std::conditional_t<Math::kTensorCores, TensorSums<Math, kRows, kColumns, kPanelA, kPanelB>,
                     ScalarSums<kRows, kColumns, kPanelA, kPanelB>>
      sums;
  for (int step = 0; step < steps; ++step) {
    const bool more = step + 1 < steps;
    if (more) {
      fetch(step + 1);
      fill_places(step + 2);
    }
    const bool half_empty = k_end - k_begin - step * kStep <= kStep / 2;
    sums.add(a_tiles + step % 2 * Layout::kWordsA, b_tiles + step % 2 * Layout::kWordsB,
             half_empty ? 1 : 2);
    if (more) put(step + 1);
    __syncthreads();
  }

  const auto pixel_of = [&](int row) { return fixed_places[row]; };
  if constexpr (kWeights) {
    store_weights(g, part, split, first_row, first_column, sums);
  } else if constexpr (kPooled == Pooled::pixels) {
    store_pooled<Element>(g, part.group, pixel_of, first_column, sums);
  } else {
    store_activations<Element>(g, part.group, pixel_of, first_column, sums);
  }
}

template <class Math, GemmTile kTile, Pass kPass>
void launch_tile(bool pooled, dim3 grid, cudaStream_t stream, const ConvGemm& gemm) {
  launch(pooled ? conv_gemm<Math, kTile, kPass, true> : conv_gemm<Math, kTile, kPass, false>, grid,
         kGemmThreads, Shared<Math, kTile, kPass>::kBytes, stream, gemm);
}

template <class Math>
void launch_gemm(GemmKind kind, dim3 grid, cudaStream_t stream, const ConvGemm& gemm) {
  const auto run = [&](auto tile_launch) { tile_launch(kind.pooled, grid, stream, gemm); };
  const bool square = kind.tile == GemmTile::square;
  switch (kind.pass) {
    case Pass::forward:
      return square ? run(launch_tile<Math, GemmTile::square, Pass::forward>)
                    : run(launch_tile<Math, GemmTile::wide, Pass::forward>);
    case Pass::backward_data:
      return square ? run(launch_tile<Math, GemmTile::square, Pass::backward_data>)
                    : run(launch_tile<Math, GemmTile::wide, Pass::backward_data>);
    case Pass::backward_weights:
      return square ? run(launch_tile<Math, GemmTile::square, Pass::backward_weights>)
                    : run(launch_tile<Math, GemmTile::small, Pass::backward_weights>);
  }
}

}  // namespace dpt::gemm
