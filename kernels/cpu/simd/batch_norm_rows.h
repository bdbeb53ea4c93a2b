// Batch normalisation of rows of channels: sums over rows, and maps of each row. The functions are
// templates over a vector of floats, and are compiled for each instruction set.
//
// An activation is (rows, channels) in memory. Neighbouring channels are adjacent, so a vector
// holds neighbouring channels of one row.
#pragma once

#include <cstdint>

#include "kernels/common/bf16.h"

namespace dpt::batch_norm {

/// The map y = x * scale + shift of every channel, followed by an optional ReLU.
struct Affine {
  const float *scale, *shift;
  bool relu;
};

/// The gradient dx = dy * scale + x * of_x + constant of every channel. If `forward` has a ReLU, dy
/// counts only where the result of `forward` is positive.
struct AffineGradient {
  Affine forward;
  const float *of_x, *constant;
};

/// The functions for activations of type T.
template <class T>
struct RowFunctions {
  /// Computes the mean of every channel and the sum of squared deviations from it, for at least one
  /// row.
  void (*moments)(const T* x, std::int64_t rows, std::int64_t channels, float* mean,
                  float* squares);
  void (*apply)(const T* x, T* y, std::int64_t rows, std::int64_t channels, const Affine& affine);
  /// Computes, for every channel, the sum of dy and the sum of dy * (x - mean).
  void (*sums)(const T* dy, const T* x, std::int64_t rows, std::int64_t channels,
               const Affine& forward, const float* mean, float* sum, float* product);
  /// Computes the gradient; dx may be the same memory as dy.
  void (*gradient)(const T* dy, const T* x, T* dx, std::int64_t rows, std::int64_t channels,
                   const AffineGradient& gradient);
};

/// The functions compiled for one instruction set.
struct RowKernels {
  const char* name;
  RowFunctions<float> f32;
  RowFunctions<Bf16> bf16;
};
extern const RowKernels kRowsAvx2, kRowsAvx512, kRowsAvx512Bf16;

/// Calls block.run<vectors, rows at once>(first channel, lanes in use of each vector) for all
/// channels, with enough independent sums to hide the latency of an addition.
template <class V, class Block>
void for_channels(std::int64_t channels, const Block& block) {
  constexpr std::int64_t kLanes = V::kLanes;
  std::int64_t c = 0;
  for (; c + 4 * kLanes <= channels; c += 4 * kLanes) block.template run<4, 1>(c, kLanes);
  for (; c + 2 * kLanes <= channels; c += 2 * kLanes) block.template run<2, 2>(c, kLanes);
  for (; c + kLanes <= channels; c += kLanes) block.template run<1, 4>(c, kLanes);
  if (c < channels) block.template run<1, 4>(c, channels - c);
}

/// Computes two sums for each vector over all rows: term(row, vector, first, second) adds a row's
/// terms, and finish(vector, first, second) receives the sums. In whole groups of kRows, row r goes
/// to accumulator r mod kRows; the remaining rows go to accumulator 0. The accumulators are added
/// in order at the end. Loops over accumulators are unrolled to keep the accumulators in registers.
template <class V, int kVectors, int kRows, class Term, class Finish>
[[gnu::always_inline]] inline void sum_rows(std::int64_t rows, const Term& term,
                                            const Finish& finish) {
  V first[kRows][kVectors], second[kRows][kVectors];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) first[r][v] = second[r][v] = V::zero();
  }
  std::int64_t row = 0;
  for (; row + kRows <= rows; row += kRows) {
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) term(row + r, v, first[r][v], second[r][v]);
    }
  }
  for (; row < rows; ++row) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) term(row, v, first[0][v], second[0][v]);
  }
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
#pragma GCC unroll 4
    for (int r = 1; r < kRows; ++r) {
      first[0][v] = first[0][v] + first[r][v];
      second[0][v] = second[0][v] + second[r][v];
    }
    finish(v, first[0][v], second[0][v]);
  }
}

template <class V, class T>
struct Moments {
  const T* x;
  std::int64_t rows, channels;
  float *mean, *squares;

  template <int kVectors, int kRows>
  void run(std::int64_t c, std::int64_t lanes) const {
    const T* from = x + c;
    // Use deviations from the first row to avoid differences of large numbers.
    V pivot[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) pivot[v] = V::load(from + v * V::kLanes, lanes);
    const auto term = [&](std::int64_t row, int v, V& sum, V& square) {
      const V deviation = V::load(from + row * channels + v * V::kLanes, lanes) - pivot[v];
      sum = sum + deviation;
      square = V::fma(deviation, deviation, square);
    };
    const V share = V::filled(1.0F / static_cast<float>(rows));
    sum_rows<V, kVectors, kRows>(rows, term, [&](int v, V sum, V square) {
      const V shift = sum * share;
      (pivot[v] + shift).store(mean + c + v * V::kLanes, lanes);
      (square - sum * shift).at_least_zero().store(squares + c + v * V::kLanes, lanes);
    });
  }
};

