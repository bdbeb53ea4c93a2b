// cuBLASLt's multiplication against plain loops: layouts, transpositions, types, epilogues, errors.
#include <cublasLt.h>
#include <cuda_bf16.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>

#include "machine.h"

namespace {

struct Matrix {
  std::uint64_t rows, cols;
  bool by_rows = false;
  std::uint64_t gap = 0;  ///< unused elements between columns (or rows)
  cudaDataType_t type = CUDA_R_32F;

  std::uint64_t ld() const { return (by_rows ? cols : rows) + gap; }
  std::uint64_t size() const { return ld() * (by_rows ? rows : cols); }
  std::uint64_t at(std::uint64_t r, std::uint64_t c) const {
    return by_rows ? r * ld() + c : c * ld() + r;
  }
  cublasLtMatrixLayout_t layout() const {
    cublasLtMatrixLayout_t made = nullptr;
    REQUIRE(cublasLtMatrixLayoutCreate(&made, type, rows, cols, static_cast<std::int64_t>(ld())) ==
            CUBLAS_STATUS_SUCCESS);
    const std::int32_t order = by_rows ? CUBLASLT_ORDER_ROW : CUBLASLT_ORDER_COL;
    REQUIRE(cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_ORDER, &order,
                                             sizeof order) == CUBLAS_STATUS_SUCCESS);
    return made;
  }
};

/// Returns small whole numbers, so that sums are exact in every type and order.
std::vector<float> numbers(std::uint64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(static_cast<int>(random() % 7) - 3);
  return values;
}

void* upload(const std::vector<float>& values, cudaDataType_t type) {
  if (type == CUDA_R_32F) return device_array(values);
  std::vector<__nv_bfloat16> rounded;
  for (const float value : values) rounded.push_back(__float2bfloat16_rn(value));
  return device_array(rounded);
}
std::vector<float> download(const void* device, std::uint64_t count, cudaDataType_t type) {
  if (type == CUDA_R_32F) return host_copy(static_cast<const float*>(device), count);
  std::vector<float> values;
  for (const auto value : host_copy(static_cast<const __nv_bfloat16*>(device), count)) {
    values.push_back(__bfloat162float(value));
  }
  return values;
}

struct Case {
  std::uint64_t m = 16, n = 8, k = 24;
  bool trans_a = false, trans_b = false;
  bool rows_a = false, rows_b = false, rows_d = false;
  std::uint64_t gap = 0;
  cudaDataType_t in = CUDA_R_32F, out = CUDA_R_32F;
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  float alpha = 1, beta = 0;
  std::uint64_t workspace = 1 << 20;
  std::uint32_t alignment = 16;
};

