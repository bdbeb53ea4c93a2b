// Runs a Plan through its Executor on host vectors, and computes the same net in plain double
// arithmetic.
#pragma once

#include <doctest/doctest.h>

#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "engine/graph/executor.h"
#include "engine/graph/init.h"
#include "engine/graph/make_plan.h"
#include "engine/graph/operations.h"
#include "engine/layers/activation_shape.h"
#include "tests/support/json_variant.h"
#include "tests/support/model.h"
#include "tests/support/op_runner.h"
#include "tests/support/reference_backend.h"

namespace dpt::testing {

/// Returns `spec` as a plan without fusion.
inline Plan unfused_plan(const TrainSpec& spec) {
  Plan plan = make_plan(spec);
  plan.nodes.clear();
  plan.values = {{plan.input}};
  std::map<std::string, int> value_of{{"input", 0}};
  for (std::size_t i = 0; i < spec.model.layers.size(); ++i) {
    Node node;
    node.name = spec.model.layers[i].name;
    node.layer = make_layer(spec.model.layers[i].op);
    node.inputs = {static_cast<int>(i)};
    const std::vector<std::string>& from = spec.model.layers[i].from;
    if (!from.empty()) node.inputs.clear();
    for (const std::string& name : from) node.inputs.push_back(value_of.at(name));
    node.output = value_of[node.name] = static_cast<int>(i) + 1;
    node.is_view = node.layer->is_view();
    node.input_gradient = false;
    node.coupling = node.layer->coupling(false);
    bool trains = false;
    const std::string& shared = spec.model.layers[i].share_weights;
    const std::string& owner = shared.empty() ? node.name : shared;
    for (const int x : node.inputs) {
      node.input_gradient |= plan.values[x].needs_gradient;
    }
    for (std::size_t p = 0; p < plan.params.size(); ++p) {
      const std::string& suffix = plan.params[p].spec.suffix;
      if (plan.params[p].name == owner + (suffix.empty() ? "" : "." + suffix)) {
        if (shared.empty()) plan.params[p].node = static_cast<int>(i);
        plan.params[p].last_node = static_cast<int>(i);
        node.params.push_back(static_cast<int>(p));
        trains = trains || plan.params[p].is_trained();
      }
    }
    plan.values.push_back({plan.rows[i].out, node.input_gradient || trains});
    plan.nodes.push_back(std::move(node));
  }
  plan.logits = static_cast<int>(spec.model.layers.size());
  return plan;
}

/// A batch that depends only on the seed. It holds all samples in the data set's order, and the
/// selected samples.
struct TestBatch {
  TestBatch(const Plan& plan, std::int64_t batch, std::uint64_t seed = 1) : size(batch) {
    const std::int64_t sample = plan.input.elements();
    const std::int64_t stock = batch + 3;
    raw = random_values(stock * sample, seed);
    for (std::int64_t i = 0; i < stock; ++i) {
      labels.push_back(static_cast<std::int32_t>(i * 7 % plan.classes));
    }
    for (std::int64_t k = 0; k < batch; ++k) {
      const std::int64_t slot = stock - 1 - k;
      slots.push_back(static_cast<std::int32_t>(slot));
      ids.push_back(slot + 100);
      for (std::int64_t e = 0; e < sample; ++e) {
        x.push_back(raw[slot * sample + e]);
      }
      taken_labels.push_back(labels[slot]);
    }
    scalars.inverse_count = 1.0F / static_cast<float>(batch);
  }
  std::int64_t size;
  std::vector<float> raw;
  std::vector<std::int32_t> labels, slots, taken_labels;
  std::vector<std::int64_t> ids;
  StepScalars scalars;
  Values x;  ///< the selected samples, in order
};

struct TrainResult {
  std::vector<float> grads;  ///< param_floats values
  StepMetrics metrics;
};

struct EvalResult {
  std::vector<float> loss;
  std::vector<std::int32_t> prediction;
  StepMetrics metrics;
};

/// An executor with its memory. The arena starts as NaN, so that a read of unwritten memory is
/// noticed.
class NetRunner {
 public:
  NetRunner(Backend& backend, const Plan& plan, const std::vector<float>& params,
            const TestBatch& batch, bool training = true, float label_smoothing = 0)
      : plan_(plan),
        executor_(backend, plan, input_desc(plan), cross_entropy(label_smoothing), batch.size,
                  training),
        params_(backend, params),
        grads_(backend, std::vector<float>(static_cast<std::size_t>(plan.grad_floats()), 0.0F)),
        arena_(backend, nan(executor_.arena_bytes() / sizeof(float))),
        kept_(backend, nan(executor_.kept_bytes() / sizeof(float))),
        raw_(backend, batch.raw),
        labels_(backend, batch.labels),
        slots_(backend, batch.slots),
        ids_(backend, batch.ids),
        scalars_(backend, std::vector<StepScalars>{batch.scalars}),
        sample_loss_(backend, nan(static_cast<std::size_t>(batch.size))),
        prediction_(backend, std::vector<std::int32_t>(static_cast<std::size_t>(batch.size), -1)),
        metrics_(backend, nan(sizeof(StepMetrics) / sizeof(float))) {}

