// The content of cuBLASLt's opaque objects here, and the checks that the heuristics and the
// multiplication share.
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <cstring>

namespace emulation {

struct MatrixLayout {
  std::int32_t type = CUDA_R_32F, order = CUBLASLT_ORDER_COL;
  std::uint64_t rows = 0, cols = 0;
  std::int64_t ld = 0, batch_offset = 0;
  std::int32_t batch = 1;

  /// Returns the number of elements from the first to the last, gaps included.
  std::uint64_t extent() const {
    const bool by_rows = order == CUBLASLT_ORDER_ROW;
    const std::uint64_t lines = by_rows ? rows : cols, length = by_rows ? cols : rows;
    return (lines - 1) * static_cast<std::uint64_t>(ld) + length;
  }
  std::uint64_t at(std::uint64_t row, std::uint64_t col) const {
    const auto step = static_cast<std::uint64_t>(ld);
    return order == CUBLASLT_ORDER_ROW ? row * step + col : col * step + row;
  }
};

struct MatmulDesc {
  std::int32_t compute = CUBLAS_COMPUTE_32F, scale = CUDA_R_32F;
  std::int32_t pointer_mode = CUBLASLT_POINTER_MODE_HOST;
  std::int32_t trans_a = CUBLAS_OP_N, trans_b = CUBLAS_OP_N, trans_c = CUBLAS_OP_N;
  std::uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  void* bias = nullptr;
  void* aux = nullptr;
  std::int64_t aux_ld = 0;
  std::int32_t processors = 0, bias_type = -1;
};

struct MatmulPreference {
  std::uint32_t search_mode = 0;
  std::uint64_t workspace = 0;
  std::uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
  std::uint32_t alignment[4] = {256, 256, 256, 256};  ///< A, B, C, D
  float waves = 0;
  std::uint64_t implementations = ~std::uint64_t{0};
};

/// Content of a cublasLtMatmulAlgo_t.
struct MatmulAlgo {
  std::uint64_t id = 0;
  std::uint64_t workspace = 0;
  std::uint64_t alignment = 0;  ///< required of all matrices, in bytes
  std::uint64_t parts = 1;      ///< number of parts in which k is summed
  std::uint64_t problem =
      0;  ///< identifies the types, transpositions and epilogue that it was made for
};

template <class Inside, class Opaque>
Inside read_opaque(const Opaque* from) {
  static_assert(sizeof(Inside) <= sizeof(Opaque));
  Inside result;
  std::memcpy(static_cast<void*>(&result), from, sizeof(Inside));
  return result;
}
template <class Inside, class Opaque>
void write_opaque(Opaque* to, const Inside& value) {
  static_assert(sizeof(Inside) <= sizeof(Opaque));
  std::memcpy(static_cast<void*>(to), &value, sizeof(Inside));
}

/// A whole problem, and the check that it is valid.
struct Matmul {
  MatmulDesc desc;
  MatrixLayout a, b, c, d;

  std::uint64_t inner() const { return desc.trans_a == CUBLAS_OP_N ? a.cols : a.rows; }
  bool has(std::uint32_t epilogue_bit) const { return (desc.epilogue & epilogue_bit) != 0; }
  bool has_bias() const { return has(CUBLASLT_EPILOGUE_BIAS); }
  bool has_aux() const { return has(128); }
  bool has_bias_gradient() const {
    return has(16) || has(CUBLASLT_EPILOGUE_BGRADA) || has(CUBLASLT_EPILOGUE_BGRADB);
  }
  /// Returns the length of the bias vector, or of its gradient.
  std::uint64_t bias_length() const { return has(CUBLASLT_EPILOGUE_BGRADB) ? d.cols : d.rows; }
  std::uint64_t problem() const;
  cublasStatus_t check() const;
};

inline std::size_t bytes_of(std::int32_t type) {
  return type == CUDA_R_16BF ? 2 : 4;
}

}  // namespace emulation
