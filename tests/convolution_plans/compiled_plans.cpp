#include "tests/convolution_plans/compiled_plans.h"

#include <algorithm>
#include <array>

#include "kernels/base/error.h"
#include "kernels/cuda/conv/cudnn_candidates.h"

namespace dpt::testing {
namespace {

// Maximum size of a plan: a few times the size of the largest plans seen.
constexpr std::int64_t kMaxPlanBytes = std::int64_t{16} << 20;

bool is_compiled_at_run_time(const CudnnDescriptor& engine) {
  const auto notes = engine.get_all<cudnnBackendBehaviorNote_t>(CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE,
                                                                CUDNN_BEHAVIOR_NOTE_TYPE_COUNT);
  return std::find(notes.begin(), notes.end(), CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION) !=
         notes.end();
}

std::vector<CompiledPlan> plans_of(const CudnnDevice& gpu, const CudnnDescriptor& graph) {
  std::vector<CompiledPlan> result;
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    CudnnDescriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    heuristics.link(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph)
        .set(CUDNN_ATTR_ENGINEHEUR_MODE, mode);
    gpu.attach_to_heuristics(heuristics);
    if (heuristics.try_finalize() != CUDNN_STATUS_SUCCESS) continue;
    for (const CudnnDescriptor& config :
         heuristics.linked(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)) {
      const auto engines =
          config.linked(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR, 1);
      if (engines.empty() || !is_compiled_at_run_time(engines.front())) continue;
      const auto engine = engines.front().get<std::int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
      if (std::any_of(result.begin(), result.end(),
                      [&](const CompiledPlan& other) { return other.engine == engine; })) {
        continue;
      }
      CudnnDescriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
      plan.link(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
      gpu.attach_to_plan(plan);
      if (plan.try_finalize() != CUDNN_STATUS_SUCCESS) continue;
      const std::vector<char> json =
          plan.get_all<char>(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, kMaxPlanBytes);
      // The terminating zero is part of the attribute.
      result.push_back({engine, std::string(json.begin(), std::find(json.begin(), json.end(), 0))});
    }
  }
  return result;
}

CudnnDescriptor tensor(std::int64_t id, std::array<std::int64_t, 4> dims, cudnnDataType_t type) {
  const auto [first, c, h, w] = dims;
  CudnnDescriptor made(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  made.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id)
      .set(CUDNN_ATTR_TENSOR_DATA_TYPE, type)
      .set(CUDNN_ATTR_TENSOR_DIMENSIONS, dims)
      .set(CUDNN_ATTR_TENSOR_STRIDES, std::array<std::int64_t, 4>{c * h * w, 1, c * w, c})
      .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, kCudnnAlignment)
      .finalize();
  return made;
}

}  // namespace

std::vector<CompiledPlan> compiled_plans(const std::string& gpu, const ConvProblem& problem) {
  const CudnnDevice device(gpu);
  const CudnnConvGraph graph(device, problem);
  if (!graph.supported()) return {};
  return plans_of(device, graph.get());
}

std::vector<CompiledPlan> compiled_plans_with_atomics(const std::string& gpu) {
  using Pair = std::array<std::int64_t, 2>;
  const CudnnDevice device(gpu);
  const CudnnDescriptor x = tensor(1, {32, 64, 56, 56}, CUDNN_DATA_BFLOAT16);
  const CudnnDescriptor weight = tensor(2, {64, 64, 3, 3}, CUDNN_DATA_BFLOAT16);
  const CudnnDescriptor y = tensor(3, {32, 64, 56, 56}, CUDNN_DATA_BFLOAT16);
  const CudnnDescriptor sum = tensor(4, {1, 64, 1, 1}, CUDNN_DATA_FLOAT);
  const CudnnDescriptor squares = tensor(5, {1, 64, 1, 1}, CUDNN_DATA_FLOAT);
  CudnnDescriptor convolution(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  convolution.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT)
      .set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_CROSS_CORRELATION)
      .set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, std::int64_t{2})
      .set(CUDNN_ATTR_CONVOLUTION_DILATIONS, Pair{1, 1})
      .set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, Pair{1, 1})
      .set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, Pair{1, 1})
      .set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, Pair{1, 1})
      .finalize();
  std::vector<CudnnDescriptor> operations;
  operations.emplace_back(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR)
      .link(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, convolution)
      .link(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, x)
      .link(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, weight)
      .link(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, y)
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, 1.0F)
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, 0.0F)
      .finalize();
  CudnnDescriptor& statistics =
      operations.emplace_back(CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR);
  const cudnnGenStatsMode_t mode = CUDNN_GENSTATS_SUM_SQSUM;
  cudnn_check(cudnn().set_attribute(statistics.get(), CUDNN_ATTR_OPERATION_GENSTATS_MODE,
                                    CUDNN_TYPE_GENSTATS_MODE, 1, &mode),
              "cudnnBackendSetAttribute");
  statistics.set(CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC, CUDNN_DATA_FLOAT)
      .link(CUDNN_ATTR_OPERATION_GENSTATS_XDESC, y)
      .link(CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, sum)
      .link(CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC, squares)
      .finalize();
  CudnnDescriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  graph.link_all(CUDNN_ATTR_OPERATIONGRAPH_OPS, operations);
  graph.finalize();
  return plans_of(device, graph);
}

}  // namespace dpt::testing