  Executor& executor() { return executor_; }
  ExecutorBuffers buffers() const {
    ExecutorBuffers all{params_.ptr(), DevPtr{}, grads_.ptr(), arena_.ptr(), kept_.ptr()};
    all.may_fork = may_fork_;
    return all;
  }
  DeviceBatch batch() const {
    return {raw_.ptr(), labels_.ptr(), slots_.ptr(), ids_.ptr(), scalars_.ptr()};
  }
  EvalOutputs outputs() const {
    return {sample_loss_.ptr(), prediction_.ptr(), metrics_.ptr(), DevPtr{}};
  }
  void allow_fork() { may_fork_ = true; }
  void poison_arena() {
    arena_.set(nan(executor_.arena_bytes() / sizeof(float)));
    kept_.set(nan(executor_.kept_bytes() / sizeof(float)));
  }

  TrainResult train(GradWrite write = GradWrite::overwrite) {
    executor_.train(buffers(), batch(), write);
    arena_.check_guard();
    kept_.check_guard();
    TrainResult result;
    result.grads = grads_.get();
    result.metrics = metrics_at(result.grads.data() + plan_.param_floats);
    result.grads.resize(static_cast<std::size_t>(plan_.param_floats));
    return result;
  }
  /// Returns the gradients in the device's layout: param_floats values.
  std::vector<float> grads() {
    std::vector<float> now = grads_.get();
    now.resize(static_cast<std::size_t>(plan_.param_floats));
    return now;
  }

  /// Evaluates the batch. `folded` points to the additional parameters of an EvaluationPlan.
  EvalResult evaluate(DevPtr folded = {}) {
    ExecutorBuffers all = buffers();
    all.folded = folded;
    executor_.evaluate(all, batch(), outputs());
    arena_.check_guard();
    EvalResult result;
    result.loss = sample_loss_.get();
    result.prediction = prediction_.get();
    result.metrics = metrics_at(metrics_.get().data());
    return result;
  }

 private:
  static InputDesc input_desc(const Plan& plan) {
    InputDesc desc;
    desc.raw_type = DType::f32;
    desc.raw = plan.input.shape;
    return desc;
  }
  static Loss cross_entropy(float label_smoothing) {
    return make_loss(
        json_variant(loss_kinds().table(), "cross_entropy", {{"label_smoothing", label_smoothing}}),
        {});
  }
  static StepMetrics metrics_at(const float* floats) {
    StepMetrics metrics;
    std::memcpy(static_cast<void*>(&metrics), floats, sizeof(metrics));
    return metrics;
  }
  static std::vector<float> nan(std::size_t count) {
    return std::vector<float>(count, std::numeric_limits<float>::quiet_NaN());
  }

  bool may_fork_ = false;
  const Plan& plan_;
  Executor executor_;
  OnDevice<float> params_, grads_, arena_, kept_, raw_;
  OnDevice<std::int32_t> labels_, slots_;
  OnDevice<std::int64_t> ids_;
  OnDevice<StepScalars> scalars_;
  OnDevice<float> sample_loss_;
  OnDevice<std::int32_t> prediction_;
  OnDevice<float> metrics_;
};

/// Returns the starting values of a plan.
inline std::vector<float> start_params(const Plan& plan, std::uint64_t seed = 3) {
  std::vector<float> flat(static_cast<std::size_t>(plan.param_floats));
  initialise_params(plan, seed, flat.data());
  return flat;
}

/// The net as a function of its flat parameters, in double.
class NetMaths {
 public:
  NetMaths(const Plan& plan, const TestBatch& batch, float label_smoothing = 0)
      : plan_(plan), batch_(batch) {
    loss_.batch = batch.size;
    loss_.classes = plan.classes;
    loss_.label_smoothing = label_smoothing;
    for (const Node& node : plan.nodes) {
      if (node.is_view) {
        nodes_.push_back({});
        names_.push_back({});
        continue;
      }
      const OpDesc desc = operation_of(plan, node, {batch.size, true, 0});
      names_.push_back(param_names(desc));
      nodes_.push_back(reference::maths_of(desc));
    }
  }

