// Linear layers on cuBLASLt. It expects column-major matrices, and dpt's are row-major. A row-major
// (R,C) matrix has the same bytes as a column-major C x R one. So instead of D = L R, dpt requests
// D^T = R^T L^T, with R as the first factor, and no matrix is moved or transposed in memory.
//
// Results have the same bits every time. An algorithm uses dpt's workspace, so work on other
// streams does not affect it. If it splits the inner dimension, the parts go to the workspace in
// fp32 and are added in a second pass. Other schemes, which add into the output or in its type, are
// masked out. Without a plan cache, the algorithm is the first one that cuBLASLt's heuristics
// suggest for the shape and GPU; with a plan cache, it is the fastest of the first few.
#include "kernels/cuda/ops.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <type_traits>

#include "kernels/base/error.h"
#include "kernels/cuda/column_sums.h"
#include "kernels/cuda/description.h"
#include "kernels/cuda/linear_kernels.h"
#include "kernels/cuda/runtime/libraries.h"
#include "kernels/cuda/runtime/per_context.h"
#include "kernels/cuda/runtime/plan_cache.h"
#include "kernels/cuda/runtime/timing.h"

namespace dpt {
namespace {

/// Guaranteed alignment of all addresses. Parameters start at multiples of 64 bytes, and their bf16
/// copies at multiples of 32; no kernel benefits from more than 16 bytes, the size of one load.
constexpr std::uint32_t kAlignment = 16;
constexpr int kMaxTimed = 8;

/// Owner of one of cuBLASLt's opaque objects.
template <class Handle>
using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, cublasStatus_t (*)(Handle)>;

/// Types of a product's factors and result.
struct ProductTypes {
  cudaDataType_t factors, result;
  bool tf32 = false;
};

/// Product D (rows, columns) = L (rows, inner) R (inner, columns), all row-major. The dimensions of
/// a factor that is `transposed` are exchanged in memory.
struct Product {
  std::int64_t rows, columns, inner;
  bool left_transposed, right_transposed;
  ProductTypes types;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;

  /// Returns one line without spaces that names all of the above: the key of the plan cache.
  std::string key() const {
    return fmt::format("product:{}x{}x{}:{}{}:{}>{}{}:e{}", rows, inner, columns,
                       left_transposed ? 't' : 'n', right_transposed ? 't' : 'n',
                       name_of(of(types.factors)), name_of(of(types.result)),
                       types.tf32 ? ":tf32" : "", static_cast<int>(epilogue));
  }
  static DType of(cudaDataType_t type) { return type == CUDA_R_16BF ? DType::bf16 : DType::f32; }
};

class Matmul {
 public:
  Matmul(const CudaContext& context, const Product& p)
      : context_(context), lt_(cublas_lt()), handle_(shared_handle(context)) {
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
    choose(p);
  }

  /// Runs the product. `bias` (columns) is used by an epilogue with a bias. It has the type of the
  /// result, as cuBLASLt requires.
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
  /// Returns the name of the algorithm, which is the same in every process, followed by the remark
  /// on its timing, if any.
  std::string name() const { return algorithm_name_ + uncaptured_; }
  const std::string& algorithm_name() const { return algorithm_name_; }

 private:
  using Context = std::remove_pointer_t<cublasLtHandle_t>;
  struct Algorithm {
    std::string name;
    cublasLtMatmulAlgo_t algorithm;
  };

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

  /// Creates a column-major layout without gaps.
  Owned<cublasLtMatrixLayout_t> layout(cudaDataType_t type, std::int64_t rows,
                                       std::int64_t columns) const {
    cublasLtMatrixLayout_t made = nullptr;
    check(lt_.layout_create(&made, type, static_cast<std::uint64_t>(rows),
                            static_cast<std::uint64_t>(columns), rows),
          "cublasLtMatrixLayoutCreate");
    return {made, lt_.layout_destroy};
  }

  void choose(const Product& p) {
    const BackendOptions& options = context_.options;
    const bool timed = !options.exact && !options.plan_cache.empty();
    const std::set<std::string>& avoided = context_.avoided;
    std::vector<Algorithm> algorithms =
        find_algorithms(p, timed || !avoided.empty() ? kMaxTimed : 1);
    const auto is_avoided = [&](const Algorithm& each) { return avoided.contains(each.name); };
    if (!std::all_of(algorithms.begin(), algorithms.end(), is_avoided)) {
      std::erase_if(algorithms, is_avoided);
    }
    if (timed && algorithms.size() > 1) {
      const auto with_name = [&](const std::string& name) {
        return std::find_if(algorithms.begin(), algorithms.end(),
                            [&](const Algorithm& each) { return each.name == name; });
      };
      const std::string machine =
          fmt::format("{} cuBLASLt {}", machine_key(context_), lt_.version());
      const std::string name =
          PlanCache::of(options.plan_cache)
              .decide(
                  machine, p.key(),
                  [&](const std::string& kept) { return with_name(kept) != algorithms.end(); },
                  [&] { return fastest(p, algorithms); });
      // The name is empty if nothing could be timed.
      if (!name.empty()) algorithms.front() = *with_name(name);
    }
    algorithm_ = algorithms.front().algorithm;
    algorithm_name_ = algorithms.front().name;
  }

