// Writes the layers of the config. Does not write the plan's nodes, in which some layers are fused,
// because fusion is up to the runtime that reads the model.
#include "engine/export/onnx.h"

#include <onnx.pb.h>

#include <cassert>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <utility>
#include <variant>

#include "engine/graph/layouts.h"
#include "engine/layers/activation_shape.h"
#include "engine/layers/op_writer.h"
#include "kernels/base/error.h"

namespace dpt {
namespace {

constexpr const char *kInput = "input", *kOutput = "output", *kBatch = "N";
constexpr std::int64_t kIrVersion = 8;
constexpr std::int64_t kMaxModelBytes = (std::int64_t{1} << 31) - 1;

class OnnxWriter final : public OpWriter {
 public:
  OnnxWriter(onnx::Graph& graph, const Plan& plan, const std::vector<float>& params)
      : graph_(&graph), flat_(params) {
    names_ = {kInput, kOutput};
    for (const Param& param : plan.params) {
      params_[param.name] = &param;
      names_.insert(param.name);
    }
  }

  /// Begins the nodes of the layer `name`. The names of its parameters begin with `owner`.
  void begin(const std::string& name, const std::string& owner) {
    layer_ = name;
    owner_ = owner;
  }

  std::string op(const std::string& type, std::vector<std::string> inputs,
                 std::vector<OpAttribute> attributes) override {
    onnx::Node& node = *graph_->add_node();
    node.set_op_type(type);
    node.set_name(unique(layer_ + "/" + type));
    node.add_output(node.name());
    for (std::string& input : inputs) node.add_input(std::move(input));
    for (const OpAttribute& each : attributes) add(node, each);
    return node.name();
  }

  std::string param(const std::string& suffix) override {
    const std::string name = suffix.empty() ? owner_ : owner_ + "." + suffix;
    const auto found = params_.find(name);
    assert(found != params_.end() && "a layer asks for its own parameters");
    // Layers that share weights also share the tensor.
    if (written_.insert(name).second) {
      const Param& each = *found->second;
      std::vector<float> values(static_cast<std::size_t>(each.count));
      to_file_layout(each, flat_.data() + each.offset, values.data());
      add_tensor(name, onnx::FLOAT, each.spec.file_shape, std::as_bytes(std::span(values)));
    }
    return name;
  }

  std::string floats(std::vector<std::int64_t> shape, std::vector<float> values) override {
    const std::string name = unique(layer_ + "/constant");
    add_tensor(name, onnx::FLOAT, shape, std::as_bytes(std::span(values)));
    return name;
  }

  std::string integers(std::vector<std::int64_t> values) override {
    const std::string name = unique(layer_ + "/constant");
    add_tensor(name, onnx::INT64, {static_cast<std::int64_t>(values.size())},
               std::as_bytes(std::span(values)));
    return name;
  }

  std::string doubles(std::vector<std::int64_t> shape, std::vector<double> values) override {
    const std::string name = unique(layer_ + "/constant");
    add_tensor(name, onnx::DOUBLE, shape, std::as_bytes(std::span(values)));
    return name;
  }

  std::string either(const std::string& condition, const std::function<std::string()>& yes,
                     const std::function<std::string()>& no) override {
    onnx::Node node;
    node.set_op_type("If");
    node.set_name(unique(layer_ + "/If"));
    node.add_output(node.name());
    node.add_input(condition);
    add_branch(node, "then_branch", yes);
    add_branch(node, "else_branch", no);
    return (*graph_->add_node() = std::move(node)).name();
  }

  /// Renames a value. REQUIRES: an operation outside of all branches computes it, and no branch
  /// reads it.
  void rename(const std::string& from, const std::string& to) {
    for (onnx::Node& node : *graph_->mutable_node()) {
      for (std::string& each : *node.mutable_input()) each = each == from ? to : each;
      for (std::string& each : *node.mutable_output()) each = each == from ? to : each;
    }
  }

 private:
  std::string unique(const std::string& wanted) {
    std::string name = wanted;
    for (int i = 1; !names_.insert(name).second; ++i) name = fmt::format("{}_{}", wanted, i);
    return name;
  }

  void add_branch(onnx::Node& node, const char* name, const std::function<std::string()>& write) {
    onnx::Attribute& made = *node.add_attribute();
    made.set_name(name);
    made.set_type(onnx::Attribute::GRAPH);
    onnx::Graph* const outside = std::exchange(graph_, made.mutable_g());
    graph_->set_name(name);
    graph_->add_output()->set_name(write());
    graph_ = outside;
  }