  reference::CrossEntropy loss(const Values& params) const {
    return loss_of(activations(params)[plan_.logits]);
  }
  /// Returns the mean loss over the batch.
  double mean_loss(const Values& params) const {
    return loss(params).loss_sum / static_cast<double>(batch_.size);
  }

  /// Returns the gradient of the mean loss by the chain rule, in the layout of the parameters.
  Values gradient(const Values& params) const {
    const std::vector<Values> all = activations(params);
    Values result(params.size(), 0.0);
    std::vector<Values> gradients;  // one for every value
    for (const Values& each : all) gradients.emplace_back(each.size(), 0.0);
    gradients[plan_.logits] = loss_of(all[plan_.logits]).gradient;
    for (std::size_t i = nodes_.size(); i-- > 0;) {
      const Node& node = plan_.nodes[i];
      const Values& dy = gradients[node.output];
      Values dx = dy;
      if (!node.is_view) {
        const Derivatives g = nodes_[i].backward(inputs_of(all, node), of(params, i), dy);
        for (std::size_t k = 0; k < nodes_[i].params.size(); ++k) {
          put(result, i, names_[i][k], g.params[k]);
        }
        dx = g.x;
      }
      std::size_t at = 0;
      for (const int input : node.inputs) {
        for (double& gradient : gradients[input]) gradient += dx[at++];
      }
    }
    return result;
  }

 private:
  /// Computes every value of the plan.
  std::vector<Values> activations(const Values& params) const {
    std::vector<Values> all(plan_.values.size());
    all[0] = batch_.x;
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      const Node& node = plan_.nodes[i];
      const Values x = inputs_of(all, node);
      all[node.output] = node.is_view ? x : nodes_[i].forward(x, of(params, i));
    }
    return all;
  }
  /// Returns the inputs of a node, one after another.
  static Values inputs_of(const std::vector<Values>& all, const Node& node) {
    Values x;
    for (const int input : node.inputs) {
      const Values& each = all[input];
      x.insert(x.end(), each.begin(), each.end());
    }
    return x;
  }
  reference::CrossEntropy loss_of(const Values& logits) const {
    return reference::cross_entropy(loss_, logits, batch_.taken_labels,
                                    1.0 / static_cast<double>(batch_.size));
  }
  const Param* param(std::size_t node, std::string_view name) const {
    for (const int index : plan_.nodes[node].params) {
      const Param& each = plan_.params[index];
      if (each.spec.name() == name) return &each;
    }
    return nullptr;
  }
  /// Returns the parameters of a node in the order in which its operation takes them.
  Params of(const Values& params, std::size_t node) const {
    Params all;
    for (const std::string_view name : names_[node]) {
      Values& values = all.emplace_back();
      if (const Param* p = param(node, name)) {
        values.assign(params.begin() + p->offset, params.begin() + p->offset + p->count);
      }
    }
    return all;
  }
  void put(Values& to, std::size_t node, std::string_view name, const Values& values) const {
    if (const Param* p = param(node, name)) {
      auto sum = to.begin() + p->offset;  // over all layers that share it
      for (const double value : values) *sum++ += value;
    }
  }

  const Plan& plan_;
  const TestBatch& batch_;
  CrossEntropyDesc loss_;
  std::vector<Maths> nodes_;
  std::vector<std::span<const std::string_view>> names_;  // names of the nodes' parameters
};

// ---- Nets of different kinds -------------------------------------------------------------------

/// Returns a small net like LeNet: everything fuses.
inline TrainSpec small_lenet() {
  return ModelSpecBuilder({1, 10, 9})
      .conv("conv1", 3, 3)
      .add("ReLU")
      .add("MaxPool2d", {{"kernel_size", square(2)}})
      .conv("conv2", 4, 2)
      .add("ReLU")
      .add("AvgPool2d", {{"kernel_size", square(2)}, {"stride", square(1)}})
      .add("Flatten")
      .linear("fc1", 6)
      .add("ReLU")
      .linear("fc2", 3)
      .spec();
}

