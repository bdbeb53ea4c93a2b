// The Plan: the layer graph with every shape, the parameter table and the memory plan. A pure
// function of the spec: it can be printed and tested without a device. make_plan reports every
// shape error with the layer and its YAML line.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/layers/layer.h"
#include "engine/spec/train_spec.h"

namespace dpt {

/// A tensor of the model and its place in the flat buffers: a parameter, or what training keeps
/// beside them (ParamRole).
struct Param {
  std::string name;  ///< "conv1.weight", as in files
  ParamSpec spec;
  std::int64_t offset = 0;  ///< in floats; a multiple of 16 (64 bytes)
  std::int64_t count = 0;   ///< elements
  int node = 0;             ///< index into Plan::nodes: the first that reads it
  int last_node = 0;        ///< the last, where layers share it; the first to give a gradient
  bool is_frozen = false;   ///< train.freeze names it: nothing updates it
  bool is_folded = false;   ///< its place is in the folded parameters (evaluation_plan.h)

  bool is_trained() const { return spec.role == ParamRole::trained; }
};

/// An activation.
struct Value {
  ActivationShape shape;
  bool needs_gradient =
      false;  ///< what computes it has trained parameters, or something upstream has
};

/// One executed node: a layer with what was fused into it.
struct Node {
  std::string name;  ///< of the (first) layer
  std::shared_ptr<const Layer> layer;
  std::vector<int> inputs;           ///< indices of Values, as many as the layer reads
  int output = 0;                    ///< index of its Value
  std::vector<int> params;           ///< indices into Plan::params, in the order of Layer::params;
                                     ///< those of an earlier node, where it shares its weights
  std::vector<int> source_layers;    ///< indices into spec.model.layers, fused ones included
  bool is_frozen = false;            ///< train.freeze names all of its parameters, state included
  bool input_gradient = true;        ///< an input needs a gradient
  std::optional<Coupling> coupling;  ///< Layer::coupling
  bool is_view = false;
  Where where;
};

/// One row of `dpt model summary`: a layer as written.
struct LayerRow {
  std::string name, type, detail;
  std::string shares;  ///< name of the layer whose parameters it uses, if another
  ActivationShape out;
  std::int64_t params = 0;                       ///< of its own
  double forward_flops = 0, backward_flops = 0;  ///< per sample
  std::int64_t activation_bytes = 0;  ///< per sample; 0 when fused away, view or in place
  std::string fused_into;             ///< name of the node that runs it, if another
};

struct Plan {
  ActivationShape input;            ///< after the input kernel
  std::vector<Value> values;        ///< values[0] is the input
  std::vector<Node> nodes;          ///< in execution order
  int logits = 0;                   ///< index of the Value the loss reads
  std::int64_t classes = 0;         ///< width of the logits
  std::vector<Param> params;        ///< in the order of the nodes
  std::int64_t trained_floats = 0;  ///< of the flat buffer's beginning, which the optimizer updates
  std::int64_t param_floats = 0;    ///< flat buffer length, padding included; a multiple of 16
  std::int64_t param_count = 0;     ///< elements that the optimizer updates, without padding
  /// The running statistics that training updates, all behind what is trained, and their counters.
  std::vector<RunningRange> running;
  Range counters;
  std::vector<LayerRow> rows;
  DType type = DType::f32;  ///< of activations
  bool tf32 = false;        ///< operands of matrix products may be rounded to tf32

