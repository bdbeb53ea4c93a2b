// Register tiles of all direct kernels, as templates over a vector type `V` (vec_*.h). A tile is R
// rows x N vectors of accumulators that stay in registers. These headers are compiled once per
// instruction set. Functions that are not templates over V are always inlined. Otherwise the linker
// could use a copy with wide instructions in a program that runs on an older processor.
//
// A lane of an operand holds V::kTerms values of type V::Value: one float, or a pair of bf16
// numbers. V::fma adds the products of all terms to the lane's fp32 sum, so the kernels count their
// sums in units of kTerms values.
#pragma once

#include <cstdint>

namespace dpt::direct {

/// Maximum number of rows of a tile that is N vectors wide. Narrow tiles need more rows: about
/// eight accumulators hide the latency of a multiply-add.
template <class V>
constexpr int max_rows(int vectors) {
  const int rows = V::kAccumulators / vectors;
  return rows < 8 ? rows : 8;
}
inline constexpr int kMaxVectors = 3;
template <class V>
[[gnu::always_inline]] inline std::int64_t most_rows(std::int64_t vectors) {
  return vectors == 1   ? max_rows<V>(1)
         : vectors == 2 ? max_rows<V>(2)
         : vectors == 3 ? max_rows<V>(3)
                        : max_rows<V>(4);
}

/// Partition of `total` into as few parts as possible, each at most `most`. The parts are as equal
/// as possible.
struct Split {
  std::int64_t total, parts;
  [[gnu::always_inline]] Split(std::int64_t whole, std::int64_t most)
      : total(whole), parts((whole + most - 1) / most) {}
  [[gnu::always_inline]] std::int64_t begin(std::int64_t part) const {
    return total * part / parts;
  }
  [[gnu::always_inline]] std::int64_t size(std::int64_t part) const {
    return begin(part + 1) - begin(part);
  }
};

/// Returns the number of units that hold `values` values.
template <class V>
[[gnu::always_inline]] inline std::int64_t units(std::int64_t values) {
  return (values + V::kTerms - 1) / V::kTerms;
}

/// Computes acc[r][j] += sum over units i < k of a[r][i * a_step] * b[i * b_step + j-th vector].
template <class V, int R, int N>
[[gnu::always_inline]] inline void accumulate(V (&acc)[R][N],
                                              const typename V::Value* const (&a)[R],
                                              std::int64_t a_step, const typename V::Value* b,
                                              std::int64_t b_step, std::int64_t k) {
  std::int64_t at = 0;
  for (std::int64_t i = 0; i < k; ++i) {
    V right[N];
#pragma GCC unroll 8
    for (int j = 0; j < N; ++j) right[j] = V::operand(b + j * V::kLanes * V::kTerms);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const V left = V::broadcast(a[r] + at);
#pragma GCC unroll 8
      for (int j = 0; j < N; ++j) acc[r][j] = V::fma(left, right[j], acc[r][j]);
    }
    at += a_step;
    b += b_step;
  }
}

/// Does the same as `accumulate`, but the last vector of b has only the lanes of `mask`.
template <class V, int R, int N>
[[gnu::always_inline]] inline void accumulate_masked(
    V (&acc)[R][N], const typename V::Value* const (&a)[R], std::int64_t a_step,
    const typename V::Value* b, std::int64_t b_step, std::int64_t k, typename V::Mask mask) {
  std::int64_t at = 0;
  for (std::int64_t i = 0; i < k; ++i) {
    V right[N];
#pragma GCC unroll 8
    for (int j = 0; j < N - 1; ++j) right[j] = V::operand(b + j * V::kLanes * V::kTerms);
    right[N - 1] = V::operand(b + (N - 1) * V::kLanes * V::kTerms, mask);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const V left = V::broadcast(a[r] + at);
#pragma GCC unroll 8
      for (int j = 0; j < N; ++j) acc[r][j] = V::fma(left, right[j], acc[r][j]);
    }
    at += a_step;
    b += b_step;
  }
}

/// Adds to acc[r][j] the lane-wise products of row r of a and row j of b over k values.
template <class V, int R, int N>
[[gnu::always_inline]] inline void accumulate_dots(V (&acc)[R][N],
                                                   const typename V::Value* const (&a)[R],
                                                   const typename V::Value* const (&b)[N],
                                                   std::int64_t k) {
  constexpr std::int64_t kValues = V::kLanes * V::kTerms;
  std::int64_t i = 0;
  for (; i + kValues <= k; i += kValues) {
    V right[N];
#pragma GCC unroll 8
    for (int j = 0; j < N; ++j) right[j] = V::operand(b[j] + i);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const V left = V::operand(a[r] + i);
#pragma GCC unroll 8
      for (int j = 0; j < N; ++j) acc[r][j] = V::fma(left, right[j], acc[r][j]);
    }
  }
  if (i < k) {
    const auto tail = V::first_values(k - i);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const V left = V::values(a[r] + i, tail);
#pragma GCC unroll 8
      for (int j = 0; j < N; ++j) {
        acc[r][j] = V::fma(left, V::values(b[j] + i, tail), acc[r][j]);
      }
    }
  }
}

/// Calls f.operator()<R, N>() with the tile's size as constants.
template <class V, int N, class F>
inline void with_rows(std::int64_t rows, F&& f) {
  constexpr int kMax = max_rows<V>(N);
  switch (rows) {
    case 1:
      return f.template operator()<1, N>();
    case 2:
      return f.template operator()<2, N>();
    case 3:
      return f.template operator()<3, N>();
    case 4:
      if constexpr (kMax >= 4) return f.template operator()<4, N>();
      break;
    case 5:
      if constexpr (kMax >= 5) return f.template operator()<5, N>();
      break;
    case 6:
      if constexpr (kMax >= 6) return f.template operator()<6, N>();
      break;
    case 7:
      if constexpr (kMax >= 7) return f.template operator()<7, N>();
      break;
    case 8:
      if constexpr (kMax >= 8) return f.template operator()<8, N>();
      break;
    default:
      break;
  }
}
template <class V, class F>
inline void with_tile(std::int64_t rows, std::int64_t vectors, F&& f) {
  if (vectors == 1) return with_rows<V, 1>(rows, f);
  if (vectors == 2) return with_rows<V, 2>(rows, f);
  if (vectors == 3) return with_rows<V, 3>(rows, f);
  return with_rows<V, 4>(rows, f);
}

}  // namespace dpt::direct
