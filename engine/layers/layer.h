// The contract of a layer: shapes, parameters and the operation that computes it. A layer owns no
// memory and does not depend on a device; it is created from its options and immutable.
//
// To add a layer, write a .cpp with its options struct, field table and Layer, declare its function
// in kinds.h, and add a test. See CONTRIBUTING.md.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/config/registry.h"
#include "engine/config/train_spec.h"
#include "engine/layers/activation_shape.h"
#include "engine/layers/param_spec.h"
#include "kernels/ops.h"

namespace dpt {

struct LayerContext {
  std::int64_t batch = 0;
  std::span<const ActivationShape> in;
  ActivationShape out;
  DType type = DType::f32;
  bool tf32 = false;  ///< operands may be rounded to tf32; see Conv2dDesc
  bool training = true;
  bool is_frozen = false;  ///< training leaves the layer unchanged, including running statistics
  bool input_gradient = true;
  std::uint64_t seed = 0;    ///< seed of the run's random draws
  std::uint64_t stream = 0;  ///< key of the layer's own draws, from its name
};

/// Number of inputs of a layer.
struct InputCount {
  int least = 1, most = 1;
};

/// A normalisation as evaluation computes it: for each channel, (x - running_mean) /
/// sqrt(running_var + eps), times the layer's weight and plus its bias if it has them.
struct RunningNorm {
  float eps = 1e-5F;
  bool relu = false;  ///< true: a ReLU follows
};

/// Coupling of samples by a layer's statistics in training.
struct Coupling {
  bool sync = false;           ///< true: over the whole batch; false: over a shard
  bool in_evaluation = false;  ///< true: evaluation couples the samples of a micro-batch too
};

class OpWriter;
struct OpContext;

class Layer {
 public:
  virtual ~Layer() = default;
  virtual InputCount input_count() const { return {}; }
  /// Returns the output shape. Throws ErrorKind::usage that states what was expected and found. The
  /// caller adds the layer's name and line.
  virtual ActivationShape infer(std::span<const ActivationShape> in) const = 0;
  virtual std::vector<ParamSpec> params(std::span<const ActivationShape>) const { return {}; }
  /// Returns the floating-point operations of forward for one sample; a multiply-add counts as 2.
  virtual double forward_flops(std::span<const ActivationShape>, const ActivationShape&) const {
    return 0;
  }
  /// Returns the operations of backward for one sample. By default, the gradients of the parameters
  /// are assumed to cost as much as forward, and so is the gradient of the input.
  virtual double backward_flops(std::span<const ActivationShape> in, const ActivationShape& out,
                                bool input_gradient) const {
    return forward_flops(in, out) * (input_gradient ? 2 : 1);
  }
  /// Returns a value if a sample's result in training depends on the other samples
  /// (Op::coupled_channels).
  virtual std::optional<Coupling> coupling(bool /*is_frozen*/) const { return std::nullopt; }
  /// Returns true if the layer only changes the shape of its input (Flatten). It then has no
  /// kernel, and its output is in the same memory.
  virtual bool is_view() const { return false; }
  /// Returns true if the layer may write its output over its input, or over one of its inputs.
  virtual bool is_in_place() const { return false; }
  /// Returns this layer with `next` fused after it, or null if that is impossible. `next` is the
  /// only reader of the layer's output.
  virtual std::unique_ptr<Layer> fuse(const Layer& next) const;
  /// Returns the normalisation if evaluation may fold this layer into the one before it.
  virtual std::optional<RunningNorm> running_norm() const { return std::nullopt; }
  /// Returns this layer with `norm` folded into its weight and bias, for evaluation; null if that
  /// is impossible. The rows of the folded weight are output channels. The result always has a
  /// bias.
  virtual std::unique_ptr<Layer> fold(const RunningNorm& /*norm*/) const { return nullptr; }
  /// Returns the operation that computes the layer. Its param_names() include the names of all
  /// `params` except counters. Never called for a view.
  virtual OpDesc describe(const LayerContext& context) const = 0;
  /// Writes the layer as operations for evaluation (op_writer.h) and returns the name of its
  /// output, which may be that of its input. Throws ErrorKind::usage with the reason if the layer
  /// cannot be written. REQUIRES: make_layer created the layer, so nothing is fused or folded.
  virtual std::string write_ops(OpWriter& writer, const OpContext& context) const;
  /// Returns a short text for the summary, such as "3x3, stride 1".
  virtual std::string detail() const { return {}; }
};

/// One kind of layer: its field table and its constructor.
struct LayerKind {
  const ObjectTable* table;
  std::unique_ptr<Layer> (*make)(const Variant& options);
};

const Registry<LayerKind>& layer_kinds();
/// Creates the layer of a spec. REQUIRES: spec.type is one of layer_kinds().
std::unique_ptr<Layer> make_layer(const Variant& spec);

}  // namespace dpt