  static void add(onnx::Node& node, const OpAttribute& attribute) {
    onnx::Attribute& made = *node.add_attribute();
    made.set_name(attribute.name);
    if (const auto* i = std::get_if<std::int64_t>(&attribute.value)) {
      made.set_type(onnx::Attribute::INT);
      made.set_i(*i);
    } else if (const auto* f = std::get_if<float>(&attribute.value)) {
      made.set_type(onnx::Attribute::FLOAT);
      made.set_f(*f);
    } else if (const auto* s = std::get_if<std::string>(&attribute.value)) {
      made.set_type(onnx::Attribute::STRING);
      made.set_s(*s);
    } else {
      made.set_type(onnx::Attribute::INTS);
      for (const std::int64_t each : std::get<std::vector<std::int64_t>>(attribute.value)) {
        made.add_ints(each);
      }
    }
  }

  void add_tensor(const std::string& name, onnx::ElementType type,
                  const std::vector<std::int64_t>& shape, std::span<const std::byte> values) {
    onnx::Tensor& tensor = *graph_->add_initializer();
    tensor.set_name(name);
    tensor.set_data_type(type);
    for (const std::int64_t size : shape) tensor.add_dims(size);
    tensor.set_raw_data(values.data(), values.size());
  }

  onnx::Graph* graph_;  ///< graph being written: the model's or a branch's
  const std::vector<float>& flat_;
  std::map<std::string, const Param*> params_;
  std::set<std::string> names_, written_;
  std::string layer_, owner_;
};

/// Throws unless the weights, with 16 MiB added for the rest of the model, fit into the format's 2
/// GiB.
void check_bytes(const Plan& plan) {
  std::int64_t bytes = std::int64_t{16} << 20;
  for (const Param& param : plan.params) {
    bytes += param.count * static_cast<std::int64_t>(sizeof(float));
  }
  if (bytes <= kMaxModelBytes) return;
  fail(ErrorKind::usage,
       "the model has {} parameters: an ONNX file has room for less than 2 GiB; export them with "
       "--torch",
       plan.param_count);
}

/// Size of a dimension, or the name of a dynamic one.
using Dimension = std::variant<std::int64_t, const char*>;

void describe_value(onnx::ValueInfo& value, const char* name, onnx::ElementType type,
                    const std::vector<Dimension>& sample, const std::string& doc) {
  value.set_name(name);
  value.set_doc_string(doc);
  onnx::TensorType& tensor = *value.mutable_type()->mutable_tensor_type();
  tensor.set_elem_type(type);
  tensor.mutable_shape()->add_dim()->set_dim_param(kBatch);
  for (const Dimension& each : sample) {
    onnx::Dimension& made = *tensor.mutable_shape()->add_dim();
    if (const auto* size = std::get_if<std::int64_t>(&each)) {
      made.set_dim_value(*size);
    } else {
      made.set_dim_param(std::get<const char*>(each));
    }
  }
}

/// Describes the input of the model for its user.
void describe_input(onnx::ValueInfo& value, const ExportFacts& facts, const OnnxOptions& options) {
  const bool reads_bytes =
      options.preprocessing || (options.include_normalisation && options.raw_type == DType::u8);
  std::vector<Dimension> sample{facts.input[0], facts.input[1], facts.input[2]};
  if (options.preprocessing == ImageLayout::nchw) sample = {facts.input[0], "height", "width"};
  if (options.preprocessing == ImageLayout::nhwc) sample = {"height", "width", facts.input[0]};
  const char* doc = options.preprocessing           ? "upright images of any size"
                    : options.include_normalisation ? "raw samples"
                                                    : "normalised samples";
  describe_value(value, kInput, reads_bytes ? onnx::UINT8 : onnx::FLOAT, sample, doc);
}

/// Writes the operations that bring images of any size to the network's input size. Returns their
/// result.
std::string write_images(OnnxWriter& writer, const ExportFacts& facts, const OnnxOptions& options) {
  writer.begin("preprocess", "");
  std::string x = kInput;
  if (options.preprocessing == ImageLayout::nhwc) {
    x = writer.op("Transpose", {x}, {{"perm", std::vector<std::int64_t>{0, 3, 1, 2}}});
  }
  x = writer.op("Cast", {x}, {{"to", kOpFloat}});
  return write_preprocessing(writer, x, facts.transforms);
}

/// Writes the operations of the input kernel and returns the network's input.
std::string write_normalisation(OnnxWriter& writer, const ExportFacts& facts,
                                const OnnxOptions& options) {
  std::string x = options.preprocessing ? write_images(writer, facts, options) : kInput;
  writer.begin("normalise", "");
  if (!options.preprocessing && options.raw_type == DType::u8) {
    x = writer.op("Cast", {x}, {{"to", kOpFloat}});
  }
  assert(facts.scale);
  if (*facts.scale != 1.0F) x = writer.op("Div", {x, writer.scalar(*facts.scale)}, {});
  if (facts.mean.empty()) return x;
  const std::vector<std::int64_t> channels{facts.input[0], 1, 1};
  x = writer.op("Sub", {x, writer.floats(channels, facts.mean)}, {});
  return writer.op("Div", {x, writer.floats(channels, facts.stddev)}, {});
}

/// A layer's output that was written.
struct Written {
  std::string value;
  ActivationShape shape;
};

/// Writes all layers and returns the output of the last. If some cannot be written, throws a single
/// error that lists all of them.
std::string write_layers(OnnxWriter& writer, const TrainSpec& spec, const Plan& plan,
                         const std::string& input) {
  std::map<std::string, Written> known{{"input", {input, plan.input}}};
  Written previous = known["input"];
  std::string problems;
  for (std::size_t i = 0; i < spec.model.layers.size(); ++i) {
    const LayerSpec& layer = spec.model.layers[i];
    const LayerRow& row = plan.rows[i];
    std::vector<std::string> in;
    std::vector<ActivationShape> shapes;
    const auto read = [&](const Written& each) {
      in.push_back(each.value);
      shapes.push_back(each.shape);
    };
    if (layer.from.empty()) read(previous);
    for (const std::string& name : layer.from) read(known.at(name));
    writer.begin(layer.name, row.shares.empty() ? layer.name : row.shares);
    previous = {{}, row.out};
    try {
      previous.value = make_layer(layer.op)->write_ops(writer, {in, shapes, row.out});
    } catch (const Error& error) {
      problems += fmt::format("{}{}layer '{}' ({}): {}", problems.empty() ? "" : "\n",
                              layer.where.file.empty() ? "" : layer.where.text() + ": ", layer.name,
                              layer.op.type, error.what());
    }
    known[layer.name] = previous;
  }
  if (!problems.empty()) throw Error(ErrorKind::usage, problems);
  return previous.value;
}

/// Writes the function that turns outputs into probabilities.
std::string write_probabilities(OnnxWriter& writer, const std::string& outputs,
                                const std::string& loss) {
  writer.begin("probabilities", "");
  if (loss == "cross_entropy") {
    return writer.op("Softmax", {outputs}, {{"axis", std::int64_t{1}}});
  }
  if (loss == "bce_with_logits") return writer.op("Sigmoid", {outputs}, {});
  fail(ErrorKind::usage,
       "--softmax: expected a model with the loss cross_entropy or bce_with_logits, found {}: its "
       "outputs are values, not probabilities; leave the option out",
       loss);
}

}  // namespace

std::string onnx_model(const TrainSpec& spec, const Plan& plan, const std::vector<float>& params,
                       const ExportFacts& facts, const OnnxOptions& options) {
  check_bytes(plan);
  onnx::Model model;
  model.set_ir_version(kIrVersion);
  model.set_producer_name("dpt");
  model.set_producer_version(facts.version);
  model.add_opset_import()->set_version(kOnnxOpset);

  onnx::Graph& graph = *model.mutable_graph();
  graph.set_name(spec.name.empty() ? "model" : spec.name);
  describe_input(*graph.add_input(), facts, options);
  describe_value(*graph.add_output(), kOutput, onnx::FLOAT, {plan.classes},
                 options.include_softmax
                     ? "probabilities"
                     : fmt::format("outputs that the loss {} reads", facts.loss));

  OnnxWriter writer(graph, plan, params);
  const bool normalises = options.preprocessing || options.include_normalisation;
  const std::string input = normalises ? write_normalisation(writer, facts, options) : kInput;
  std::string output = write_layers(writer, spec, plan, input);
  if (options.include_softmax) output = write_probabilities(writer, output, facts.loss);
  writer.rename(output, kOutput);

  std::map<std::string, std::string> metadata = metadata_of(facts);
  metadata["normalisation_included"] = normalises ? "true" : "false";
  metadata["preprocessing_included"] = !options.preprocessing                       ? "false"
                                       : options.preprocessing == ImageLayout::nhwc ? "nhwc"
                                                                                    : "nchw";
  metadata["softmax_included"] = options.include_softmax ? "true" : "false";
  for (const auto& [key, value] : metadata) {
    onnx::Entry& entry = *model.add_metadata_props();
    entry.set_key(key);
    entry.set_value(value);
  }
  return model.SerializeAsString();
}

}  // namespace dpt
