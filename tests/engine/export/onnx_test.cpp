// Reads exported ONNX models back: every type of layer, and the invariants of every graph.
#include "engine/export/onnx.h"

#include <doctest/doctest.h>
#include <onnx.pb.h>

#include <cstring>
#include <map>
#include <set>

#include "app/base/catalog.h"
#include "engine/config/read_spec.h"
#include "engine/graph/layouts.h"
#include "engine/graph/make_plan.h"
#include "engine/job/job_facts.h"
#include "kernels/base/error.h"
#include "tests/support/text.h"

using namespace dpt;
using namespace dpt::testing;
using Texts = std::vector<std::string>;

namespace {

TrainSpec spec_of(const std::string& layers) {
  return load_spec_text(catalog(),
                        "name: net\ndata: {dataset: synthetic, batch_size: 8}\n"
                        "optimizer: {type: SGD, lr: 0.1}\ntrain: {epochs: 1}\n"
                        "model:\n  input: [4, 6, 6]\n  layers:\n" +
                            layers,
                        "net.yaml");
}

ExportFacts facts_of(const TrainSpec& spec) {
  ExportFacts facts;
  facts.version = "dpt 9";
  facts.run = spec.name;
  facts.input = spec.model.input;
  facts.weights = "raw";
  facts.loss = spec.loss.type;
  facts.scale = 255.0F;
  facts.mean = {0.1F, 0.2F, 0.3F, 0.4F};
  facts.stddev = {0.5F, 0.6F, 0.7F, 0.8F};
  return facts;
}

/// Returns parameters in which each value is its own index within its tensor, in the file's layout.
std::vector<float> numbered_params(const Plan& plan) {
  std::vector<float> flat(static_cast<std::size_t>(plan.param_floats));
  for (const Param& param : plan.params) {
    std::vector<float> file(static_cast<std::size_t>(param.count));
    for (std::size_t i = 0; i < file.size(); ++i) file[i] = static_cast<float>(i);
    from_file_layout(param, file.data(), flat.data() + param.offset);
  }
  return flat;
}

onnx::Model model_of(const TrainSpec& spec, const OnnxOptions& options = {}) {
  const Plan plan = make_plan(spec);
  onnx::Model model;
  REQUIRE(model.ParseFromString(
      onnx_model(spec, plan, numbered_params(plan), facts_of(spec), options)));
  return model;
}

std::int64_t count_of(const onnx::Tensor& tensor) {
  std::int64_t count = 1;
  for (const std::int64_t size : tensor.dims()) count *= size;
  return count;
}

/// Checks the invariants of every graph: names are unique, values are computed before they are
/// read, everything is used, and the size of tensors matches their shapes.
void check_graph(const onnx::Graph& graph) {
  std::set<std::string> known, unread, names;
  for (const onnx::ValueInfo& input : graph.input()) known.insert(input.name());
  for (const onnx::Tensor& tensor : graph.initializer()) {
    CAPTURE(tensor.name());
    CHECK(known.insert(tensor.name()).second);
    unread.insert(tensor.name());
    const std::int64_t width = tensor.data_type() == onnx::INT64 ? 8 : 4;
    CHECK(static_cast<std::int64_t>(tensor.raw_data().size()) == width * count_of(tensor));
  }
  for (const onnx::Node& node : graph.node()) {
    CAPTURE(node.name());
    CHECK(names.insert(node.name()).second);
    for (const std::string& input : node.input()) {
      CHECK((input.empty() || known.count(input) == 1));
      unread.erase(input);
    }
    REQUIRE(node.output_size() == 1);
    CHECK(known.insert(node.output(0)).second);
    unread.insert(node.output(0));
  }
  REQUIRE(graph.output_size() == 1);
  CHECK(unread == std::set<std::string>{graph.output(0).name()});
}

/// Returns the types of all operations, in order. node_of() returns the first operation of a type.
Texts ops_of(const onnx::Model& model) {
  Texts ops;
  for (const onnx::Node& node : model.graph().node()) ops.push_back(node.op_type());
  return ops;
}
const onnx::Node& node_of(const onnx::Model& model, const char* type) {
  for (const onnx::Node& node : model.graph().node()) {
    if (node.op_type() == type) return node;
  }
  FAIL("no operation " << type);
  return model.graph().node(0);
}
std::vector<std::int64_t> integers_of(const onnx::Node& node, const std::string& name) {
  for (const onnx::Attribute& each : node.attribute()) {
    if (each.name() != name) continue;
    if (each.type() == onnx::Attribute::INT) return {each.i()};
    CHECK(each.type() == onnx::Attribute::INTS);
    return {each.ints().begin(), each.ints().end()};
  }
  FAIL(node.op_type() << " has no " << name);
  return {};
}
const onnx::Tensor& tensor_of(const onnx::Model& model, std::string_view name) {
  for (const onnx::Tensor& tensor : model.graph().initializer()) {
    if (tensor.name() == name) return tensor;
  }
  FAIL("no tensor " << name);
  return model.graph().initializer(0);
}
std::vector<float> floats_of(const onnx::Tensor& tensor) {
  std::vector<float> values(static_cast<std::size_t>(count_of(tensor)));
  REQUIRE(tensor.raw_data().size() == values.size() * sizeof(float));
  std::memcpy(values.data(), tensor.raw_data().data(), tensor.raw_data().size());
  return values;
}

/// A type of layer, its options, and the operations that it must become.
struct Case {
  const char *type, *options;
  Texts ops;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"Conv2d", "out_channels: 4, kernel_size: 3", {"Conv"}},
      {"ConvTranspose2d", "out_channels: 4, kernel_size: 3", {"ConvTranspose"}},
      {"Linear", "out_features: 4, per_pixel: true", {"Unsqueeze", "Conv"}},
      {"ReLU", "", {"Relu"}},
      {"LeakyReLU", "", {"LeakyRelu"}},
      {"ReLU6", "", {"Clip"}},
      {"GELU", "", {"Mul", "Erf", "Add", "Mul", "Mul"}},
      {"GELU",
       "approximate: tanh",
       {"Mul", "Mul", "Mul", "Add", "Mul", "Tanh", "Add", "Mul", "Mul"}},
      {"SiLU", "", {"Sigmoid", "Mul"}},
      {"Sigmoid", "", {"Sigmoid"}},
      {"Tanh", "", {"Tanh"}},
      {"Softplus", "", {"Mul", "Softplus", "Div", "Greater", "Where"}},
      {"Hardswish", "", {"HardSwish"}},
      {"Hardsigmoid", "", {"HardSigmoid"}},
      {"BatchNorm2d", "", {"BatchNormalization"}},
      {"BatchNorm2d", "affine: false", {"BatchNormalization"}},
      {"GroupNorm",
       "num_groups: 2",
       {"Reshape", "InstanceNormalization", "Reshape", "Unsqueeze", "Mul", "Unsqueeze", "Add"}},
      {"GroupNorm",
       "num_groups: 2, affine: false",
       {"Reshape", "InstanceNormalization", "Reshape"}},
      {"LayerNorm", "", {"LayerNormalization"}},
      {"LayerNorm", "elementwise_affine: false", {"LayerNormalization"}},
      {"LayerNorm2d", "", {"Transpose", "LayerNormalization", "Transpose"}},
      {"PReLU", "", {"PRelu"}},
      {"PReLU", "num_parameters: 4", {"Unsqueeze", "PRelu"}},
      {"LayerScale", "", {"Mul"}},
      {"Dropout", "", {}},
      {"Dropout2d", "", {}},
      {"StochasticDepth", "", {}},
      {"Add", "from: [a, b, a]", {"Add", "Add"}},
      {"Concat", "from: [a, b]", {"Concat"}},
      {"Multiply", "from: [a, b]", {"Mul"}},
      {"MaxPool2d", "kernel_size: 2", {"MaxPool"}},
      {"AvgPool2d", "kernel_size: 2", {"AveragePool"}},
      {"AvgPool2d", "kernel_size: 2, divisor_override: 3", {"AveragePool", "Mul"}},
      {"AvgPool2d",
       "kernel_size: 3, stride: 2, padding: 1, ceil_mode: true",
       {"Pad", "AveragePool"}},
      {"AdaptiveAvgPool2d", "", {"GlobalAveragePool"}},
      {"AdaptiveAvgPool2d", "output_size: 3", {"AveragePool"}},
      {"AdaptiveAvgPool2d", "output_size: [4, 6]", {"MatMul", "MatMul"}},
      {"AdaptiveMaxPool2d", "", {"GlobalMaxPool"}},
      {"ZeroPad2d", "padding: [1, 2, 3, 4]", {"Pad"}},
      {"Upsample", "scale_factor: 2", {"Resize"}},
      {"PadChannels", "before: 1, after: 2", {"Pad"}},
      {"Identity", "", {}},
      {"Flatten", "", {"Flatten"}}};
  return all;
}

}  // namespace

