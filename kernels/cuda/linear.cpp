// Linear layers on cuBLASLt. It takes matrices column by column, and ours lie row by row: a
// row-major (R,C) matrix is, byte for byte, a column-major C x R one. So instead of D = L R it is
// asked for D^T = R^T L^T, with R as its first factor: every matrix keeps its place, and nothing is
// transposed in memory.
//
// Results are the same bits every time: the algorithm is the first that cuBLASLt's heuristics name
// for the shape and card, with our own workspace (so that no other stream matters); and where it
// splits the inner dimension, the parts go to the workspace in fp32 and are added in a second pass.
// The other schemes add into the output or through its type; they are masked out.
#include "kernels/cuda/linear.h"

#include <algorithm>
#include <optional>
#include <type_traits>

#include "kernels/cuda/column_sums.h"
#include "kernels/cuda/description.h"
#include "kernels/cuda/libraries.h"
#include "kernels/cuda/linear_kernels.h"
#include "kernels/cuda/per_context.h"
#include "kernels/error.h"

namespace dpt {
namespace {

/// What all addresses are a multiple of. Parameters start at multiples of 64 bytes, and their bf16
/// copies at half of that; no kernel gains from more than one 16-byte load.
constexpr std::uint32_t kAlignment = 16;

/// One of cuBLASLt's opaque objects.
template <class Handle>
using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, cublasStatus_t (*)(Handle)>;

/// The types of a product's factors and result.
struct ProductTypes {
  cudaDataType_t factors, result;
  bool tf32 = false;
};

/// D (rows, columns) = L (rows, inner) R (inner, columns), all row-major; a factor that is
/// `transposed` lies in memory with its two dimensions exchanged.
struct Product {
  std::int64_t rows, columns, inner;
  bool left_transposed, right_transposed;
  ProductTypes types;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
};

class Matmul {
 public:
  Matmul(const CudaContext& context, const Product& product)
      : context_(context), lt_(cublas_lt()), handle_(shared_handle(context)) {
    const Product& p = product;
    cublasLtMatmulDesc_t desc = nullptr;
    check(lt_.matmul_desc_create(
              &desc, p.types.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F),
          "cublasLtMatmulDescCreate");
    desc_.reset(desc);
    set(CUBLASLT_MATMUL_DESC_TRANSA, p.right_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, p.left_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, p.epilogue);
    right_ = p.right_transposed ? layout(p.types.factors, p.inner, p.columns)
                                : layout(p.types.factors, p.columns, p.inner);
    left_ = p.left_transposed ? layout(p.types.factors, p.rows, p.inner)
                              : layout(p.types.factors, p.inner, p.rows);
    result_ = layout(p.types.result, p.columns, p.rows);
    find_algorithm(p);
  }

  /// `bias` (columns) fp32, for an epilogue that has one.
  void run(DevPtr left, DevPtr right, DevPtr result, GradWrite write = GradWrite::overwrite,
           DevPtr bias = {}) {
    if (bias) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, device<const void>(bias));
    const float one = 1.0F, beta = write == GradWrite::add ? 1.0F : 0.0F;
    check(lt_.matmul(handle_.get(), desc_.get(), &one, device<void>(right), right_.get(),
                     device<void>(left), left_.get(), &beta, device<void>(result), result_.get(),
                     device<void>(result), result_.get(), &algorithm_, context_.workspace,
                     context_.workspace_bytes, context_.stream),
          "cublasLtMatmul");
  }

 private:
  using Context = std::remove_pointer_t<cublasLtHandle_t>;

  static std::shared_ptr<Context> shared_handle(const CudaContext& context) {
    static PerContext<Context> handles;
    return handles.get(context, [&] {
      cublasLtHandle_t handle = nullptr;
      check(context, cublas_lt().create(&handle), "cublasLtCreate");
      return std::shared_ptr<Context>(handle, cublas_lt().destroy);
    });
  }

  static void check(const CudaContext& context, cublasStatus_t status, const char* call) {
    if (status == CUBLAS_STATUS_SUCCESS) return;
    fail(ErrorKind::device, "{}: {} failed: {}", context.name, call,
         cublas_lt().status_string(status));
  }
  void check(cublasStatus_t status, const char* call) const { check(context_, status, call); }

  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    check(lt_.matmul_desc_set(desc_.get(), attribute, &value, sizeof(value)),
          "cublasLtMatmulDescSetAttribute");
  }

  /// Column-major, without gaps.
  Owned<cublasLtMatrixLayout_t> layout(cudaDataType_t type, std::int64_t rows,
                                       std::int64_t columns) const {
    cublasLtMatrixLayout_t made = nullptr;
    check(lt_.layout_create(&made, type, static_cast<std::uint64_t>(rows),
                            static_cast<std::uint64_t>(columns), rows),
          "cublasLtMatrixLayoutCreate");
    return {made, lt_.layout_destroy};
  }

