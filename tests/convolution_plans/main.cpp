// convolution_plans [--workspace BYTES] [--part I/N]: asks cuDNN, as training and evaluation do,
// for its plans for the convolutions of the zoo's networks on described GPUs. Prints one JSON
// object per line: first {"cudnn", "workspace"}, then one per GPU and problem. Part I of N (counted
// from 0) covers every N-th convolution. Exit code 4 if there is no cuDNN.
//
// convolution_plans --compiled DIR [--part I/N]: writes the plans that cuDNN compiles at run time
// into files in DIR, as cuDNN describes them in JSON, including their machine code. Prints one JSON
// object per line: first {"cudnn", "gpus"}, then {"gpu", "problem", "engine", "file"} for each
// plan. "problem" is "control" for plans that are known to add with float atomics. Needs
// libcuda_stand_in on LD_LIBRARY_PATH.
//
// scripts/gpu/convolution-plans reads the output.
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "app/base/zoo_plan.h"
#include "engine/graph/operations.h"
#include "kernels/base/error.h"
#include "kernels/cuda/backend.h"
#include "kernels/cuda/conv/cudnn_conv.h"
#include "kernels/cuda/runtime/libraries.h"
#include "tests/convolution_plans/compiled_plans.h"
#include "tests/support/described_gpu.h"