  /// Returns the name of the fastest algorithm, or an empty name if there is too little memory for
  /// timing. Removes the algorithms that fail.
  std::string fastest(const Product& p, std::vector<Algorithm>& algorithms) {
    Timing timing(context_);
    const DType factors = Product::of(p.types.factors), to = Product::of(p.types.result);
    const DevPtr left = address(timing.make(p.rows * p.inner, factors)),
                 right = address(timing.make(p.inner * p.columns, factors)),
                 result = address(timing.make(p.rows * p.columns, to)),
                 bias = address(timing.make(p.columns, to));
    if (!left || !right || !result || !bias) return {};
    std::string failure;
    const std::vector<float> times = timing.times(
        algorithms.size(),
        [&](std::size_t i) {
          algorithm_ = algorithms[i].algorithm;
          run(left, right, result, GradWrite::overwrite,
              p.epilogue & CUBLASLT_EPILOGUE_BIAS ? bias : DevPtr{});
        },
        failure);
    const auto first = std::min_element(times.begin(), times.end());
    if (std::isinf(*first)) fail(ErrorKind::device, "{}", failure);
    const std::string name = algorithms[first - times.begin()].name;
    for (std::size_t i = 0; i < times.size(); ++i) {
      if (timing.uncaptured(i).empty()) continue;
      uncaptured_ = fmt::format(" ({} was timed with host launches: {})", algorithms[i].name,
                                timing.uncaptured(i));
    }
    for (std::size_t i = times.size(); i-- > 0;) {
      if (std::isinf(times[i]))
        algorithms.erase(algorithms.begin() + static_cast<std::ptrdiff_t>(i));
    }
    return name;
  }
  static DevPtr address(const void* pointer) { return {reinterpret_cast<std::uintptr_t>(pointer)}; }

  /// Returns the algorithms that cuBLASLt's heuristics suggest, best first: at least one, at most
  /// `most`, without repetition.
  std::vector<Algorithm> find_algorithms(const Product& p, int most) const {
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
    std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<std::size_t>(most));
    int found = 0;
    const cublasStatus_t status =
        lt_.heuristic(handle_.get(), desc_.get(), right_.get(), left_.get(), result_.get(),
                      result_.get(), made, most, results.data(), &found);
    check(status, "cublasLtMatmulAlgoGetHeuristic");
    results.resize(static_cast<std::size_t>(found));
    std::vector<Algorithm> algorithms;
    for (const cublasLtMatmulHeuristicResult_t& result : results) {
      if (result.state != CUBLAS_STATUS_SUCCESS) continue;
      std::string name = name_of_algorithm(result.algo);
      const bool known = std::any_of(algorithms.begin(), algorithms.end(),
                                     [&](const Algorithm& other) { return other.name == name; });
      if (!known) algorithms.push_back({std::move(name), result.algo});
    }
    if (algorithms.empty()) {
      fail(ErrorKind::device,
           "{}: cuBLASLt {} has no algorithm for a product of {}x{} by {}x{} on {} with {} bytes "
           "of workspace",
           context_.name, lt_.version(), p.rows, p.inner, p.inner, p.columns, context_.gpu,
           workspace);
    }
    return algorithms;
  }

  /// Returns the name of an algorithm: the values of all its settings, which identify it within one
  /// version of cuBLASLt. Example: "cublaslt:66-15-1-0-0-0-21-0-3".
  std::string name_of_algorithm(const cublasLtMatmulAlgo_t& algorithm) const {
    std::string name = "cublaslt:";
    const auto append = [&](cublasLtMatmulAlgoConfigAttributes_t attribute, auto value) {
      check(lt_.algorithm_get(&algorithm, attribute, &value, sizeof(value), nullptr),
            "cublasLtMatmulAlgoConfigGetAttribute");
      name += fmt::format("{}{}", name.back() == ':' ? "" : "-", value);
    };
    for (const auto attribute :
         {CUBLASLT_ALGO_CONFIG_ID, CUBLASLT_ALGO_CONFIG_TILE_ID, CUBLASLT_ALGO_CONFIG_SPLITK_NUM,
          CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING,
          CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, CUBLASLT_ALGO_CONFIG_STAGES_ID}) {
      append(attribute, std::uint32_t{0});
    }
    append(CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, std::uint16_t{0});
    append(CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, std::uint16_t{0});
    return name;
  }

