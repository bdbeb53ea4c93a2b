// Column sums of matrices, in an order that depends only on the shape: first over a few rows in
// fp32, then over these partial sums in double.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/base/divide.h"
#include "kernels/cpu/parallel.h"

namespace dpt {

inline constexpr std::int64_t kSumColumns = 64;

/// Accumulates kSums sums for each of up to kSumColumns neighbouring columns.
template <class T, int kSums>
struct ColumnSums {
  T v[kSums][kSumColumns] = {};
};

/// Calls add(row, fp32 sums) for all rows in [begin, end), and returns the totals.
template <int kSums, class Add>
ColumnSums<double, kSums> sum_rows(std::int64_t begin, std::int64_t end, const Add& add) {
  constexpr std::int64_t kRows = 64;
  ColumnSums<double, kSums> total;
  for (std::int64_t row = begin; row < end; row += kRows) {
    ColumnSums<float, kSums> some;
    for (std::int64_t r = row; r < std::min(end, row + kRows); ++r) add(r, some);
    for (int s = 0; s < kSums; ++s) {
      for (std::int64_t c = 0; c < kSumColumns; ++c) {
        total.v[s][c] += static_cast<double>(some.v[s][c]);
      }
    }
  }
  return total;
}

/// Partition of the rows into ranges that are summed separately.
struct RowCut {
  std::int64_t rows = 0, columns = 0;
  std::int64_t per_chunk = 0, chunks = 0;

  RowCut(std::int64_t row_count, std::int64_t column_count)
      : rows(row_count), columns(column_count) {
    constexpr std::int64_t kMinRows = 256, kMaxChunks = 32;
    const std::int64_t wanted = std::clamp<std::int64_t>(rows / kMinRows, 1, kMaxChunks);
    per_chunk = ceil_div(rows, wanted);
    chunks = ceil_div(rows, per_chunk);
  }
  std::size_t scratch_bytes(int sums) const {
    return static_cast<std::size_t>(chunks * sums * columns) * sizeof(double);
  }
};

/// Calls add(row, first column, number of columns, sums) for the whole matrix. Afterwards,
/// scratch[s * columns + c] is sum s of column c. REQUIRES: scratch has scratch_bytes(kSums).
template <int kSums, class Add>
void sum_columns(int threads, const RowCut& cut, double* scratch, const Add& add) {
  const std::int64_t blocks = ceil_div(cut.columns, kSumColumns);
  parallel_for(threads, cut.chunks * blocks, [&](std::int64_t i) {
    const std::int64_t chunk = i / blocks, first = i % blocks * kSumColumns;
    const std::int64_t count = std::min(kSumColumns, cut.columns - first);
    const std::int64_t begin = chunk * cut.per_chunk;
    const auto sums =
        sum_rows<kSums>(begin, std::min(cut.rows, begin + cut.per_chunk),
                        [&](std::int64_t row, auto& some) { add(row, first, count, some); });
    for (int s = 0; s < kSums; ++s) {
      std::copy_n(sums.v[s], count, scratch + (chunk * kSums + s) * cut.columns + first);
    }
  });
  const std::int64_t all = kSums * cut.columns;
  for (std::int64_t chunk = 1; chunk < cut.chunks; ++chunk) {
    for (std::int64_t i = 0; i < all; ++i) scratch[i] += scratch[chunk * all + i];
  }
}

}  // namespace dpt