namespace {

using namespace dpt;
using Json = nlohmann::ordered_json;

constexpr ZooInput kNetworks[] = {
    {"lenet", "[1, 28, 28]"},    {"vgg11", "[3, 224, 224]"},    {"resnet18", "[3, 224, 224]"},
    {"resnet20", "[3, 32, 32]"}, {"resnet50", "[3, 224, 224]"}, {"mobilenet_v2", "[3, 224, 224]"},
};
constexpr std::int64_t kBatches[] = {1, 32, 256};
// cuDNN takes up to two seconds to compile a plan, so --compiled has fewer problems.
constexpr std::string_view kCompiledNetworks[] = {"resnet18", "resnet20"};
constexpr std::int64_t kCompiledBatch = 32;

struct Precision {
  const char* name;
  DType type;
  bool tf32;
};
constexpr Precision kPrecisions[] = {
    {"fp32", DType::f32, false}, {"tf32", DType::f32, true}, {"bf16", DType::bf16, false}};

struct PassCase {
  const char* name;
  Pass pass;
  bool bias_and_relu;
};
constexpr PassCase kPasses[] = {{"forward", Pass::forward, false},
                                {"bias+ReLU", Pass::forward, true},
                                {"data", Pass::backward_data, false},
                                {"weights", Pass::backward_weights, false}};

/// A convolution of one sample, and the networks that contain it.
struct Convolution {
  Conv2dDesc desc;
  std::vector<std::string> networks;
};

/// Returns the distinct convolutions of all networks, in the order in which they first occur.
std::vector<Convolution> convolutions() {
  std::vector<Convolution> found;
  std::map<std::string, std::size_t> places;
  for (const ZooInput& network : kNetworks) {
    const Plan plan = zoo_plan(network, 1, "fp32");
    for (const Node& node : plan.nodes) {
      if (node.is_view) continue;
      const OpDesc op = operation_of(plan, node, {1, true, 0});
      const auto* desc = std::get_if<Conv2dDesc>(&op);
      if (!desc) continue;
      const auto [place, is_new] =
          places.emplace(conv_problem(*desc, Pass::backward_data).key(), found.size());
      if (is_new) found.push_back({*desc, {}});
      Convolution& convolution = found[place->second];
      convolution.desc.input_gradient |= desc->input_gradient;
      if (convolution.networks.empty() || convolution.networks.back() != network.name) {
        convolution.networks.emplace_back(network.name);
      }
    }
  }
  return found;
}

/// Returns the smallest workspace of the plans that use tensor cores, even if it exceeds the limit;
/// null if cuDNN has no such plan.
Json least_tensor_workspace(const std::string& gpu, const ConvProblem& problem) {
  constexpr std::size_t kUnlimited = std::numeric_limits<std::int64_t>::max();
  Json least;
  for (const CudnnPlanFacts& plan :
       describe_cudnn_plans(gpu, problem, kUnlimited, std::numeric_limits<int>::max())) {
    if (plan.tensor_cores && (least.is_null() || plan.workspace_bytes < least)) {
      least = plan.workspace_bytes;
    }
  }
  return least;
}

/// Returns the answer to one problem: the number of plans, the first plan, the place (from 0) and
/// the workspace of the first plan that uses tensor cores, and whether the fixed rule prefers dpt's
/// own kernels. If tensor cores can only be used after padding the channels, answers for the plans
/// of the padded problem.
Json answer(const testing::DescribedGpu& gpu, const std::string& description,
            const ConvProblem& problem, std::size_t workspace_bytes) {
  const auto plans_for = [&](const ConvProblem& asked) {
    return describe_cudnn_plans(description, asked, workspace_bytes, kMaxCudnnPlans);
  };
  const auto uses_tensor_cores = [](const CudnnPlanFacts& plan) { return plan.tensor_cores; };
  std::vector<CudnnPlanFacts> plans = plans_for(problem);
  const std::optional<ConvProblem> padded = padded_problem(problem);
  if (padded && std::none_of(plans.begin(), plans.end(), uses_tensor_cores)) {
    std::vector<CudnnPlanFacts> others = plans_for(*padded);
    std::erase_if(others, std::not_fn(uses_tensor_cores));
    for (CudnnPlanFacts& plan : others) plan.name = std::string(kPaddedPrefix) + plan.name;
    if (!others.empty()) plans = std::move(others);
  }
  const auto tensor = std::find_if(plans.begin(), plans.end(), uses_tensor_cores);
  Json line = {{"gpu", fmt::format("sm_{}", gpu.compute_capability)},
               {"problem", problem.key()},
               {"own", own_convolution_is_better(problem)},
               {"plans", plans.size()}};
  if (!plans.empty()) line["first"] = plans.front().name;
  const bool may_use_tensor_cores = problem.type != DType::f32 || problem.tf32;
  if (tensor != plans.end()) {
    line["tensor_place"] = tensor - plans.begin();
    line["tensor_workspace"] = tensor->workspace_bytes;
  } else if (may_use_tensor_cores) {
    line["tensor_workspace"] = least_tensor_workspace(description, problem);
  }
  return line;
}

struct Options {
  std::size_t workspace_bytes = kWorkspaceBytes;
  std::size_t part = 0, parts = 1;
  std::filesystem::path
      compiled;  ///< folder for plans that cuDNN compiles; empty without --compiled
};

Options options_of(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; i += 2) {
    const std::string_view name = argv[i];
    const char* value = i + 1 < argc ? argv[i + 1] : "";
    if (name == "--workspace" && std::sscanf(value, "%zu", &options.workspace_bytes) == 1) continue;
    if (name == "--part" && std::sscanf(value, "%zu/%zu", &options.part, &options.parts) == 2 &&
        options.part < options.parts) {
      continue;
    }
    if (name == "--compiled" && *value) {
      options.compiled = value;
      continue;
    }
    fail(
        ErrorKind::usage,
        "usage: convolution_plans [--workspace BYTES | --compiled DIR] [--part I/N], found '{} {}'",
        name, value);
  }
  return options;
}

/// Calls f(problem, precision, pass) for each problem that a convolution of `batch` samples poses.
template <class F>
void for_each_problem(const Convolution& convolution, std::int64_t batch, const F& f) {
  for (const Precision& precision : kPrecisions) {
    Conv2dDesc desc = convolution.desc;
    desc.batch = batch;
    desc.type = precision.type;
    desc.tf32 = precision.tf32;
    for (const PassCase& pass : kPasses) {
      if (pass.pass == Pass::backward_data && !desc.input_gradient) continue;
      ConvProblem problem = conv_problem(desc, pass.pass);
      problem.bias = problem.relu = pass.bias_and_relu;
      f(problem, precision, pass);
    }
  }
}

