// cuBLASLt's objects: creating them, setting their attributes, and choosing algorithms.
#include "cublaslt.h"

#include <algorithm>

#include "state.h"

namespace emulation {

std::uint64_t Matmul::problem() const {
  std::uint64_t sum = 0;
  for (const std::int64_t each :
       {std::int64_t{desc.compute}, std::int64_t{desc.trans_a}, std::int64_t{desc.trans_b},
        std::int64_t{desc.epilogue}, std::int64_t{a.type}, std::int64_t{b.type},
        std::int64_t{c.type}, std::int64_t{d.type}, std::int64_t{a.order}, std::int64_t{b.order},
        std::int64_t{c.order}, std::int64_t{d.order}}) {
    sum = mix(sum ^ static_cast<std::uint64_t>(each));
  }
  return sum;
}

namespace {

bool sound(const MatrixLayout& layout) {
  const std::uint64_t length = layout.order == CUBLASLT_ORDER_ROW ? layout.cols : layout.rows;
  return layout.rows > 0 && layout.cols > 0 && layout.ld > 0 &&
         static_cast<std::uint64_t>(layout.ld) >= length;
}

/// Returns true if the library's tables list this combination of types; covers the emulated types
/// only.
bool supported_types(const Matmul& m) {
  const bool f32 = m.a.type == CUDA_R_32F && m.b.type == CUDA_R_32F && m.c.type == CUDA_R_32F &&
                   m.d.type == CUDA_R_32F;
  const bool bf16 = m.a.type == CUDA_R_16BF && m.b.type == CUDA_R_16BF && m.c.type == m.d.type &&
                    (m.d.type == CUDA_R_16BF || m.d.type == CUDA_R_32F);
  switch (m.desc.compute) {
    case CUBLAS_COMPUTE_32F:
    case CUBLAS_COMPUTE_32F_PEDANTIC:
      return f32 || bf16;
    case CUBLAS_COMPUTE_32F_FAST_TF32:
    case CUBLAS_COMPUTE_32F_FAST_16BF:
      return f32;
    default:
      return false;
  }
}

bool supported_epilogue(const Matmul& m) {
  switch (m.desc.epilogue) {
    case CUBLASLT_EPILOGUE_DEFAULT:
    case CUBLASLT_EPILOGUE_RELU:
      return true;
    case CUBLASLT_EPILOGUE_BIAS:
    case CUBLASLT_EPILOGUE_RELU_BIAS:
    case CUBLASLT_EPILOGUE_RELU_AUX:
    case CUBLASLT_EPILOGUE_RELU_AUX_BIAS:
    case CUBLASLT_EPILOGUE_DRELU:
    case CUBLASLT_EPILOGUE_DRELU_BGRAD:
    case CUBLASLT_EPILOGUE_BGRADA:
    case CUBLASLT_EPILOGUE_BGRADB:
      // The documentation does not define these epilogues for a row-major result.
      return m.d.order == CUBLASLT_ORDER_COL &&
             (m.desc.bias_type == -1 || m.desc.bias_type == m.d.type);
    default:
      return false;
  }
}

}  // namespace

cublasStatus_t Matmul::check() const {
  for (const MatrixLayout& layout : {a, b, c, d}) {
    if (!sound(layout)) return CUBLAS_STATUS_INVALID_VALUE;
    if (layout.batch != 1 || layout.order > CUBLASLT_ORDER_ROW) {
      return CUBLAS_STATUS_NOT_SUPPORTED;
    }
  }
  const bool normal_a = desc.trans_a == CUBLAS_OP_N, normal_b = desc.trans_b == CUBLAS_OP_N;
  const std::uint64_t m = normal_a ? a.rows : a.cols, k = normal_a ? a.cols : a.rows,
                      k2 = normal_b ? b.rows : b.cols, n = normal_b ? b.cols : b.rows;
  if (k != k2 || d.rows != m || d.cols != n || c.rows != m || c.cols != n) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (desc.trans_c != CUBLAS_OP_N || desc.scale != CUDA_R_32F ||
      desc.pointer_mode != CUBLASLT_POINTER_MODE_HOST || c.order != d.order ||
      !supported_types(*this) || !supported_epilogue(*this)) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  if (has_aux() && (desc.aux_ld % 128 != 0 || desc.aux_ld < static_cast<std::int64_t>(m))) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  return CUBLAS_STATUS_SUCCESS;
}

namespace {

template <class T>
cublasStatus_t assign(T& to, const void* value, std::size_t bytes) {
  if (!value || bytes != sizeof(T)) return CUBLAS_STATUS_INVALID_VALUE;
  __builtin_memcpy(&to, value, sizeof(T));
  return CUBLAS_STATUS_SUCCESS;
}

template <class Inside, class Opaque>
cublasStatus_t create(Opaque** handle, const Inside& value) {
  if (!handle) return CUBLAS_STATUS_INVALID_VALUE;
  *handle = new Opaque{};
  write_opaque(*handle, value);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t set(MatrixLayout& layout, cublasLtMatrixLayoutAttribute_t attribute,
                   const void* value, std::size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_TYPE:
      return assign(layout.type, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_ORDER:
      return assign(layout.order, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_ROWS:
      return assign(layout.rows, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_COLS:
      return assign(layout.cols, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_LD:
      return assign(layout.ld, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
      return assign(layout.batch, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
      return assign(layout.batch_offset, value, bytes);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t set(MatmulDesc& desc, cublasLtMatmulDescAttributes_t attribute, const void* value,
                   std::size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_COMPUTE_TYPE:
      return assign(desc.compute, value, bytes);
    case CUBLASLT_MATMUL_DESC_SCALE_TYPE:
      return assign(desc.scale, value, bytes);
    case CUBLASLT_MATMUL_DESC_POINTER_MODE:
      return assign(desc.pointer_mode, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return assign(desc.trans_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return assign(desc.trans_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSC:
      return assign(desc.trans_c, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return assign(desc.epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return assign(desc.bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
      return assign(desc.aux, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
      return assign(desc.aux_ld, value, bytes);
    case CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET:
      return assign(desc.processors, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      return assign(desc.bias_type, value, bytes);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t set(MatmulPreference& preference, cublasLtMatmulPreferenceAttributes_t attribute,
                   const void* value, std::size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_SEARCH_MODE:
      return assign(preference.search_mode, value, bytes);
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return assign(preference.workspace, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return assign(preference.reductions, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return assign(preference.alignment[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES],
                    value, bytes);
    case CUBLASLT_MATMUL_PREF_MAX_WAVES_COUNT:
      return assign(preference.waves, value, bytes);
    case CUBLASLT_MATMUL_PREF_IMPL_MASK:
      return assign(preference.implementations, value, bytes);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

template <class Inside, class Opaque, class Attribute>
cublasStatus_t set_attribute(Opaque* handle, Attribute attribute, const void* value,
                             std::size_t bytes) {
  if (!handle) return CUBLAS_STATUS_INVALID_VALUE;
  auto inside = read_opaque<Inside>(handle);
  const cublasStatus_t status = set(inside, attribute, value, bytes);
  if (status == CUBLAS_STATUS_SUCCESS) write_opaque(handle, inside);
  return status;
}

struct StatusName {
  cublasStatus_t status;
  const char* name;
  const char* text;
};
constexpr StatusName kStatuses[] = {
    {CUBLAS_STATUS_SUCCESS, "CUBLAS_STATUS_SUCCESS", "success"},
    {CUBLAS_STATUS_NOT_INITIALIZED, "CUBLAS_STATUS_NOT_INITIALIZED",
     "the library was not initialized"},
    {CUBLAS_STATUS_ALLOC_FAILED, "CUBLAS_STATUS_ALLOC_FAILED", "the resource allocation failed"},
    {CUBLAS_STATUS_INVALID_VALUE, "CUBLAS_STATUS_INVALID_VALUE",
     "an unsupported value or parameter was passed to the function"},
    {CUBLAS_STATUS_ARCH_MISMATCH, "CUBLAS_STATUS_ARCH_MISMATCH",
     "the function requires an architectural feature absent from the device"},
    {CUBLAS_STATUS_MAPPING_ERROR, "CUBLAS_STATUS_MAPPING_ERROR",
     "an access to GPU memory space failed"},
    {CUBLAS_STATUS_EXECUTION_FAILED, "CUBLAS_STATUS_EXECUTION_FAILED",
     "the function failed to launch on the GPU"},
    {CUBLAS_STATUS_INTERNAL_ERROR, "CUBLAS_STATUS_INTERNAL_ERROR", "an internal operation failed"},
    {CUBLAS_STATUS_NOT_SUPPORTED, "CUBLAS_STATUS_NOT_SUPPORTED",
     "the functionality requested is not supported"},
    {CUBLAS_STATUS_LICENSE_ERROR, "CUBLAS_STATUS_LICENSE_ERROR",
     "the functionality requested requires some license"}};

}  // namespace
}  // namespace emulation

using namespace emulation;

struct cublasLtContext {
  int device;
};

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (!handle) return CUBLAS_STATUS_INVALID_VALUE;
  *handle = new cublasLtContext{device};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}
const char* cublasLtGetStatusName(cublasStatus_t status) {
  for (const StatusName& each : kStatuses) {
    if (each.status == status) return each.name;
  }
  return "unknown status";
}
const char* cublasLtGetStatusString(cublasStatus_t status) {
  for (const StatusName& each : kStatuses) {
    if (each.status == status) return each.text;
  }
  return "unknown status";
}
std::size_t cublasLtGetVersion() {
  return 130100;
}
std::size_t cublasLtGetCudartVersion() {
  return CUDART_VERSION;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type,
                                          std::uint64_t rows, std::uint64_t cols, std::int64_t ld) {
  MatrixLayout inside;
  inside.type = type;
  inside.rows = rows;
  inside.cols = cols;
  inside.ld = ld;
  return create(layout, inside);
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void* value, std::size_t bytes) {
  return set_attribute<MatrixLayout>(layout, attribute, value, bytes);
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  MatmulDesc inside;
  inside.compute = compute;
  inside.scale = scale;
  return create(desc, inside);
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
  delete desc;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, std::size_t bytes) {
  return set_attribute<MatmulDesc>(desc, attribute, value, bytes);
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  return create(preference, MatmulPreference{});
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, std::size_t bytes) {
  return set_attribute<MatmulPreference>(preference, attribute, value, bytes);
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int* found) {
  if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (!desc || !a || !b || !c || !d || !preference || !results || !found || wanted < 1) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  *found = 0;
  {
    const Lock lock(state().mutex);
    if (take_failure("cublasLtMatmulAlgoGetHeuristic", handle->device)) {
      return CUBLAS_STATUS_NOT_SUPPORTED;
    }
  }
  const Matmul matmul{read_opaque<MatmulDesc>(desc), read_opaque<MatrixLayout>(a),
                      read_opaque<MatrixLayout>(b), read_opaque<MatrixLayout>(c),
                      read_opaque<MatrixLayout>(d)};
  if (const cublasStatus_t status = matmul.check(); status != CUBLAS_STATUS_SUCCESS) {
    return status;
  }
  const auto wishes = read_opaque<MatmulPreference>(preference);
  // There is one algorithm of each kind: one splits k through the workspace, one needs whole
  // matrices with 16-byte aligned columns, one takes anything. Their sums differ in the last bits,
  // as those of real algorithms do.
  const std::uint64_t split_bytes = 2 * matmul.d.rows * matmul.d.cols * sizeof(float);
  const MatmulAlgo algorithms[] = {{1, split_bytes, 16, 2, matmul.problem()},
                                   {2, 0, 16, 1, matmul.problem()},
                                   {3, 0, bytes_of(matmul.a.type), 4, matmul.problem()}};
  std::uint64_t alignment = 256;
  for (const std::uint32_t each : wishes.alignment) {
    alignment = std::min<std::uint64_t>(alignment, each);
  }
  for (const MatrixLayout& layout : {matmul.a, matmul.b, matmul.c, matmul.d}) {
    const std::uint64_t step = static_cast<std::uint64_t>(layout.ld) * bytes_of(layout.type);
    alignment =
        std::min(alignment, step & (~step + 1));  // The largest power of 2 that divides step.
  }
  for (const MatmulAlgo& algorithm : algorithms) {
    if (*found == wanted || algorithm.alignment > alignment ||
        algorithm.workspace > wishes.workspace ||
        (algorithm.workspace > 0 &&
         !(wishes.reductions & CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE))) {
      continue;
    }
    cublasLtMatmulHeuristicResult_t& result = results[(*found)++];
    result = {};
    write_opaque(&result.algo, algorithm);
    result.workspaceSize = algorithm.workspace;
    result.state = CUBLAS_STATUS_SUCCESS;
    result.wavesCount = 1.0F;
  }
  return *found > 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t* algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute,
                                                    void* value, std::size_t bytes,
                                                    std::size_t* written) {
  // Two of the attributes have 16 bits.
  const std::size_t size = attribute == CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID ||
                                   attribute == CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID
                               ? sizeof(std::uint16_t)
                               : sizeof(std::uint32_t);
  if (!algo || !value || bytes != size || attribute > CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const auto inside = read_opaque<MatmulAlgo>(algo);
  std::uint32_t number = 0;
  if (attribute == CUBLASLT_ALGO_CONFIG_ID) number = static_cast<std::uint32_t>(inside.id);
  if (inside.workspace > 0 && attribute == CUBLASLT_ALGO_CONFIG_SPLITK_NUM) {
    number = static_cast<std::uint32_t>(inside.parts);
  }
  if (inside.workspace > 0 && attribute == CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME) {
    number = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  }
  std::memcpy(value, &number, size);
  if (written) *written = size;
  return CUBLAS_STATUS_SUCCESS;
}