/// Everything that one call needs.
struct Call {
  explicit Call(const Case& c)
      : a{c.trans_a ? c.k : c.m, c.trans_a ? c.m : c.k, c.rows_a, c.gap, c.in},
        b{c.trans_b ? c.n : c.k, c.trans_b ? c.k : c.n, c.rows_b, c.gap, c.in},
        d{c.m, c.n, c.rows_d, c.gap, c.out} {
    REQUIRE(cublasLtCreate(&handle) == CUBLAS_STATUS_SUCCESS);
    REQUIRE(cublasLtMatmulDescCreate(&desc, c.compute, CUDA_R_32F) == CUBLAS_STATUS_SUCCESS);
    set(CUBLASLT_MATMUL_DESC_TRANSA, std::int32_t{c.trans_a ? CUBLAS_OP_T : CUBLAS_OP_N});
    set(CUBLASLT_MATMUL_DESC_TRANSB, std::int32_t{c.trans_b ? CUBLAS_OP_T : CUBLAS_OP_N});
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, static_cast<std::uint32_t>(c.epilogue));
    if (c.epilogue & 128) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, std::int64_t{128});
    }
    layouts[0] = a.layout();
    layouts[1] = b.layout();
    layouts[2] = d.layout();
    layouts[3] = d.layout();
    REQUIRE(cublasLtMatmulPreferenceCreate(&preference) == CUBLAS_STATUS_SUCCESS);
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, c.workspace);
    for (const auto which :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
      prefer(which, c.alignment);
    }
  }
  Call(const Call&) = delete;
  ~Call() {
    cublasLtMatmulPreferenceDestroy(preference);
    for (const auto layout : layouts) cublasLtMatrixLayoutDestroy(layout);
    cublasLtMatmulDescDestroy(desc);
    cublasLtDestroy(handle);
  }
  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    REQUIRE(cublasLtMatmulDescSetAttribute(desc, attribute, &value, sizeof value) ==
            CUBLAS_STATUS_SUCCESS);
  }
  template <class T>
  void prefer(cublasLtMatmulPreferenceAttributes_t attribute, const T& value) {
    REQUIRE(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value) ==
            CUBLAS_STATUS_SUCCESS);
  }
  cublasStatus_t find(int wanted = 8) {
    return cublasLtMatmulAlgoGetHeuristic(handle, desc, layouts[0], layouts[1], layouts[2],
                                          layouts[3], preference, wanted, results, &found);
  }
  cublasStatus_t run(const void* da, const void* db, void* dd, float alpha, float beta,
                     const cublasLtMatmulHeuristicResult_t& result, void* workspace,
                     std::size_t bytes, cudaStream_t stream) {
    return cublasLtMatmul(handle, desc, &alpha, da, layouts[0], db, layouts[1], &beta, dd,
                          layouts[2], dd, layouts[3], &result.algo, workspace, bytes, stream);
  }

  Matrix a, b, d;
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t layouts[4] = {};
  cublasLtMatmulPreference_t preference = nullptr;
  cublasLtMatmulHeuristicResult_t results[8] = {};
  int found = 0;
};

/// Runs every algorithm that the heuristics return and compares it with plain loops. Returns the
/// number of algorithms.
int compare(const Case& c) {
  const Machine machine;
  Call call(c);
  REQUIRE(call.find() == CUBLAS_STATUS_SUCCESS);
  const auto ha = numbers(call.a.size(), 1), hb = numbers(call.b.size(), 2),
             hd = numbers(call.d.size(), 3), hbias = numbers(std::max(c.m, c.n), 4);
  std::vector<std::uint8_t> haux(128 / 8 * c.n);
  std::mt19937 random(5);
  for (auto& byte : haux) byte = static_cast<std::uint8_t>(random());
  const void* a = upload(ha, c.in);
  const void* b = upload(hb, c.in);
  void* workspace = device_array<char>(c.workspace + 256);
  cudaStream_t stream = make_stream();
  for (int algorithm = 0; algorithm < call.found; ++algorithm) {
    void* d = upload(hd, c.out);
    void* bias = upload(hbias, c.out);
    std::uint8_t* aux = device_array(haux);
    call.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    call.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux);
    REQUIRE(call.run(a, b, d, c.alpha, c.beta, call.results[algorithm], workspace, c.workspace,
                     stream) == CUBLAS_STATUS_SUCCESS);
    CHECK(download(d, call.d.size(), c.out) == hd);  // the call only queues work
    REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
    const auto result = download(d, call.d.size(), c.out),
               bias_after = download(bias, hbias.size(), c.out);
    const auto aux_after = host_copy(aux, haux.size());
    std::vector<float> gradient(hbias.size());
    int wrong = 0;
    const auto left = [&](std::uint64_t i, std::uint64_t l) {
      return ha[c.trans_a ? call.a.at(l, i) : call.a.at(i, l)];
    };
    const auto right = [&](std::uint64_t l, std::uint64_t j) {
      return hb[c.trans_b ? call.b.at(j, l) : call.b.at(l, j)];
    };
    for (std::uint64_t j = 0; j < c.n; ++j) {
      for (std::uint64_t i = 0; i < c.m; ++i) {
        float sum = 0;
        for (std::uint64_t l = 0; l < c.k; ++l) sum += left(i, l) * right(l, j);
        float expected = c.alpha * sum + c.beta * hd[call.d.at(i, j)];
        if (c.epilogue & 4) expected += hbias[i];
        const std::uint64_t bit = j * 128 + i;
        const auto bit_of = [&](const std::vector<std::uint8_t>& bytes) {
          return (bytes[bit / 8] >> (bit % 8) & 1) != 0;
        };
        if (c.epilogue & 2) {
          if (c.epilogue & 128) wrong += bit_of(aux_after) != (expected > 0);
          expected = std::max(expected, 0.0F);
        }
        if ((c.epilogue & 8) && !bit_of(haux)) expected = 0;
        if (c.epilogue & 16) gradient[i] += expected;
        if (c.out == CUDA_R_16BF) expected = __bfloat162float(__float2bfloat16_rn(expected));
        wrong += result[call.d.at(i, j)] != expected;
      }
    }
    for (std::uint64_t l = 0; l < c.k; ++l) {
      for (std::uint64_t i = 0; i < c.m && (c.epilogue & 256); ++i) gradient[i] += left(i, l);
      for (std::uint64_t j = 0; j < c.n && (c.epilogue & 512); ++j) gradient[j] += right(l, j);
    }
    const std::uint64_t length = c.epilogue & 512 ? c.n : c.m;
    for (std::uint64_t i = 0; i < length; ++i) {
      const bool written = (c.epilogue & (16 | 256 | 512)) != 0;
      wrong += bias_after[i] != (written ? gradient[i] : hbias[i]);
    }
    CHECK(wrong == 0);
  }
  return call.found;
}

}  // namespace