  const CudaContext& context_;
  const CublasLt& lt_;
  std::shared_ptr<Context> handle_;
  Owned<cublasLtMatmulDesc_t> desc_{nullptr, lt_.matmul_desc_destroy};
  Owned<cublasLtMatrixLayout_t> left_{nullptr, lt_.layout_destroy},
      right_{nullptr, lt_.layout_destroy}, result_{nullptr, lt_.layout_destroy};
  cublasLtMatmulAlgo_t algorithm_ = {};
  std::string algorithm_name_, uncaptured_;
};

class CudaLinear final : public Op {
 public:
  CudaLinear(const CudaContext& context, const LinearDesc& desc) : context_(context), d_(desc) {
    make_forward();
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
        sums_apart() ? static_cast<std::size_t>(d_.batch * d_.out) * sizeof(float) : 0;
    if (d_.training && (d_.relu || d_.bias)) {
      bytes = std::max(bytes, column_sums_scratch(context_, d_.batch, d_.out));
    }
    return bytes;
  }
  bool backward_needs_y() const override { return d_.relu; }
  bool backward_keeps_dy() const override { return !d_.relu; }

  void forward(const OpArgs& args) override {
    const DevPtr weight = args.params[d_.kWeight].as(d_.type);
    const ParamArgs& bias = args.params[d_.kBias];
    if (sums_apart()) {
      forward_->run(args.x, weight, args.scratch);
      add_bias(context_, args.scratch, d_.bias ? bias.f32 : DevPtr{}, d_.relu, args.y, d_.type,
               d_.batch, d_.out);
    } else {
      forward_->run(args.x, weight, args.y, GradWrite::overwrite,
                    d_.bias ? bias.as(d_.type) : DevPtr{});
    }
  }

  void backward(const OpArgs& args) override {
    begin_backward(args);
    backward_params(args);
    if (backward_data_) backward_data(args);
  }
  bool has_backward_parts() const override { return backward_data_.has_value(); }
  /// Computes the gradients of the ReLU's input and of the bias in the same kernel.
  void begin_backward(const OpArgs& args) override {
    if (!d_.relu) return;
    relu_column_sums(context_, args.dy, args.y, d_.type, d_.batch, d_.out,
                     d_.bias ? args.params[d_.kBias].gradient : DevPtr{}, args.write, args.scratch);
  }
  void backward_params(const OpArgs& args) override {
    if (d_.bias && !d_.relu) {
      column_sums(context_, args.dy, d_.type, d_.batch, d_.out, args.params[d_.kBias].gradient,
                  args.write, args.scratch);
    }
    backward_weights_->run(args.dy, args.x, args.params[d_.kWeight].gradient, args.write);
  }
  void backward_data(const OpArgs& args) override {
    backward_data_->run(args.dy, args.params[d_.kWeight].as(d_.type), args.dx);
  }

  std::string implementation() const override {
    std::string text = fmt::format("cuBLASLt {}: forward {}", d_.tf32 ? "tf32" : name_of(d_.type),
                                   forward_->name());
    if (sums_apart()) text += ", bias and relu apart";
    if (backward_weights_) text += ", weights " + backward_weights_->name();
    if (backward_data_) text += ", data " + backward_data_->name();
    if (!apart_why_.empty()) text += fmt::format(" (another failed: {})", apart_why_);
    return text;
  }
  std::string replaceable_kernel(Pass pass) const override {
    const auto& product = pass == Pass::forward         ? forward_
                          : pass == Pass::backward_data ? backward_data_
                                                        : backward_weights_;
    return product ? product->algorithm_name() : std::string();
  }

 private:
  cudaDataType_t type() const { return d_.type == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F; }
  /// Returns true if cuBLASLt leaves fp32 sums in the scratch and a kernel of dpt finishes the
  /// work, because cuBLASLt cannot add the bias.
  bool sums_apart() const { return !apart_why_.empty(); }

  void make_forward() {
    try {
      forward_.emplace(context_, forward_product());
    } catch (const Error& error) {
      if (sums_apart() || (!d_.bias && !d_.relu)) throw;
      // cuBLASLt supports only products without a bias for some shapes (one row, one column).
      apart_why_ = error.what();
      forward_.emplace(context_, forward_product());
    }
  }

  Product forward_product() const {
    const cudaDataType_t result = sums_apart() ? CUDA_R_32F : type();
    const bool relu = d_.relu && !sums_apart(), bias = d_.bias && !sums_apart();
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
  std::string apart_why_;  ///< reason why cuBLASLt cannot add the bias; empty if it can
  std::optional<Matmul> forward_, backward_weights_, backward_data_;
};

}  // namespace

std::unique_ptr<Op> make_cuda_op(const CudaContext& context, const LinearDesc& desc) {
  check_cuda_desc(context, "a linear layer", desc.type, desc.batch);
  return std::make_unique<CudaLinear>(context, desc);
}

}  // namespace dpt