template <class V, class T>
struct Apply {
  const T* x;
  T* y;
  std::int64_t rows, channels;
  const Affine& affine;

  template <int kVectors, int kRows>
  void run(std::int64_t c, std::int64_t lanes) const {
    V scale[kVectors], shift[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      scale[v] = V::load(affine.scale + c + v * V::kLanes, lanes);
      shift[v] = V::load(affine.shift + c + v * V::kLanes, lanes);
    }
    const auto map = [&](const auto& finish) {
      for (std::int64_t row = 0; row < rows; ++row) {
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) {
          const std::int64_t at = row * channels + c + v * V::kLanes;
          finish(V::fma(V::load(x + at, lanes), scale[v], shift[v])).store(y + at, lanes);
        }
      }
    };
    if (affine.relu) {
      map([](V value) { return value.relu(); });
    } else {
      map([](V value) { return value; });
    }
  }
};

template <class V, class T>
struct Sums {
  const T *dy, *x;
  std::int64_t rows, channels;
  const Affine& forward;
  const float* mean;
  float *sum, *product;

  template <int kVectors, int kRows>
  void run(std::int64_t c, std::int64_t lanes) const {
    V scale[kVectors], shift[kVectors], middle[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      scale[v] = V::load(forward.scale + c + v * V::kLanes, lanes);
      shift[v] = V::load(forward.shift + c + v * V::kLanes, lanes);
      middle[v] = V::load(mean + c + v * V::kLanes, lanes);
    }
    const auto add_up = [&](const auto& masked) {
      const auto term = [&](std::int64_t row, int v, V& total, V& with_x) {
        const std::int64_t at = row * channels + c + v * V::kLanes;
        const V here = V::load(x + at, lanes);
        const V gradient = masked(V::load(dy + at, lanes), V::fma(here, scale[v], shift[v]));
        total = total + gradient;
        with_x = V::fma(gradient, here - middle[v], with_x);
      };
      sum_rows<V, kVectors, kRows>(rows, term, [&](int v, V total, V with_x) {
        total.store(sum + c + v * V::kLanes, lanes);
        with_x.store(product + c + v * V::kLanes, lanes);
      });
    };
    if (forward.relu) {
      add_up([](V gradient, V y) { return gradient.keep_positive(y); });
    } else {
      add_up([](V gradient, V) { return gradient; });
    }
  }
};

template <class V, class T>
struct Gradient {
  const T *dy, *x;
  T* dx;
  std::int64_t rows, channels;
  const AffineGradient& gradient;

  template <int kVectors, int kRows>
  void run(std::int64_t c, std::int64_t lanes) const {
    const Affine& forward = gradient.forward;
    V scale[kVectors], shift[kVectors], of_x[kVectors], constant[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const std::int64_t at = c + v * V::kLanes;
      scale[v] = V::load(forward.scale + at, lanes);
      shift[v] = V::load(forward.shift + at, lanes);
      of_x[v] = V::load(gradient.of_x + at, lanes);
      constant[v] = V::load(gradient.constant + at, lanes);
    }
    const auto map = [&](const auto& masked) {
      for (std::int64_t row = 0; row < rows; ++row) {
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) {
          const std::int64_t at = row * channels + c + v * V::kLanes;
          const V here = V::load(x + at, lanes);
          const V from = masked(V::load(dy + at, lanes), V::fma(here, scale[v], shift[v]));
          V::fma(from, scale[v], V::fma(here, of_x[v], constant[v])).store(dx + at, lanes);
        }
      }
    };
    if (forward.relu) {
      map([](V from, V y) { return from.keep_positive(y); });
    } else {
      map([](V from, V) { return from; });
    }
  }
};

/// Returns all functions for the vector type V. Its `load` and `store` move `lanes` numbers in f32
/// or bf16. The other lanes are zero after a load, and are not stored.
template <class V, class T>
constexpr RowFunctions<T> row_functions() {
  return {
      [](const T* x, std::int64_t rows, std::int64_t channels, float* mean, float* squares) {
        for_channels<V>(channels, Moments<V, T>{x, rows, channels, mean, squares});
      },
      [](const T* x, T* y, std::int64_t rows, std::int64_t channels, const Affine& affine) {
        for_channels<V>(channels, Apply<V, T>{x, y, rows, channels, affine});
      },
      [](const T* dy, const T* x, std::int64_t rows, std::int64_t channels, const Affine& forward,
         const float* mean, float* sum, float* product) {
        for_channels<V>(channels, Sums<V, T>{dy, x, rows, channels, forward, mean, sum, product});
      },
      [](const T* dy, const T* x, T* dx, std::int64_t rows, std::int64_t channels,
         const AffineGradient& gradient) {
        for_channels<V>(channels, Gradient<V, T>{dy, x, dx, rows, channels, gradient});
      }};
}

template <class V>
constexpr RowKernels row_kernels(const char* name) {
  return {name, row_functions<V, float>(), row_functions<V, Bf16>()};
}

}  // namespace dpt::batch_norm
