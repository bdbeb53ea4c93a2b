// A convolution as cuDNN sees it: a graph of operations, and the engines that can run it.
#pragma once

#include <algorithm>
#include <array>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/error.h"
#include "kernels/common/conv_padding.h"
#include "kernels/cuda/conv/conv_plan.h"
#include "kernels/cuda/conv/cudnn_graph.h"

namespace dpt {

/// Unique names of the tensors in a graph. Virtual tensors exist only between two operations.
enum CudnnTensor : std::int64_t {
  kX = 1,
  kY,
  kWeight,
  kBias,
  kGradient,
  kVirtualSum,
  kVirtualBiased
};

// Guaranteed alignment of all buffers, which suffices for every engine.
inline constexpr std::int64_t kCudnnAlignment = 16;

inline cudnnDataType_t cudnn_type_of(const ConvProblem& problem) {
  return problem.type == DType::bf16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
}

/// Record of failures. A failure only excludes its candidate. Failures other than "not supported"
/// are kept, to be thrown if no candidate is left.
class CudnnFailures {
 public:
  /// Returns true if the status is success; keeps the status of a failure.
  bool succeeded(cudnnStatus_t status, const char* what) {
    if (status == CUDNN_STATUS_SUCCESS) return true;
    if (!cudnn_unsupported(status)) text_ = cudnn_words(status, what);
    return false;
  }
  /// Throws the failure that was kept, if any.
  void raise() const {
    if (!text_.empty()) fail(ErrorKind::device, "{}", text_);
  }

 private:
  std::string text_;
};

/// Device for which cuDNN creates plans: the GPU of a handle, or one given by a description.
class CudnnDevice {
 public:
  explicit CudnnDevice(cudnnHandle_t handle) : handle_(handle) {}
  explicit CudnnDevice(const std::string& description) {
    properties_.emplace(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    // The terminating zero is part of the attribute.
    properties_->set_all(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                         std::span<const char>(description.c_str(), description.size() + 1));
    properties_->finalize();
  }

  void attach_to_graph(CudnnDescriptor& graph) const {
    if (handle_) graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, handle_);
  }
  void attach_to_heuristics(CudnnDescriptor& heuristics) const {
    if (properties_) heuristics.link(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *properties_);
  }
  void attach_to_engine(CudnnDescriptor& engine) const {
    if (properties_) engine.link(CUDNN_ATTR_ENGINE_DEVICEPROP, *properties_);
  }
  void attach_to_plan(CudnnDescriptor& plan) const {
    if (handle_) plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, handle_);
    if (properties_) plan.link(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, *properties_);
  }

 private:
  cudnnHandle_t handle_ = nullptr;
  std::optional<CudnnDescriptor> properties_;
};

/// Returns true if the graph has a bias, which may be all zeros.
inline bool has_bias(const ConvProblem& problem) {
  return problem.pass == Pass::forward && (problem.bias || problem.relu);
}
inline bool zero_bias(const ConvProblem& problem) {
  return has_bias(problem) && !problem.bias;
}

/// The problem as a graph: conv, conv + bias, relu(conv + bias), or one of the two gradients.
class CudnnConvGraph {
 public:
  CudnnConvGraph(const CudnnDevice& gpu, const ConvProblem& problem) : p_(problem) {
    switch (p_.pass) {
      case Pass::forward:
        forward();
        break;
      case Pass::backward_data:
        backward_data();
        break;
      case Pass::backward_weights:
        backward_weights();
        break;
    }
    for (CudnnDescriptor& operation : operations_) operation.finalize();
    graph_.link_all(CUDNN_ATTR_OPERATIONGRAPH_OPS, operations_);
    gpu.attach_to_graph(graph_);
    supported_ = failures_.succeeded(graph_.try_finalize(), "an operation graph");
  }

  bool supported() const { return supported_; }
  const CudnnFailures& failures() const { return failures_; }
  const CudnnDescriptor& get() const { return graph_; }

 private:
  using Dims = std::array<std::int64_t, 4>;

