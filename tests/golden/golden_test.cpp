// Golden trajectories: 50 steps from the same weights on the same samples as PyTorch, for LeNet and
// for nets with residual blocks, batch normalisation, shared weights and transposed convolutions,
// and for the zoo's resnet20 with padded shortcuts. make_golden.py writes the files and describes
// them.
//
// A file has the losses and final weights of a float64 run. Its metadata say how far PyTorch's own
// float32 runs, in four variants of layout and threads, deviate from them. The tolerance is kSlack
// times the largest of these deviations, because float32 arithmetic in another order of summation
// deviates, too. A wrong formula deviates by orders of magnitude more: SGD without its weight
// decay, or Adam with 1 % more epsilon, moves some weight by 0.03.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "app/base/catalog.h"
#include "app/base/command_support.h"
#include "engine/checkpoints/safetensors.h"
#include "engine/config/read_spec.h"
#include "engine/data/loader.h"
#include "engine/graph/layouts.h"
#include "engine/job/run_ranks.h"
#include "engine/layers/param_spec.h"
#include "engine/replica/replica.h"
#include "tests/support/backends.h"
#include "tests/support/places.h"

namespace dpt {
namespace {

constexpr double kSlack = 4.0;

/// A net of make_golden.py.
struct Net {
  const char* file;
  const char* layers;
  const char* key = "layers:";  ///< text before `layers`
};
constexpr Net kLenet = {"lenet.safetensors", R"(
    - {type: Conv2d, name: conv1, out_channels: 20, kernel_size: 3, padding: 1}
    - {type: ReLU}
    - {type: AvgPool2d, kernel_size: 2}
    - {type: Conv2d, name: conv2, out_channels: 50, kernel_size: 3, padding: 1}
    - {type: ReLU}
    - {type: AvgPool2d, kernel_size: 2}
    - {type: Flatten}
    - {type: Linear, name: fc1, out_features: 32}
    - {type: ReLU}
    - {type: Linear, name: fc2, out_features: 10})"};
constexpr Net kResidual = {"residual.safetensors", R"(
    - {type: Conv2d, name: conv1, out_channels: 6, kernel_size: 3, padding: 1}
    - {type: ReLU, name: stem}
    - {type: Conv2d, name: a1, out_channels: 6, kernel_size: 3, padding: 1}
    - {type: ReLU}
    - {type: Conv2d, name: a2, out_channels: 6, kernel_size: 3, padding: 1}
    - {type: Add, from: [a2, stem]}
    - {type: ReLU, name: a}
    - {type: Conv2d, name: b1, out_channels: 10, kernel_size: 3, stride: 2, padding: 1}
    - {type: ReLU}
    - {type: Conv2d, name: b2, out_channels: 10, kernel_size: 3, padding: 1}
    - {type: Conv2d, name: b_shortcut, from: a, out_channels: 10, kernel_size: 1, stride: 2}
    - {type: Add, from: [b2, b_shortcut]}
    - {type: ReLU}
    - {type: AdaptiveAvgPool2d, output_size: 1}
    - {type: Flatten}
    - {type: Linear, name: fc, out_features: 10})"};

// Batch norms use the whole batch, so that any number of replicas follows the same trajectory.
constexpr Net kNormalised = {"normalised.safetensors", R"(
    - {type: Conv2d, name: conv1, out_channels: 6, kernel_size: 3, padding: 1, bias: false}
    - {type: BatchNorm2d, name: bn1, sync: true}
    - {type: ReLU}
    - {type: Conv2d, name: conv2, out_channels: 10, kernel_size: 3, stride: 2, padding: 1, bias: false}
    - {type: BatchNorm2d, name: bn2, momentum: null, sync: true}
    - {type: ReLU, name: x}
    - {type: Conv2d, name: conv3, out_channels: 10, kernel_size: 3, padding: 1, bias: false}
    - {type: BatchNorm2d, name: bn3, eps: 0.001, momentum: 0.3, sync: true}
    - {type: Add, from: [bn3, x]}
    - {type: ReLU}
    - {type: Flatten}
    - {type: Linear, name: fc1, out_features: 12}
    - {type: BatchNorm1d, name: bn4, affine: false, sync: true}
    - {type: ReLU}
    - {type: Linear, name: fc2, out_features: 10})"};

constexpr Net kShared = {"shared.safetensors", R"(
    - {type: Conv2d, name: conv1, out_channels: 6, kernel_size: 3, padding: 1}
    - {type: Tanh, name: stem}
    - {type: Conv2d, name: conv2, out_channels: 6, kernel_size: 3, padding: 1}
    - {type: Tanh}
    - {type: Conv2d, share_weights: conv2, name: again, out_channels: 6, kernel_size: 3, padding: 1}
    - {type: Add, from: [again, stem]}
    - {type: Tanh}
    - {type: Conv2d, share_weights: conv2, out_channels: 6, kernel_size: 3, padding: 1, stride: 2}
    - {type: Tanh}
    - {type: Flatten}
    - {type: Linear, name: fc1, out_features: 24}
    - {type: Tanh}
    - {type: Linear, name: fc2, out_features: 24}
    - {type: Tanh}
    - {type: Linear, share_weights: fc2, out_features: 24}
    - {type: Tanh}
    - {type: Linear, name: fc3, out_features: 10})"};

constexpr Net kTransposed = {"transposed.safetensors", R"(
    - {type: Conv2d, name: conv1, out_channels: 6, kernel_size: 3, stride: 2, padding: 1}
    - {type: Tanh}
    - {type: ConvTranspose2d, name: up1, out_channels: 8, kernel_size: 3, stride: 2, padding: 1, output_padding: 1}
    - {type: Tanh}
    - {type: Conv2d, name: conv2, out_channels: 8, kernel_size: 3, stride: 3}
    - {type: Tanh}
    - {type: ConvTranspose2d, name: up2, out_channels: 6, kernel_size: [2, 3], stride: [2, 1], groups: 2, bias: false}
    - {type: Tanh}
    - {type: Flatten}
    - {type: Linear, name: fc, out_features: 10})"};

constexpr Net kPadded = {"padded.safetensors",
                         "\n  width: 2\n  shortcut: pad\n  classes: 10\n  sync: true",
                         "zoo: resnet20"};

/// Returns the job that trains a net. `optimizer` is the config's value, as in make_golden.py.
Job golden_job(const Net& net, const std::string& optimizer,
               const std::vector<std::string>& overrides) {
  const std::string config = R"(
name: golden
data:
  dataset: digits
  batch_size: 32
  transforms:
    train: [{type: Normalize, mean: [0.305], std: [0.375]}]
    eval: [{type: Normalize, mean: [0.305], std: [0.375]}]
model:
  input: [1, 8, 8]
  )" + std::string(net.key) + net.layers +
                             "\noptimizer: " + optimizer + "\ntrain: {epochs: 2}\n";
  return load_job(load_spec_text(catalog(), config, "golden.yaml", overrides));
}

template <class T>
std::vector<T> read_as(const SafetensorsFile& file, const std::string& name,
                       const std::string& dtype) {
  const TensorEntry* entry = file.find(name);
  REQUIRE_MESSAGE(entry, name);
  REQUIRE(entry->dtype == dtype);
  const std::vector<std::byte> bytes = file.read(*entry);
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

/// Returns the parameters in the file under `prefix`, as a flat buffer.
std::vector<float> flat_params(const SafetensorsFile& file, const std::string& prefix,
                               const Plan& plan) {
  std::vector<float> flat(static_cast<std::size_t>(plan.param_floats));
  for (const Param& param : plan.params) {
    const auto values = read_as<float>(file, prefix + param.name, "F32");
    REQUIRE(static_cast<std::int64_t>(values.size()) == param.count);
    from_file_layout(param, values.data(), flat.data() + param.offset);
  }
  return flat;
}

struct Trajectory {
  std::vector<double> losses;
  std::vector<float> params;
};

/// Trains on the given samples, step by step, with as many replicas as the job has devices.
Trajectory follow(const Job& job, const std::vector<float>& init, double lr,
                  const std::vector<std::int32_t>& indices) {
  const auto samples = *job.data.splits.train.source->resident();
  const std::vector<std::int64_t> ids(indices.begin(), indices.end());
  const std::int64_t batch = job.spec.data.batch_size;
  const std::int64_t steps = static_cast<std::int64_t>(indices.size()) / batch;
  Trajectory result;
  run_ranks(
      job.placement.devices, job.placement.backend_options,
      [&](Backend& backend, Communicator& communicator) {
        Replica replica(backend, communicator, job);
        replica.set_params(init);
        const Range own = replica.rank_samples(batch);
        for (std::int64_t k = 0; k < steps; ++k) {
          const auto begin = static_cast<std::size_t>(k * batch + own.begin);
          const auto count = static_cast<std::size_t>(own.size());
          HostBatch part;
          part.pixels = samples.pixels;
          part.labels = samples.labels;
          part.slots = std::span(indices).subspan(begin, count);
          part.ids = std::span(ids).subspan(begin, count);
          StepPlan plan;
          plan.step = k + 1;
          plan.global_batch = batch;
          plan.lr = lr;
          replica.train_step(plan, part);
          const StepMetrics metrics = replica.take_result().metrics;
          if (communicator.rank() == 0) {
            result.losses.push_back(static_cast<double>(metrics.loss_sum) / metrics.count.value());
          }
        }
        if (communicator.rank() == 0) result.params = replica.params();
      });
  return result;
}

void check_golden(const Net& net, const std::string& name, const std::string& optimizer, double lr,
                  const std::vector<std::string>& overrides) {
  const Job job = golden_job(net, optimizer, overrides);
  const SafetensorsFile file =
      SafetensorsFile::open(testing::source_dir() + "/tests/golden/" + net.file);
  const auto measured = [&](const std::string& what) {
    return std::stod(file.metadata().at(name + "." + what));
  };
  Trajectory got = follow(job, flat_params(file, "init.", job.model.plan), lr,
                          read_as<std::int32_t>(file, "indices", "I32"));
  for (const Param& param : job.model.plan.params) {
    if (param.spec.role != ParamRole::counter) continue;
    float* values = got.params.data() + param.offset;
    std::transform(values, values + param.count, values,
                   [](float bits) { return static_cast<float>(UpdateCounter::count(bits)); });
  }

  const auto losses = read_as<double>(file, name + ".losses", "F64");
  REQUIRE(got.losses.size() == losses.size());
  double loss_error = 0;
  for (std::size_t k = 0; k < losses.size(); ++k) {
    loss_error = std::max(loss_error, std::abs(got.losses[k] - losses[k]));
  }
  CHECK(loss_error <= kSlack * measured("loss_error"));

  const std::vector<float> want = flat_params(file, name + ".final.", job.model.plan);
  double weight_error = 0, square_sum = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double error = std::abs(static_cast<double>(got.params[i]) - want[i]);
    weight_error = std::max(weight_error, error);
    square_sum += error * error;
  }
  CHECK(weight_error <= kSlack * measured("weight_error"));
  CHECK(std::sqrt(square_sum / static_cast<double>(job.model.plan.param_count)) <=
        kSlack * measured("weight_error_rms"));
}

/// Returns the ways to run: one replica, uneven replicas in fast mode, and exact mode. Each must
/// follow the trajectory.
const std::vector<std::vector<std::string>>& ways_to_run() {
  static const std::vector<std::vector<std::string>> ways = [] {
    std::vector<std::vector<std::string>> all;
    for (const std::string& device : dpt::testing::device_kinds()) {
      all.push_back({dpt::testing::replicas_on(device, 1)});
      all.push_back({dpt::testing::replicas_on(device, 3)});
      all.push_back({dpt::testing::replicas_on(device, 2), "train.shards=8"});
    }
    return all;
  }();
  return ways;
}

TEST_CASE("LeNet follows PyTorch for 50 steps with SGD, momentum and weight decay") {
  for (const auto& way : ways_to_run()) {
    CAPTURE(way.front());
    check_golden(kLenet, "sgd", "{type: SGD, lr: 0.1, momentum: 0.9, weight_decay: 0.0005}", 0.1,
                 way);
  }
}

TEST_CASE("a net with residual blocks follows PyTorch for 50 steps") {
  for (const auto& way : ways_to_run()) {
    CAPTURE(way.front());
    check_golden(kResidual, "sgd", "{type: SGD, lr: 0.1, momentum: 0.9, weight_decay: 0.0005}", 0.1,
                 way);
  }
}

TEST_CASE("a net with batch normalisation follows PyTorch for 50 steps, its statistics too") {
  for (const auto& way : ways_to_run()) {
    CAPTURE(way.front());
    check_golden(kNormalised, "sgd", "{type: SGD, lr: 0.01, momentum: 0.9, weight_decay: 0.0005}",
                 0.01, way);
  }
}

TEST_CASE("a net with shared weights follows PyTorch for 50 steps") {
  for (const auto& way : ways_to_run()) {
    CAPTURE(way.front());
    check_golden(kShared, "sgd", "{type: SGD, lr: 0.1, momentum: 0.9, weight_decay: 0.0005}", 0.1,
                 way);
  }
}

TEST_CASE("a net with transposed convolutions follows PyTorch for 50 steps") {
  for (const auto& way : ways_to_run()) {
    CAPTURE(way.front());
    check_golden(kTransposed, "sgd", "{type: SGD, lr: 0.1, momentum: 0.9, weight_decay: 0.0005}",
                 0.1, way);
  }
}

TEST_CASE("resnet20 with padded shortcuts follows PyTorch for 50 steps") {
  for (const auto& way : ways_to_run()) {
    CAPTURE(way.front());
    check_golden(kPadded, "sgd", "{type: SGD, lr: 0.001, momentum: 0.9, weight_decay: 0.0005}",
                 0.001, way);
  }
}

TEST_CASE("LeNet follows PyTorch for 50 steps with Adam") {
  for (const auto& way : ways_to_run()) {
    CAPTURE(way.front());
    check_golden(kLenet, "adam", "{type: Adam, lr: 0.005, eps: 0.0001}", 0.005, way);
  }
}

}  // namespace
}  // namespace dpt