void print_answers(const std::vector<Convolution>& convolutions, std::size_t workspace_bytes) {
  fmt::print("{}\n", Json{{"cudnn", describe_cudnn()},
                          {"workspace", workspace_bytes},
                          {"convolutions", convolutions.size()}}
                         .dump());
  for (const testing::DescribedGpu& gpu : testing::kDescribedGpus) {
    const std::string description = gpu.text();
    for (const Convolution& convolution : convolutions) {
      for (const std::int64_t batch : kBatches) {
        for_each_problem(
            convolution, batch,
            [&](const ConvProblem& problem, const Precision& precision, const PassCase& pass) {
              Json line = answer(gpu, description, problem, workspace_bytes);
              line["precision"] = precision.name;
              line["pass"] = pass.name;
              line["networks"] = convolution.networks;
              fmt::print("{}\n", line.dump());
            });
      }
    }
  }
}

/// Writes the plans that cuDNN compiles at run time into the folder that `options` names.
void write_compiled(const std::vector<Convolution>& convolutions, const Options& options) {
  Json facts = {{"cudnn", describe_cudnn()}, {"gpus", Json::array()}};
  for (const testing::DescribedGpu& gpu : testing::kDescribedGpus) {
    facts["gpus"].push_back(fmt::format("sm_{}", gpu.compute_capability));
  }
  fmt::print("{}\n", facts.dump());
  std::size_t count = 0;
  for (const testing::DescribedGpu& gpu : testing::kDescribedGpus) {
    const std::string description = gpu.text();
    const auto write = [&](const std::vector<testing::CompiledPlan>& plans,
                           const std::string& problem) {
      for (const testing::CompiledPlan& plan : plans) {
        const std::string file = fmt::format("{}-{}.json", options.part, count++);
        std::ofstream out(options.compiled / file);
        out << plan.json;
        if (!out.flush()) {
          fail(ErrorKind::data, "{}: cannot write", (options.compiled / file).string());
        }
        fmt::print("{}\n", Json{{"gpu", fmt::format("sm_{}", gpu.compute_capability)},
                                {"problem", problem},
                                {"engine", plan.engine},
                                {"file", file}}
                               .dump());
      }
    };
    if (options.part == 0) write(testing::compiled_plans_with_atomics(description), "control");
    for (const Convolution& convolution : convolutions) {
      for_each_problem(convolution, kCompiledBatch,
                       [&](const ConvProblem& problem, const Precision&, const PassCase&) {
                         write(testing::compiled_plans(description, problem), problem.key());
                       });
    }
  }
}

void run(const Options& options) {
  const auto version =
      reinterpret_cast<std::size_t (*)()>(dlsym(cudnn_library(), "cudnnGetVersion"));
  if (version() < 90800) fail(ErrorKind::device, "cuDNN before 9.8 takes no descriptions of GPUs");
  // Without a device, cuDNN would open and close this library for every plan, which takes most of
  // the time. So the library stays open.
  dlopen(fmt::format("libnvrtc.so.{}", CUDART_VERSION / 1000).c_str(), RTLD_NOW | RTLD_LOCAL);
  std::vector<Convolution> all = convolutions();
  if (!options.compiled.empty()) {
    std::erase_if(all, [](const Convolution& convolution) {
      const std::vector<std::string>& names = convolution.networks;
      return std::find_first_of(names.begin(), names.end(), std::begin(kCompiledNetworks),
                                std::end(kCompiledNetworks)) == names.end();
    });
  }
  std::vector<Convolution> mine;
  for (std::size_t i = options.part; i < all.size(); i += options.parts) mine.push_back(all[i]);
  if (options.compiled.empty()) {
    print_answers(mine, options.workspace_bytes);
  } else {
    write_compiled(mine, options);
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(options_of(argc, argv));
  } catch (const dpt::Error& error) {
    fmt::print(stderr, "convolution_plans: {}\n", error.what());
    return error.kind() == dpt::ErrorKind::usage ? 2 : 4;
  }
  return 0;
}