  /// Returns a tensor with channels last and the dimensions (first, c, h, w).
  const CudnnDescriptor& tensor(std::int64_t id, std::int64_t first, std::int64_t c, std::int64_t h,
                                std::int64_t w, cudnnDataType_t type, bool is_virtual = false) {
    CudnnDescriptor& made = parts_.emplace_back(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    made.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id)
        .set(CUDNN_ATTR_TENSOR_DATA_TYPE, type)
        .set(CUDNN_ATTR_TENSOR_DIMENSIONS, Dims{first, c, h, w})
        .set(CUDNN_ATTR_TENSOR_STRIDES, Dims{c * h * w, 1, c * w, c})
        .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, kCudnnAlignment)
        .set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, is_virtual)
        .finalize();
    return made;
  }
  const CudnnDescriptor& x() {
    return tensor(kX, p_.batch, p_.in.c, p_.in.h, p_.in.w, cudnn_type_of(p_));
  }
  const CudnnDescriptor& y(std::int64_t id, cudnnDataType_t type, bool is_virtual = false) {
    return tensor(id, p_.batch, p_.out.c, p_.out.h, p_.out.w, type, is_virtual);
  }
  const CudnnDescriptor& weight(std::int64_t id, cudnnDataType_t type) {
    return tensor(id, p_.out.c, p_.in.c / p_.groups, p_.kernel.h, p_.kernel.w, type);
  }

  const CudnnDescriptor& convolution() {
    using Pair = std::array<std::int64_t, 2>;
    const Size2 end = end_padding(p_, p_.out);
    CudnnDescriptor& made = parts_.emplace_back(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    made.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT)
        .set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_CROSS_CORRELATION)
        .set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, std::int64_t{2})
        .set(CUDNN_ATTR_CONVOLUTION_DILATIONS, Pair{p_.dilation.h, p_.dilation.w})
        .set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, Pair{p_.stride.h, p_.stride.w})
        .set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, Pair{p_.padding.h, p_.padding.w})
        .set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS,
             Pair{std::max(p_.padding.h, end.h), std::max(p_.padding.w, end.w)})
        .finalize();
    return made;
  }

  CudnnDescriptor& pointwise(cudnnPointwiseMode_t mode) {
    CudnnDescriptor& kind = parts_.emplace_back(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    kind.set(CUDNN_ATTR_POINTWISE_MODE, mode).set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT);
    // Without this, cuDNN may turn NaN into 0. Engines without the note STRICT_NAN_PROP may do so
    // anyway.
    if (mode == CUDNN_POINTWISE_RELU_FWD) {
      kind.set(CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, CUDNN_PROPAGATE_NAN);
    }
    kind.finalize();
    return operations_.emplace_back(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR)
        .link(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, kind);
  }

  void forward() {
    // Values between operations keep at least fp32 precision.
    const CudnnDescriptor* sum =
        p_.bias || p_.relu ? &y(kVirtualSum, CUDNN_DATA_FLOAT, true) : &y(kY, cudnn_type_of(p_));
    operations_.emplace_back(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR)
        .link(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, convolution())
        .link(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, x())
        .link(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, weight(kWeight, cudnn_type_of(p_)))
        .link(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, *sum)
        .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, 1.0F)
        .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, 0.0F);
    if (has_bias(p_)) {
      const CudnnDescriptor& biased =
          p_.relu ? y(kVirtualBiased, CUDNN_DATA_FLOAT, true) : y(kY, cudnn_type_of(p_));
      pointwise(CUDNN_POINTWISE_ADD)
          .link(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, *sum)
          .link(CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
                tensor(kBias, 1, p_.out.c, 1, 1, cudnn_type_of(p_)))
          .link(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, biased);
      sum = &biased;
    }
    if (p_.relu) {
      pointwise(CUDNN_POINTWISE_RELU_FWD)
          .link(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, *sum)
          .link(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y(kY, cudnn_type_of(p_)));
    }
  }

  void backward_data() {
    operations_.emplace_back(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR)
        .link(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, convolution())
        .link(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, x())
        .link(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, weight(kWeight, cudnn_type_of(p_)))
        .link(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, y(kY, cudnn_type_of(p_)))
        .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, 1.0F)
        .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, 0.0F);
  }

  void backward_weights() {
    operations_.emplace_back(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR)
        .link(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, convolution())
        .link(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, x())
        .link(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, weight(kGradient, cudnn_type_of(p_)))
        .link(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, y(kY, cudnn_type_of(p_)))
        .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, 1.0F)
        .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA, 0.0F);
  }

  ConvProblem p_;
  // Descriptors refer to each other, and deques keep their addresses stable. Descriptors to which
  // others refer are declared first, so that they are destroyed last.
  std::deque<CudnnDescriptor> parts_, operations_;
  CudnnDescriptor graph_{CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR};
  CudnnFailures failures_;
  bool supported_ = false;
};

/// An implementation of a graph: an engine and the settings of its knobs.
struct CudnnCandidate {
  std::string name;
  CudnnDescriptor config;
};

/// Prefix of the names of candidates.
inline constexpr std::string_view kCudnnPrefix = "cudnn:eng";

/// Returns the admissible candidates that the heuristics suggest, best first.
std::vector<CudnnCandidate> cudnn_candidates(const CudnnDevice& device, const CudnnConvGraph& graph,
                                             const ConvProblem& problem, CudnnFailures& failures);

/// Returns the candidate of this name. Returns nothing if this cuDNN lacks the engine or knob, or
/// if the candidate is not admissible.
std::optional<CudnnCandidate> cudnn_candidate_named(const CudnnDevice& device,
                                                    const CudnnConvGraph& graph,
                                                    const ConvProblem& problem,
                                                    const std::string& name);

/// Returns true if cuDNN notes that the candidate computes on tensor cores.
bool cudnn_uses_tensor_cores(const CudnnCandidate& candidate);

/// Creates the execution plan of a candidate. Returns nothing if cuDNN cannot create it on the
/// device, or if it needs more than `workspace_bytes`.
std::optional<CudnnDescriptor> make_cudnn_execution_plan(const CudnnDevice& device,
                                                         const CudnnCandidate& candidate,
                                                         std::size_t workspace_bytes,
                                                         CudnnFailures& failures);

/// Returns the bytes of workspace that an execution plan needs.
std::size_t cudnn_plan_workspace(const CudnnDescriptor& plan);

}  // namespace dpt
