// The Plan: the layer graph with every shape, and the parameter table. It is a pure function of the
// spec, so it can be printed and tested without a device. make_plan.h creates it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/config/train_spec.h"
#include "engine/layers/activation_shape.h"
#include "engine/layers/layer.h"
#include "engine/layers/param_spec.h"
#include "kernels/flat.h"

namespace dpt {

/// A tensor of the model and its place in the flat buffers: a parameter, a running statistic or a
/// counter (ParamRole).
struct Param {
  std::string name;  ///< "conv1.weight", as in files
  ParamSpec spec;
  std::int64_t offset = 0;  ///< in floats; a multiple of 16 (64 bytes)
  std::int64_t count = 0;   ///< elements
  int node = 0;             ///< index into Plan::nodes: first node that reads it
  int last_node = 0;  ///< last node that reads it, if layers share it; the first to give a gradient
  bool is_frozen = false;  ///< true if train.freeze names it: nothing updates it
  bool is_folded = false;  ///< true if its place is in the folded parameters (evaluation_plan.h)

  bool is_trained() const { return spec.role == ParamRole::trained; }
};

/// An activation.
struct Value {
  ActivationShape shape;
  bool needs_gradient = false;  ///< true if its layer or one upstream has trained parameters
};

/// One executed node: a layer with the layers that were fused into it.
struct Node {
  std::string name;  ///< name of the (first) layer
  std::shared_ptr<const Layer> layer;
  std::vector<int> inputs;         ///< indices of Values, as many as the layer reads
  int output = 0;                  ///< index of its Value
  std::vector<int> params;         ///< indices into Plan::params, in the order of Layer::params;
                                   ///< those of an earlier node, if it shares its weights
  std::vector<int> source_layers;  ///< indices into spec.model.layers, fused ones included
  bool is_frozen = false;  ///< true if train.freeze names all its params, running statistics too
  bool input_gradient = true;        ///< true if an input needs a gradient
  std::optional<Coupling> coupling;  ///< Layer::coupling
  bool is_view = false;
  Where where;
};

/// One row of `dpt model summary`: a layer as written.
struct LayerRow {
  std::string name, type, detail;
  std::string shares;  ///< name of the layer whose parameters it uses, if another
  ActivationShape out;
  std::int64_t params = 0;                       ///< number of its own parameters
  double forward_flops = 0, backward_flops = 0;  ///< per sample
  std::int64_t activation_bytes = 0;  ///< per sample; 0 if fused away, a view or in place
  std::string fused_into;             ///< name of the node that runs it, if another
};

struct Plan {
  ActivationShape input;      ///< shape after the input kernel
  std::vector<Value> values;  ///< values[0] is the input
  std::vector<Node> nodes;    ///< in execution order
  int logits = 0;             ///< index of the Value the loss reads
  std::int64_t classes = 0;   ///< width of the logits
  std::vector<Param> params;  ///< in the order of the nodes
  /// Length in floats of the first part of the flat buffer, the part that the optimizer updates.
  std::int64_t trained_floats = 0;
  std::int64_t param_floats = 0;  ///< flat buffer length, padding included; a multiple of 16
  std::int64_t param_count = 0;  ///< number of elements that the optimizer updates, without padding
  /// Running statistics that training updates, and their counters. All of them come after the
  /// trained parameters.
  std::vector<RunningRange> running;
  Range counters;
  std::vector<LayerRow> rows;
  DType type = DType::f32;  ///< type of activations
  bool tf32 = false;        ///< true if operands of matrix products may be rounded to tf32

  /// Returns the parameters that training updates, in order. Leaves out frozen parameters and
  /// running statistics.
  std::vector<const Param*> updated() const;
  /// Returns the shapes of a node's inputs, in order.
  std::vector<ActivationShape> shapes_into(const Node& node) const;
  /// Returns the size of the gradient buffer in floats: param_floats, then StepMetrics. Gradients
  /// begin at gradient_begin(). The slots of running statistics hold the step's statistics times
  /// the number of samples.
  std::int64_t grad_floats() const {
    return param_floats + static_cast<std::int64_t>(sizeof(StepMetrics) / sizeof(float));
  }
};

}  // namespace dpt