TEST_CASE("every type of layer becomes operations that make a good graph") {
  std::set<std::string> known = {"BatchNorm1d"};  // reads vectors; tested below
  for (const Case& each : cases()) {
    CAPTURE(each.type);
    CAPTURE(each.options);
    known.insert(each.type);
    const std::string comma = each.options[0] == '\0' ? "" : ", ";
    // A layer that names its inputs does not read the Add. Without a reader, the Add must be left
    // out.
    const bool is_joining = std::string(each.options).starts_with("from:");
    std::string layers =
        "    - {type: Conv2d, name: a, out_channels: 4, kernel_size: 1}\n"
        "    - {type: Conv2d, name: b, out_channels: 4, kernel_size: 1}\n";
    if (!is_joining) layers += "    - {type: Add, from: [a, b]}\n";
    layers += fmt::format("    - {{type: {}, name: it{}{}}}\n", each.type, comma, each.options);
    if (each.type != std::string("Flatten")) layers += "    - {type: Flatten}\n";
    layers += "    - {type: Linear, name: fc, out_features: 3}\n";
    const onnx::Model model = model_of(spec_of(layers));
    check_graph(model.graph());
    Texts expected{"Conv", "Conv"};
    if (!is_joining) expected.push_back("Add");
    expected.insert(expected.end(), each.ops.begin(), each.ops.end());
    if (each.type != std::string("Flatten")) expected.push_back("Flatten");
    expected.push_back("Gemm");
    CHECK(ops_of(model) == expected);
  }
  for (const LayerKind& kind : layer_kinds()) {
    CAPTURE(kind.table->name);
    CHECK(known.count(kind.table->name) == 1);
  }
}

