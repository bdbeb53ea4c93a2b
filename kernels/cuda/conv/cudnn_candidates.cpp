// Selects the engines of cuDNN that may run a convolution, and creates their plans.
#include "kernels/cuda/conv/cudnn_candidates.h"

#include <algorithm>
#include <charconv>

namespace dpt {
namespace {

/// Returns the name of an engine with its knobs (type=value): "cudnn:eng38-k2=1". The name
/// identifies an implementation within one version of cuDNN.
std::string name_of(const CudnnDescriptor& engine, const CudnnDescriptor& config) {
  std::string name =
      fmt::format("{}{}", kCudnnPrefix, engine.get<std::int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX));
  for (const CudnnDescriptor& knob :
       config.linked(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR,
                     CUDNN_KNOB_TYPE_COUNTS)) {
    name += fmt::format(
        "-k{}={}",
        static_cast<int>(knob.get<cudnnBackendKnobType_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE)),
        knob.get<std::int64_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE));
  }
  return name;
}

/// Returns true if cuDNN compiles the engine at run time. Such an engine may add with atomics, in
/// an order that changes, without a note that says so. An example is the engine for a convolution
/// with the statistics of its output (genStats, cuDNN 9.19).
bool is_compiled_at_run_time(const CudnnDescriptor& engine) {
  const auto notes = engine.get_all<cudnnBackendBehaviorNote_t>(CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE,
                                                                CUDNN_BEHAVIOR_NOTE_TYPE_COUNT);
  return std::find(notes.begin(), notes.end(), CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION) !=
         notes.end();
}

std::vector<cudnnBackendNumericalNote_t> numerical_notes_of(const CudnnDescriptor& engine) {
  return engine.get_all<cudnnBackendNumericalNote_t>(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                                     CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
}

/// Returns true if the engine satisfies the backend contract: the same bits every time, sums in
/// fp32, factors as precise as requested. Winograd's and Fourier's transforms lose digits that
/// plain sums keep.
bool admissible(const CudnnDescriptor& engine, const ConvProblem& problem) {
  if (is_compiled_at_run_time(engine)) return false;
  const auto notes = numerical_notes_of(engine);
  return std::none_of(notes.begin(), notes.end(), [&](cudnnBackendNumericalNote_t note) {
    switch (note) {
      case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC:
      case CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION:
      case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS:  // To half; does not include tf32.
      case CUDNN_NUMERICAL_NOTE_FFT:
      case CUDNN_NUMERICAL_NOTE_WINOGRAD:
        return true;
      case CUDNN_NUMERICAL_NOTE_TENSOR_CORE:
        return problem.type == DType::f32 && !problem.tf32;
      default:
        return false;
    }
  });
}

}  // namespace

std::vector<CudnnCandidate> cudnn_candidates(const CudnnDevice& gpu, const CudnnConvGraph& graph,
                                             const ConvProblem& problem, CudnnFailures& failures) {
  std::vector<CudnnCandidate> result;
  if (!graph.supported()) return result;
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    CudnnDescriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    heuristics.link(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph.get())
        .set(CUDNN_ATTR_ENGINEHEUR_MODE, mode);
    gpu.attach_to_heuristics(heuristics);
    if (!failures.succeeded(heuristics.try_finalize(), "an engine heuristic")) continue;
    for (CudnnDescriptor& config :
         heuristics.linked(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)) {
      const auto engines =
          config.linked(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR, 1);
      if (engines.empty() || !admissible(engines.front(), problem)) continue;
      std::string name = name_of(engines.front(), config);
      const bool known =
          std::any_of(result.begin(), result.end(),
                      [&](const CudnnCandidate& other) { return other.name == name; });
      if (!known) result.push_back({std::move(name), std::move(config)});
    }
  }
  return result;
}

std::optional<CudnnCandidate> cudnn_candidate_named(const CudnnDevice& gpu,
                                                    const CudnnConvGraph& graph,
                                                    const ConvProblem& problem,
                                                    const std::string& name) {
  if (!graph.supported() || !name.starts_with(kCudnnPrefix)) return std::nullopt;
  // The number of the engine, followed by pairs of a knob's type and value.
  std::vector<std::int64_t> numbers;
  for (std::string_view rest = std::string_view(name).substr(kCudnnPrefix.size());;) {
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
    if (error != std::errc{}) return std::nullopt;
    numbers.push_back(number);
    rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
    if (rest.empty()) break;
    const std::string_view separator = numbers.size() % 2 == 1 ? "-k" : "=";
    if (!rest.starts_with(separator)) return std::nullopt;
    rest.remove_prefix(separator.size());
  }
  if (numbers.size() % 2 == 0) return std::nullopt;

  CudnnDescriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  engine.link(CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph.get());
  gpu.attach_to_engine(engine);
  const cudnnStatus_t known = engine.try_set(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, numbers[0]);
  if (known != CUDNN_STATUS_SUCCESS || engine.try_finalize() != CUDNN_STATUS_SUCCESS ||
      !admissible(engine, problem)) {
    return std::nullopt;
  }
  std::vector<CudnnDescriptor> knobs;
  for (std::size_t i = 1; i < numbers.size(); i += 2) {
    CudnnDescriptor& knob = knobs.emplace_back(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
    knob.set(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, static_cast<cudnnBackendKnobType_t>(numbers[i]))
        .set(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, numbers[i + 1]);
    if (knob.try_finalize() != CUDNN_STATUS_SUCCESS) return std::nullopt;
  }
  CudnnDescriptor config(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  config.link(CUDNN_ATTR_ENGINECFG_ENGINE, engine);
  config.link_all(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, knobs);
  if (config.try_finalize() != CUDNN_STATUS_SUCCESS) return std::nullopt;
  return CudnnCandidate{name, std::move(config)};
}

bool cudnn_uses_tensor_cores(const CudnnCandidate& candidate) {
  const auto engines =
      candidate.config.linked(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR, 1);
  const auto notes = numerical_notes_of(engines.at(0));
  return std::find(notes.begin(), notes.end(), CUDNN_NUMERICAL_NOTE_TENSOR_CORE) != notes.end();
}

std::optional<CudnnDescriptor> make_cudnn_execution_plan(const CudnnDevice& gpu,
                                                         const CudnnCandidate& candidate,
                                                         std::size_t workspace_bytes,
                                                         CudnnFailures& failures) {
  CudnnDescriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  plan.link(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, candidate.config);
  gpu.attach_to_plan(plan);
  if (!failures.succeeded(plan.try_finalize(), candidate.name.c_str())) return std::nullopt;
  if (cudnn_plan_workspace(plan) > workspace_bytes) return std::nullopt;
  return plan;
}

std::size_t cudnn_plan_workspace(const CudnnDescriptor& plan) {
  return static_cast<std::size_t>(plan.get<std::int64_t>(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE));
}

}  // namespace dpt