/// Returns a net with unfused in-place nodes in sequence, before the first parameters and after the
/// last, with views among them.
inline TrainSpec odd_net() {
  return ModelSpecBuilder({2, 9, 8})
      .add("ReLU")
      .add("AvgPool2d", {{"kernel_size", square(2)}, {"stride", square(1)}})
      .add("Conv2d", {{"out_channels", integer(4)}, {"kernel_size", square(3)}, {"bias", false}},
           "conv")
      .add("MaxPool2d", {{"kernel_size", square(2)}, {"stride", square(1)}})
      .add("ReLU")
      .add("ReLU")
      .add("AvgPool2d", {{"kernel_size", square(2)}})
      .add("Flatten")
      .add("ReLU")
      .add("Flatten")
      .linear("fc1", 5)
      .linear("fc2", 4)
      .add("ReLU")
      .add("ReLU")
      .spec();
}

/// Returns a net with values that have several readers and nodes that have several inputs: a
/// residual block with its ReLU, one whose shortcut has parameters, a value added to itself, the
/// image as an input, views with several readers, and more readers than an operation has inputs.
inline TrainSpec branched_net() {
  const auto conv = [](std::int64_t kernel, std::int64_t padding) {
    return Options{{"out_channels", integer(2)},
                   {"kernel_size", square(kernel)},
                   {"padding", square(padding)}};
  };
  ModelSpecBuilder net({2, 5, 4});
  net.add("Conv2d", conv(3, 1), "conv1")
      .add("Add", {}, "with_image", {"conv1", "input"})
      .add("ReLU", {}, "relu1")
      .add("Conv2d", conv(3, 1), "conv2")
      .add("ReLU", {}, "relu2")
      .add("Conv2d", conv(1, 0), "conv3")
      .add("Add", {}, "block1", {"conv3", "relu1"})
      .add("ReLU", {}, "relu3")
      .add("Conv2d", conv(3, 1), "left")
      .add("Conv2d", conv(1, 0), "right", {"relu3"})
      .add("Identity", {}, "kept", {"relu3"})
      .add("Add", {}, "block2", {"left", "right", "kept"})
      .add("Add", {}, "twice", {"block2", "block2"})
      .add("Add", {}, "eightfold", std::vector<std::string>(8, "twice"))
      .add("Add", {}, "ninefold", {"eightfold", "twice"})
      .add("Flatten", {}, "flat")
      .add("ReLU", {}, "relu4");
  std::vector<std::string> heads;
  for (int k = 0; k < 10; ++k) {
    heads.push_back("head" + std::to_string(k));
    net.add("Linear", {{"out_features", integer(3)}}, heads.back(), {k < 9 ? "relu4" : "flat"});
  }
  heads.resize(8);
  return net.add("Add", {}, "eight", heads)
      .add("Add", {}, "logits", {"head8", "eight", "head9"})
      .spec();
}

/// Returns a net whose layers compute a separate gradient for each input. Among the inputs are one
/// that is read twice, an untrained one, and one that another layer clobbers. The net also has
/// gates on either side, and the layers with a weight per channel.
inline TrainSpec joined_net() {
  const Options conv = {
      {"out_channels", integer(2)}, {"kernel_size", square(3)}, {"padding", kWordSize}};
  return ModelSpecBuilder({2, 4, 4})
      .add("Conv2d", conv, "conv1")
      .add("Concat", {}, "with_image", {"input", "conv1", "conv1"})
      .add("GroupNorm", {{"num_groups", integer(2)}}, "norm1")
      .add("Conv2d", conv, "conv2")
      .add("PReLU", {}, "prelu1")
      .add("AdaptiveAvgPool2d", {}, "pooled")
      .add("Multiply", {}, "gated", {"prelu1", "pooled"})
      .add("Multiply", {}, "gate_first", {"pooled", "conv1"})
      .add("Multiply", {}, "square", {"gated", "gated"})
      .add("LayerNorm2d", {}, "norm2", {"gate_first"})
      .add("LayerScale", {{"init", 0.5}}, "scaled")
      .add("Concat", {}, "all", {"square", "scaled"})
      .add("ZeroPad2d", {{"padding", std::vector<std::int64_t>{1, 0, 0, 1}}}, "padded")
      .add("Upsample", {{"scale_factor", Size2{1, 2}}}, "larger")
      .add("LayerNorm", {}, "norm3")
      .add("Flatten", {}, "flat1")
      .add("Flatten", {}, "flat2", {"larger"})
      .add("Concat", {}, "flats", {"flat1", "flat2"})
      .linear("fc", 3)
      .spec();
}