TEST_CASE("the model states its opset, its free batch size, and its origin") {
  const onnx::Model model =
      model_of(spec_of("    - {type: Flatten}\n"
                       "    - {type: BatchNorm1d, name: bn}\n"
                       "    - {type: Linear, name: fc, out_features: 3}\n"));
  check_graph(model.graph());
  CHECK(ops_of(model) == Texts{"Flatten", "BatchNormalization", "Gemm"});
  CHECK(model.ir_version() == 8);
  REQUIRE(model.opset_import_size() == 1);
  CHECK(model.opset_import(0).version() == kOnnxOpset);
  CHECK(model.producer_name() == "dpt");
  const onnx::TensorType& in = model.graph().input(0).type().tensor_type();
  CHECK(in.elem_type() == onnx::FLOAT);
  CHECK(in.shape().dim(0).dim_param() == "N");
  for (int i = 1; i < 4; ++i) CHECK(in.shape().dim(i).dim_value() == (i == 1 ? 4 : 6));
  const onnx::TensorType& out = model.graph().output(0).type().tensor_type();
  CHECK(model.graph().output(0).name() == "output");
  CHECK(out.shape().dim(0).dim_param() == "N");
  CHECK(out.shape().dim(1).dim_value() == 3);
  std::map<std::string, std::string> metadata;
  for (const onnx::Entry& entry : model.metadata_props()) metadata[entry.key()] = entry.value();
  CHECK(metadata.at("normalisation_included") == "false");
  CHECK(metadata.at("run") == "net");
  CHECK(metadata.at("loss") == "cross_entropy");
  CHECK(metadata.at("mean") == "[0.1, 0.2, 0.3, 0.4]");
}

TEST_CASE("weights are in PyTorch's layouts, and once where layers share them") {
  const onnx::Model model = model_of(spec_of(
      "    - {type: Conv2d, name: a, out_channels: 4, kernel_size: [1, 2], padding: same}\n"
      "    - {type: Conv2d, name: b, out_channels: 4, kernel_size: [1, 2], share_weights: a}\n"
      "    - {type: Flatten}\n"
      "    - {type: Linear, name: fc, out_features: 3, bias: false}\n"));
  check_graph(model.graph());
  CHECK(model.graph().initializer_size() == 3);
  const onnx::Tensor& weight = tensor_of(model, "a.weight");
  CHECK(std::vector<std::int64_t>(weight.dims().begin(), weight.dims().end()) ==
        std::vector<std::int64_t>{4, 4, 1, 2});
  for (const char* name : {"a.weight", "fc.weight"}) {
    const std::vector<float> values = floats_of(tensor_of(model, name));
    for (std::size_t i = 0; i < values.size(); ++i) CHECK(values[i] == static_cast<float>(i));
  }
  const onnx::Node& same = node_of(model, "Conv");
  CHECK(integers_of(same, "pads") == std::vector<std::int64_t>{0, 0, 0, 1});
  CHECK(integers_of(same, "group") == std::vector<std::int64_t>{1});
  CHECK(model.graph().node(1).input(1) == "a.weight");
  CHECK(integers_of(node_of(model, "Gemm"), "transB") == std::vector<std::int64_t>{1});
}

