// cuBLASLt's multiplication itself: the checks of a call, and the computation when its stream
// reaches it.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "cublaslt.h"
#include "state.h"

namespace emulation {
namespace {

struct MatmulCall {
  Matmul matmul;
  MatmulAlgo algorithm;
  float alpha = 1, beta = 0;
  const void* a = nullptr;
  const void* b = nullptr;
  const void* c = nullptr;
  void* d = nullptr;
  void* workspace = nullptr;
};

float from_bf16(std::uint16_t bits) {
  return __uint_as_float(static_cast<unsigned>(bits) << 16);
}
std::uint16_t to_bf16(float value) {
  const unsigned bits = __float_as_uint(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return 0x7fff;
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}
/// Rounds to the 10 bits of mantissa of tf32, to nearest even.
float to_tf32(float value) {
  const unsigned bits = __float_as_uint(value);
  if ((bits & 0x7f800000U) == 0x7f800000U) return value;
  return __uint_as_float((bits + 0xfffU + ((bits >> 13) & 1U)) & ~0x1fffU);
}

float load(const void* matrix, std::int32_t type, std::uint64_t at) {
  return type == CUDA_R_16BF ? from_bf16(static_cast<const std::uint16_t*>(matrix)[at])
                             : static_cast<const float*>(matrix)[at];
}
void store(void* matrix, std::int32_t type, std::uint64_t at, float value) {
  if (type == CUDA_R_16BF) {
    static_cast<std::uint16_t*>(matrix)[at] = to_bf16(value);
  } else {
    static_cast<float*>(matrix)[at] = value;
  }
}

/// Returns op(matrix) as (rows, cols) floats in column-major order, rounded to the precision of the
/// arithmetic.
std::vector<float> unpack(const void* matrix, const MatrixLayout& layout, bool transposed,
                          std::int32_t compute) {
  const std::uint64_t rows = transposed ? layout.cols : layout.rows,
                      cols = transposed ? layout.rows : layout.cols;
  std::vector<float> result(rows * cols);
  for (std::uint64_t col = 0; col < cols; ++col) {
    for (std::uint64_t row = 0; row < rows; ++row) {
      float value =
          load(matrix, layout.type, transposed ? layout.at(col, row) : layout.at(row, col));
      if (compute == CUBLAS_COMPUTE_32F_FAST_TF32) value = to_tf32(value);
      if (compute == CUBLAS_COMPUTE_32F_FAST_16BF) value = from_bf16(to_bf16(value));
      result[col * rows + row] = value;
    }
  }
  return result;
}

/// Adds the products of k in [from, to) to one column of m sums.
void add_products(std::vector<float>& sums, const std::vector<float>& a, const float* b_column,
                  std::uint64_t from, std::uint64_t to) {
  const std::uint64_t m = sums.size();
  for (std::uint64_t k = from; k < to; ++k) {
    const float factor = b_column[k];
    const float* a_column = a.data() + k * m;
    for (std::uint64_t i = 0; i < m; ++i) sums[i] += a_column[i] * factor;
  }
}

bool aux_bit(const MatmulDesc& desc, std::uint64_t row, std::uint64_t col) {
  const std::uint64_t bit = col * static_cast<std::uint64_t>(desc.aux_ld) + row;
  return (static_cast<const std::uint8_t*>(desc.aux)[bit / 8] >> (bit % 8)) & 1U;
}
void set_aux_bit(const MatmulDesc& desc, std::uint64_t row, std::uint64_t col, bool value) {
  const std::uint64_t bit = col * static_cast<std::uint64_t>(desc.aux_ld) + row;
  std::uint8_t& byte = static_cast<std::uint8_t*>(desc.aux)[bit / 8];
  const auto mask = static_cast<std::uint8_t>(1U << (bit % 8));
  byte = static_cast<std::uint8_t>(value ? byte | mask : byte & ~mask);
}

void compute(const MatmulCall& call, int device) {
  const Matmul& matmul = call.matmul;
  const MatmulDesc& desc = matmul.desc;
  const std::uint64_t m = matmul.d.rows, n = matmul.d.cols, k = matmul.inner();
  const std::vector<float> a = unpack(call.a, matmul.a, desc.trans_a != CUBLAS_OP_N, desc.compute);
  const std::vector<float> b = unpack(call.b, matmul.b, desc.trans_b != CUBLAS_OP_N, desc.compute);
  if (call.algorithm.workspace > 0) {
    // Overwrites the workspace, so that other work that shares it is caught.
    std::fill_n(static_cast<unsigned char*>(call.workspace), call.algorithm.workspace, 0xff);
  }
  const Settings& faults = settings();
  const bool is_wrong = faults.wrong_matmul == static_cast<int>(call.algorithm.id) &&
                        (faults.wrong_matmul_device < 0 || faults.wrong_matmul_device == device);
  std::vector<float> sums(m), part(m), bias_gradient(matmul.bias_length());
  for (std::uint64_t j = 0; j < n; ++j) {
    std::fill(sums.begin(), sums.end(), 0.0F);
    const std::uint64_t parts = call.algorithm.parts;
    for (std::uint64_t p = 0; p < parts; ++p) {
      std::fill(part.begin(), part.end(), 0.0F);
      add_products(part, a, b.data() + j * k, k * p / parts, k * (p + 1) / parts);
      for (std::uint64_t i = 0; i < m; ++i) sums[i] += part[i];
    }
    for (std::uint64_t i = 0; i < m; ++i) {
      const std::uint64_t at = matmul.d.at(i, j);
      float value = call.alpha * sums[i];
      if (is_wrong && at == 0) value += 0.5F;
      // The content of C must not matter if beta is 0, not even a NaN.
      if (call.beta != 0.0F) {
        value += call.beta * load(call.c, matmul.c.type, matmul.c.at(i, j));
      }
      if (matmul.has_bias()) value += load(desc.bias, matmul.d.type, i);
      if (matmul.has(CUBLASLT_EPILOGUE_RELU)) {
        if (matmul.has_aux()) set_aux_bit(desc, i, j, value > 0.0F);
        value = value > 0.0F ? value : 0.0F;
      }
      if (matmul.has(8)) value = aux_bit(desc, i, j) ? value : 0.0F;
      if (matmul.has(16)) bias_gradient[i] += value;
      store(call.d, matmul.d.type, at, value);
    }
  }
  if (matmul.has(CUBLASLT_EPILOGUE_BGRADA)) {
    for (std::uint64_t at = 0; at < k * m; ++at) bias_gradient[at % m] += a[at];
  }
  if (matmul.has(CUBLASLT_EPILOGUE_BGRADB)) {
    for (std::uint64_t at = 0; at < k * n; ++at) bias_gradient[at / k] += b[at];
  }
  if (matmul.has_bias_gradient()) {
    for (std::uint64_t i = 0; i < bias_gradient.size(); ++i) {
      store(desc.bias, matmul.d.type, i, bias_gradient[i]);
    }
  }
}

/// Returns true if the device may use these bytes: its own memory, pinned memory, or a peer's.
bool usable(const void* pointer, std::uint64_t bytes, int device) {
  const Allocation* memory = find_memory(pointer);
  if (!memory || !in_memory(pointer, bytes, memory->device)) return false;
  return memory->device == device || memory->device == kHost ||
         state().devices.at(device).peers.contains(memory->device);
}

/// Returns the name of the first operand that the device must not read or write; null if all are
/// fine.
const char* misplaced(const MatmulCall& call, int device) {
  const Matmul& m = call.matmul;
  const auto good = [&](const void* pointer, const MatrixLayout& layout) {
    return usable(pointer, layout.extent() * bytes_of(layout.type), device);
  };
  if (!good(call.a, m.a)) return "A";
  if (!good(call.b, m.b)) return "B";
  if (call.beta != 0.0F && !good(call.c, m.c)) return "C";
  if (!good(call.d, m.d)) return "D";
  if ((m.has_bias() || m.has_bias_gradient()) &&
      !usable(m.desc.bias, m.bias_length() * bytes_of(m.d.type), device)) {
    return "the bias";
  }
  if (m.has_aux() &&
      !usable(m.desc.aux,
              ((m.d.cols - 1) * static_cast<std::uint64_t>(m.desc.aux_ld) + m.d.rows + 7) / 8,
              device)) {
    return "the auxiliary buffer";
  }
  if (call.algorithm.workspace > 0 && !usable(call.workspace, call.algorithm.workspace, device)) {
    return "the workspace";
  }
  return nullptr;
}

bool aligned(const void* pointer, std::uint64_t bytes) {
  return reinterpret_cast<std::uintptr_t>(pointer) % bytes == 0;
}

cublasStatus_t check(const MatmulCall& call, std::size_t workspace_bytes) {
  const Matmul& m = call.matmul;
  if (const cublasStatus_t status = m.check(); status != CUBLAS_STATUS_SUCCESS) return status;
  if (!call.a || !call.b || !call.c || !call.d) return CUBLAS_STATUS_INVALID_VALUE;
  // In-place operation requires the same layout.
  if (call.c == call.d && (m.c.ld != m.d.ld || m.c.type != m.d.type)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if ((m.has_bias() || m.has_bias_gradient()) && !m.desc.bias) return CUBLAS_STATUS_INVALID_VALUE;
  if (m.has_aux() && (!m.desc.aux || !aligned(m.desc.aux, 16))) return CUBLAS_STATUS_INVALID_VALUE;
  if (call.algorithm.problem != m.problem()) return CUBLAS_STATUS_INVALID_VALUE;
  if (call.algorithm.workspace > workspace_bytes || !aligned(call.workspace, 256) ||
      (workspace_bytes > 0 && !call.workspace)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  for (const void* each : {call.a, call.b, call.c, static_cast<const void*>(call.d)}) {
    if (!aligned(each, call.algorithm.alignment)) return CUBLAS_STATUS_INVALID_VALUE;
  }
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace
}  // namespace emulation

using namespace emulation;

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algo,
                              void* workspace, std::size_t workspace_bytes, cudaStream_t stream) {
  if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (!desc || !alpha || !beta || !a_layout || !b_layout || !c_layout || !d_layout) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  MatmulCall call;
  call.matmul = {read_opaque<MatmulDesc>(desc), read_opaque<MatrixLayout>(a_layout),
                 read_opaque<MatrixLayout>(b_layout), read_opaque<MatrixLayout>(c_layout),
                 read_opaque<MatrixLayout>(d_layout)};
  call.algorithm = algo ? read_opaque<MatmulAlgo>(algo)
                        : MatmulAlgo{3, 0, bytes_of(call.matmul.a.type), 4, call.matmul.problem()};
  call.alpha = *static_cast<const float*>(alpha);
  call.beta = *static_cast<const float*>(beta);
  call.a = a;
  call.b = b;
  call.c = c;
  call.d = d;
  call.workspace = workspace;
  if (const cublasStatus_t status = check(call, workspace_bytes); status != CUBLAS_STATUS_SUCCESS) {
    return status;
  }
  const cudaError_t error = api("cublasLtMatmul", Needs::context, [&](Lock&) {
    const auto target = find_stream(stream);
    if (!target) return cudaErrorInvalidResourceHandle;
    Work work;
    work.type = cudaGraphNodeTypeKernel;
    work.run = [call, device = target->device](Lock&) {
      if (const char* operand = misplaced(call, device)) {
        return lose_device(device, cudaErrorIllegalAddress,
                           fmt::format("cublasLtMatmul: {} does not lie within one allocation "
                                       "that the device can use",
                                       operand));
      }
      compute(call, device);
      return cudaSuccess;
    };
    return enqueue(*target, std::move(work));
  });
  return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}