TEST_CASE("all layouts and transpositions") {
  for (int bits = 0; bits < 64; ++bits) {
    Case c;
    c.trans_a = bits & 1;
    c.trans_b = bits & 2;
    c.rows_a = bits & 4;
    c.rows_b = bits & 8;
    c.rows_d = bits & 16;
    c.gap = bits & 32 ? 4 : 0;
    CHECK(compare(c) == 3);
  }
}

TEST_CASE("epilogues") {
  for (const auto epilogue :
       {CUBLASLT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_RELU, CUBLASLT_EPILOGUE_BIAS,
        CUBLASLT_EPILOGUE_RELU_BIAS, CUBLASLT_EPILOGUE_RELU_AUX, CUBLASLT_EPILOGUE_RELU_AUX_BIAS,
        CUBLASLT_EPILOGUE_DRELU, CUBLASLT_EPILOGUE_DRELU_BGRAD, CUBLASLT_EPILOGUE_BGRADA,
        CUBLASLT_EPILOGUE_BGRADB}) {
    Case c;
    c.epilogue = epilogue;
    compare(c);
    c.alpha = 2;
    c.beta = -1;
    compare(c);
  }
}

TEST_CASE("types, and sizes that leave only some algorithms") {
  Case c;
  c.beta = 1;
  c.compute = CUBLAS_COMPUTE_32F_FAST_TF32;
  CHECK(compare(c) == 3);
  c.compute = CUBLAS_COMPUTE_32F;
  c.in = CUDA_R_16BF;
  CHECK(compare(c) == 3);
  c.out = CUDA_R_16BF;
  CHECK(compare(c) == 3);
  c.workspace = 0;
  CHECK(compare(c) == 2);
  c.m = 5;
  CHECK(compare(c) == 1);
}

TEST_CASE("tf32 rounds its factors") {
  const Machine machine;
  Case c;
  c.m = c.n = c.k = 4;
  c.compute = CUBLAS_COMPUTE_32F_FAST_TF32;
  Call call(c);
  REQUIRE(call.find() == CUBLAS_STATUS_SUCCESS);
  const float fine = 1.0F + std::ldexp(1.0F, -12);
  float* a = device_array(std::vector<float>(16, fine));
  float* d = device_array<float>(16);
  REQUIRE(call.run(a, a, d, 1, 0, call.results[call.found - 1], nullptr, 0, nullptr) ==
          CUBLAS_STATUS_SUCCESS);
  CHECK(host_copy(d, 16)[0] == 4.0F);
}