  /// The parameters that training updates, in order: neither frozen nor running statistics.
  std::vector<const Param*> updated() const;
  /// The shapes of what a node reads, in order.
  std::vector<ActivationShape> shapes_into(const Node& node) const;
  /// End of the gradients in floats: param_floats, then StepMetrics. They begin at
  /// gradient_begin(). The slots of running statistics hold the step's statistics times the number
  /// of samples.
  std::int64_t grad_floats() const {
    return param_floats + static_cast<std::int64_t>(sizeof(StepMetrics) / sizeof(float));
  }
};

/// Builds the plan. Throws one ErrorKind::usage whose lines are "file:line:col: layer 'conv2' ...".
Plan make_plan(const TrainSpec& spec);

/// A stretch of memory that is in use from step `first` to step `last` (inclusive) of a schedule.
struct Lifetime {
  std::size_t bytes = 0;
  int first = 0, last = 0;
};

/// Offsets (64-byte aligned) such that lifetimes that overlap in time do not overlap in memory;
/// greedy by size, deterministic. `total` gets the arena's size.
std::vector<std::size_t> assign_memory(const std::vector<Lifetime>& lifetimes, std::size_t& total);

/// Bytes of a replica for a given batch per device: parameters, gradients, optimizer state of
/// `optimizer_buffers` flat buffers from gradient_begin() on, activations (by lifetime, kernels'
/// workspaces not included).
struct MemoryEstimate {
  std::int64_t params = 0, grads = 0, optimizer = 0, activations = 0;
  std::int64_t total() const { return params + grads + optimizer + activations; }
};
/// `pieces` micro-batches of `batch` samples go through a pass together (memory_schedule.h).
MemoryEstimate estimate_memory(const Plan& plan, std::int64_t batch, int optimizer_buffers,
                               std::int64_t pieces = 1);

/// Returns the number of floats at the beginning of the flat buffer without gradient and optimizer
/// state: frozen layers before the first trained layer, which backward does not reach.
std::int64_t gradient_begin(const Plan& plan);

/// A stretch of the gradient buffer that is complete once the backward of `node` is done, and of
/// all nodes after it.
struct GradientBucket {
  int node = 0;
  std::int64_t begin = 0, end = 0;  ///< floats
};
/// Cuts the gradient buffer, metrics included, into buckets of at least `bytes` each (but the
/// last), in the order in which backward completes them: from the end of the buffer to its
/// beginning.
std::vector<GradientBucket> gradient_buckets(const Plan& plan, std::int64_t bytes);

/// What the memory of a step depends on.
struct StepSize {
  std::int64_t batch = 0;    ///< samples of the largest batch, on all replicas together
  std::int64_t at_once = 0;  ///< samples of the largest micro-batch of a replica
  std::int64_t pieces = 1;   ///< micro-batches that go through a pass together
};
/// Of batches from that many training samples, in replicas that run at most `limit` samples at once
/// (micro_batch_limit). In exact mode a micro-batch is of one shard; those that a GPU runs
/// concurrently are not counted.
StepSize step_size(const TrainSpec& spec, int replicas, std::int64_t samples, std::int64_t limit);
/// Estimates the memory that a replica needs for such steps, in bytes, without the kernels'
/// workspaces, the data and evaluation. `optimizer_buffers` as for summary_text.
std::int64_t step_bytes(const TrainSpec& spec, const Plan& plan, const StepSize& step,
                        int optimizer_buffers);

/// The table of `dpt model summary`, and its JSON form. `optimizer_buffers` is the number of the
/// optimizer's state tensors (OptimizerSpec::states); without it they are not counted, and
/// the text says so. Without `step`, a replica runs its part of `data.batch_size` at once.
std::string summary_text(const TrainSpec& spec, const Plan& plan, int replicas,
                         std::optional<int> optimizer_buffers = std::nullopt,
                         std::optional<StepSize> step = std::nullopt);
std::string summary_json(const TrainSpec& spec, const Plan& plan, int replicas,
                         std::optional<int> optimizer_buffers = std::nullopt,
                         std::optional<StepSize> step = std::nullopt);

/// Writes the starting values of all parameters, in buffer layout, keyed by (seed, name).
void initialise_params(const Plan& plan, std::uint64_t seed, float* flat);

/// Buffer layout <-> file layout of one parameter (`count` floats each; may not overlap).
void to_file_layout(const Param& param, const float* buffer, float* file);
void from_file_layout(const Param& param, const float* file, float* buffer);

}  // namespace dpt