/// Returns a net with batch normalisation: with and without ReLU, in a residual block, after
/// another norm, before a pooling, next to another reader of the same value, without parameters,
/// and of a vector.
inline TrainSpec normalised_net() {
  const auto conv = [](std::int64_t channels, std::int64_t stride) {
    return Options{{"out_channels", integer(channels)},
                   {"kernel_size", square(3)},
                   {"stride", square(stride)},
                   {"padding", square(1)},
                   {"bias", false}};
  };
  return ModelSpecBuilder({2, 6, 5})
      .add("BatchNorm2d", {{"affine", false}}, "bn0")
      .add("Conv2d", conv(4, 1), "conv1")
      .add("BatchNorm2d", {}, "bn1")
      .add("ReLU", {}, "relu1")
      .add("Conv2d", conv(4, 1), "conv2")
      .add("BatchNorm2d", {}, "bn2")
      .add("Add", {}, "block1", {"bn2", "relu1"})
      .add("ReLU", {}, "relu2")
      .add("Conv2d", conv(6, 2), "conv3")
      .add("BatchNorm2d", {{"eps", 0.01}}, "bn3")
      .add("ReLU", {}, "relu3")
      .add("Conv2d", conv(6, 2), "short", {"relu2"})
      .add("BatchNorm2d", {}, "bn4")
      .add("BatchNorm2d", {}, "bn5", {"short"})
      .add("Add", {}, "block2", {"relu3", "bn4", "bn5"})
      .add("MaxPool2d", {{"kernel_size", square(2)}, {"stride", square(1)}})
      .add("Flatten", {}, "flat")
      .add("BatchNorm1d", {}, "bn6")
      .linear("fc1", 7)
      .add("BatchNorm1d", {}, "bn7")
      .add("ReLU", {}, "relu4")
      .linear("fc2", 3)
      .spec();
}

/// Returns a net whose layers share weights: neighbours, the ends of a branch, layers with another
/// stride and padding, a fused and an unfused layer with a single reader, one with a frozen bias,
/// norms, scales and vectors.
inline TrainSpec shared_net() {
  const auto conv = [](std::int64_t stride, std::int64_t padding) {
    return Options{{"out_channels", integer(2)},
                   {"kernel_size", square(3)},
                   {"stride", square(stride)},
                   {"padding", square(padding)}};
  };
  TrainSpec spec = ModelSpecBuilder({2, 7, 6})
                       .add("Conv2d", conv(1, 1), "conv1")
                       .add("ReLU", {}, "relu1")
                       .add("GroupNorm", {{"num_groups", integer(1)}}, "norm1")
                       .add("Conv2d", conv(1, 1), "conv2")
                       .shares("conv1")
                       .add("Conv2d", conv(1, 1), "own")
                       .add("GroupNorm", {{"num_groups", integer(2)}}, "norm2")
                       .shares("norm1")
                       .add("PReLU", {}, "prelu1")
                       .add("Add", {}, "block", {"prelu1", "relu1"})
                       .add("PReLU", {}, "prelu2")
                       .shares("prelu1")
                       .add("Conv2d", conv(2, 0), "conv3")
                       .shares("conv1")
                       .add("ReLU", {}, "relu2")
                       .add("Flatten", {}, "flat")
                       .linear("fc1", 12)
                       .linear("fc2", 12)
                       .add("ReLU", {}, "relu3")
                       .linear("fc3", 12)
                       .shares("fc2")
                       .add("Add", {}, "twice", {"fc3", "relu3"})
                       .linear("fc4", 12)
                       .shares("fc2")
                       .linear("fc5", 3)
                       .spec();
  spec.train.freeze.params = {"conv1.bias"};
  return spec;
}

inline TrainSpec linear_net() {
  return ModelSpecBuilder({3, 2, 2}).add("Flatten").linear("fc", 4).spec();
}

}  // namespace dpt::testing