TEST_CASE("a window that hangs over the end is written as padding") {
  const onnx::Model model =
      model_of(spec_of("    - {type: MaxPool2d, kernel_size: 3, stride: 2, ceil_mode: true}\n"
                       "    - {type: AvgPool2d, kernel_size: 2, stride: 2, ceil_mode: true}\n"
                       "    - {type: Flatten}\n    - {type: Linear, name: fc, out_features: 3}\n"));
  // 6 pixels: windows at 0, 2 and 4; then 3 pixels: windows at 0 and 2.
  CHECK(integers_of(node_of(model, "MaxPool"), "pads") == std::vector<std::int64_t>{0, 0, 1, 1});
  const onnx::Node& average = node_of(model, "AveragePool");
  CHECK(integers_of(average, "pads") == std::vector<std::int64_t>{0, 0, 1, 1});
  CHECK(ops_of(model) == Texts{"MaxPool", "Pad", "AveragePool", "Flatten", "Gemm"});
}

TEST_CASE("the normalisation of raw samples can be part of the graph") {
  const TrainSpec spec = spec_of(
      "    - {type: Flatten}\n"
      "    - {type: Linear, name: fc, out_features: 3}\n");
  const onnx::Model bytes = model_of(spec, {true, DType::u8});
  check_graph(bytes.graph());
  CHECK(ops_of(bytes) == Texts{"Cast", "Div", "Sub", "Div", "Flatten", "Gemm"});
  CHECK(bytes.graph().input(0).type().tensor_type().elem_type() == onnx::UINT8);
  const onnx::Tensor& mean = tensor_of(bytes, bytes.graph().node(2).input(1));
  CHECK(floats_of(mean) == std::vector<float>{0.1F, 0.2F, 0.3F, 0.4F});
  CHECK(std::vector<std::int64_t>(mean.dims().begin(), mean.dims().end()) ==
        std::vector<std::int64_t>{4, 1, 1});
  const onnx::Model floats = model_of(spec, {true, DType::f32});
  CHECK(ops_of(floats) == Texts{"Div", "Sub", "Div", "Flatten", "Gemm"});
  CHECK(floats.graph().input(0).type().tensor_type().elem_type() == onnx::FLOAT);
}

TEST_CASE("names of layers that look like those of values and tensors do not clash") {
  const onnx::Model model =
      model_of(spec_of("    - {type: Conv2d, name: output, out_channels: 4, kernel_size: 1}\n"
                       "    - {type: LayerScale, name: output.Conv}\n"
                       "    - {type: ReLU, name: input}\n"
                       "    - {type: Flatten, from: [input]}\n"
                       "    - {type: Linear, name: fc, out_features: 3}\n    - {type: Dropout}\n"));
  check_graph(model.graph());
  CHECK(ops_of(model) == Texts{"Conv", "Mul", "Relu", "Flatten", "Gemm"});
}

TEST_CASE("layers that cannot be written are all named, with their lines") {
  const TrainSpec spec = spec_of(
      "    - {type: BatchNorm2d, name: one, track_running_stats: false}\n"
      "    - {type: BatchNorm2d, name: two}\n    - {type: Flatten}\n"
      "    - {type: BatchNorm1d, name: three, track_running_stats: false}\n"
      "    - {type: Linear, name: fc, out_features: 3}\n");
  const Plan plan = make_plan(spec);
  std::string text;
  try {
    onnx_model(spec, plan, numbered_params(plan), facts_of(spec));
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::usage);
    text = error.what();
  }
  check_contains(text, "net.yaml:8:7: layer 'one' (BatchNorm2d): track_running_stats: false");
  check_contains(text, "\nnet.yaml:11:7: layer 'three' (BatchNorm1d): track_running_stats: false");
  CHECK(text.find("'two'") == std::string::npos);
}