TEST_CASE("wrong calls are refused, and memory that is not the device's is a fault") {
  const Machine machine;
  Case c;
  Call call(c);
  CHECK(call.find(0) == CUBLAS_STATUS_INVALID_VALUE);
  REQUIRE(call.find() == CUBLAS_STATUS_SUCCESS);
  float* a = device_array(std::vector<float>(call.a.size() + 8));
  float* b = device_array(std::vector<float>(call.b.size()));
  float* d = device_array(std::vector<float>(call.d.size()));
  char* workspace = device_array<char>(1 << 20);
  const auto run = [&](const void* from, int algorithm, void* space, std::size_t bytes) {
    return call.run(from, b, d, 1, 0, call.results[algorithm], space, bytes, nullptr);
  };
  CHECK(run(a, 0, workspace, 1 << 20) == CUBLAS_STATUS_SUCCESS);
  CHECK(run(a, 0, workspace, 16) == CUBLAS_STATUS_INVALID_VALUE);
  CHECK(run(a, 0, workspace + 16, (1 << 20) - 16) == CUBLAS_STATUS_INVALID_VALUE);
  CHECK(run(nullptr, 1, nullptr, 0) == CUBLAS_STATUS_INVALID_VALUE);
  CHECK(run(a + 1, 1, nullptr, 0) == CUBLAS_STATUS_INVALID_VALUE);  // Not aligned as declared.
  CHECK(run(a + 1, 2, nullptr, 0) == CUBLAS_STATUS_SUCCESS);
  // The algorithm was made for another problem.
  call.set(CUBLASLT_MATMUL_DESC_EPILOGUE, std::uint32_t{CUBLASLT_EPILOGUE_RELU});
  CHECK(run(a, 1, nullptr, 0) == CUBLAS_STATUS_INVALID_VALUE);
  call.set(CUBLASLT_MATMUL_DESC_EPILOGUE, std::uint32_t{CUBLASLT_EPILOGUE_GELU});
  CHECK(call.find() == CUBLAS_STATUS_NOT_SUPPORTED);
  const std::int32_t order = CUBLASLT_ORDER_ROW;
  CHECK(cublasLtMatmulDescSetAttribute(call.desc, CUBLASLT_MATMUL_DESC_TRANSA, &order, 1) ==
        CUBLAS_STATUS_INVALID_VALUE);

  Case other;
  other.in = CUDA_R_16BF;
  other.compute = CUBLAS_COMPUTE_32F_FAST_TF32;
  CHECK(Call(other).find() == CUBLAS_STATUS_NOT_SUPPORTED);
  Case mismatched;
  Call bad(mismatched);
  cublasLtMatrixLayoutDestroy(bad.layouts[1]);
  bad.layouts[1] = Matrix{c.k + 1, c.n}.layout();
  CHECK(bad.find() == CUBLAS_STATUS_INVALID_VALUE);

  call.set(CUBLASLT_MATMUL_DESC_EPILOGUE, std::uint32_t{CUBLASLT_EPILOGUE_DEFAULT});
  std::vector<float> host(call.a.size());
  CHECK(cudaDeviceSynchronize() == cudaSuccess);
  CHECK(run(host.data(), 2, nullptr, 0) == CUBLAS_STATUS_SUCCESS);
  CHECK(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
  CHECK(run(a, 2, nullptr, 0) == CUBLAS_STATUS_EXECUTION_FAILED);
  CHECK(std::strcmp(cublasLtGetStatusString(CUBLAS_STATUS_NOT_SUPPORTED),
                    "the functionality requested is not supported") == 0);
}

TEST_CASE("bf16 rounds to nearest even and keeps NaNs") {
  const auto through = [](float value) { return __bfloat162float(__float2bfloat16_rn(value)); };
  const auto from_bits = [](unsigned bits) { return __uint_as_float(bits); };
  CHECK(through(from_bits(0x3f808000U)) == from_bits(0x3f800000U));
  CHECK(through(from_bits(0x3f818000U)) == from_bits(0x3f820000U));
  CHECK(through(from_bits(0x3f808001U)) == from_bits(0x3f810000U));
  CHECK(std::isinf(through(from_bits(0x7f7fffffU))));
  CHECK(std::isnan(through(from_bits(0x7f800001U))));
  CHECK(__bfloat162float(__double2bfloat16(1.0 + std::ldexp(1.0, -8) + 1e-15)) ==
        from_bits(0x3f810000U));
  const __nv_bfloat162 pair = __floats2bfloat162_rn(1.5F, -2.0F);
  CHECK(__low2float(pair) == 1.5F);
  CHECK(__high2float(pair) == -2.0F);
}