  void find_algorithm(const Product& p) {
    cublasLtMatmulPreference_t made = nullptr;
    check(lt_.preference_create(&made), "cublasLtMatmulPreferenceCreate");
    const Owned<cublasLtMatmulPreference_t> preference{made, lt_.preference_destroy};
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
      check(lt_.preference_set(made, attribute, &value, sizeof(value)),
            "cublasLtMatmulPreferenceSetAttribute");
    };
    const std::uint64_t workspace = context_.workspace_bytes;
    const std::uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace);
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, kAlignment);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, kAlignment);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, kAlignment);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, kAlignment);
    cublasLtMatmulHeuristicResult_t best = {};
    int found = 0;
    const cublasStatus_t status =
        lt_.heuristic(handle_.get(), desc_.get(), right_.get(), left_.get(), result_.get(),
                      result_.get(), made, 1, &best, &found);
    if (status == CUBLAS_STATUS_SUCCESS && found == 0) {
      fail(ErrorKind::device,
           "{}: cuBLASLt {} has no algorithm for a product of {}x{} by {}x{} on {} with {} bytes "
           "of workspace",
           context_.name, lt_.version(), p.rows, p.inner, p.inner, p.columns, context_.card,
           workspace);
    }
    check(status, "cublasLtMatmulAlgoGetHeuristic");
    check(best.state, "cublasLtMatmulAlgoGetHeuristic");
    algorithm_ = best.algo;
  }

  const CudaContext& context_;
  const CublasLt& lt_;
  std::shared_ptr<Context> handle_;
  Owned<cublasLtMatmulDesc_t> desc_{nullptr, lt_.matmul_desc_destroy};
  Owned<cublasLtMatrixLayout_t> left_{nullptr, lt_.layout_destroy},
      right_{nullptr, lt_.layout_destroy}, result_{nullptr, lt_.layout_destroy};
  cublasLtMatmulAlgo_t algorithm_ = {};
};

class CudaLinear final : public Op {
 public:
  CudaLinear(const CudaContext& context, const LinearDesc& desc)
      : context_(context), d_(desc), forward_(context, forward_product()) {
    if (!d_.training) return;
    backward_weights_.emplace(
        context, Product{d_.out, d_.in, d_.batch, true, false, {type(), CUDA_R_32F, d_.tf32}});
    if (d_.input_gradient) {
      backward_data_.emplace(
          context, Product{d_.batch, d_.in, d_.out, false, false, {type(), type(), d_.tf32}});
    }
  }

  std::size_t scratch_bytes() const override {
    std::size_t bytes =
        bias_apart() ? static_cast<std::size_t>(d_.batch * d_.out) * sizeof(float) : 0;
    if (d_.training && (d_.relu || d_.bias)) {
      bytes = std::max(bytes, column_sums_scratch(context_, d_.batch, d_.out));
    }
    return bytes;
  }
  bool backward_needs_y() const override { return d_.relu; }

  void forward(const OpArgs& args) override {
    if (bias_apart()) {
      forward_.run(args.x, args.weight, args.scratch);
      add_bias(context_, args.scratch, args.bias, d_.relu, args.y, d_.type, d_.batch, d_.out);
    } else {
      forward_.run(args.x, args.weight, args.y, GradWrite::overwrite,
                   d_.bias ? args.bias : DevPtr{});
    }
  }

  void backward(const OpArgs& args) override {
    if (d_.relu) {
      relu_column_sums(context_, args.dy, args.y, d_.type, d_.batch, d_.out,
                       d_.bias ? args.dbias : DevPtr{}, args.write, args.scratch);
    } else if (d_.bias) {
      column_sums(context_, args.dy, d_.type, d_.batch, d_.out, args.dbias, args.write,
                  args.scratch);
    }
    backward_weights_->run(args.dy, args.x, args.dweight, args.write);
    if (backward_data_) backward_data_->run(args.dy, args.weight, args.dx);
  }

  std::string implementation() const override {
    return fmt::format("cuBLASLt {}{}", d_.tf32 ? "tf32" : name_of(d_.type),
                       bias_apart() ? ", bias apart" : "");
  }

 private:
  cudaDataType_t type() const { return d_.type == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F; }
  /// cuBLASLt wants the bias in the type of the result, and ours is fp32: then it leaves fp32 sums
  /// in the scratch, and a kernel of ours does the rest.
  bool bias_apart() const { return d_.bias && d_.type != DType::f32; }

  Product forward_product() const {
    const cudaDataType_t result = bias_apart() ? CUDA_R_32F : type();
    const bool relu = d_.relu && !bias_apart(), bias = d_.bias && !bias_apart();
    return {d_.batch,
            d_.out,
            d_.in,
            false,
            true,
            {type(), result, d_.tf32},
            relu ? (bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU)
                 : (bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT)};
  }

  const CudaContext& context_;
  LinearDesc d_;
  Matmul forward_;
  std::optional<Matmul> backward_weights_, backward_data_;
};

}  // namespace

std::unique_ptr<Op> make_cuda_linear(const CudaContext& context, const LinearDesc& desc) {
  check_cuda_desc(context, "a linear layer", desc.type, desc.batch);
  return std::make_unique<CudaLinear>(context, desc);
}

}  // namespace dpt
