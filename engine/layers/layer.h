// The contract of a layer: shapes, parameters and the operation that computes it. A layer owns no
// memory and does not depend on a device; it is created from its options and immutable.
//
// To add one: a .cpp with its options struct, field table and Layer; its function in kinds.h; one
// test. See CONTRIBUTING.md.
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
  bool tf32 = false;  ///< see Conv2dDesc
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

/// Evaluation of a normalisation: for each channel, (x - running_mean) / sqrt(running_var + eps),
/// then times the layer's weight, plus its bias, if it has them.
struct RunningNorm {
  float eps = 1e-5F;
  bool relu = false;  ///< true: followed by a ReLU
};

/// Coupling of the samples of a batch in training by a layer's statistics.
struct Coupling {
  bool sync = false;           ///< true: over the whole batch; false: over a shard
  bool in_evaluation = false;  ///< couples a micro-batch in evaluation too
};

class OpWriter;
struct OpContext;

class Layer {
 public:
  virtual ~Layer() = default;
  virtual InputCount input_count() const { return {}; }
  /// Returns the output shape. Throws ErrorKind::usage with what was expected and found; the caller
  /// adds the layer's name and line.
  virtual ActivationShape infer(std::span<const ActivationShape> in) const = 0;
  virtual std::vector<ParamSpec> params(std::span<const ActivationShape>) const { return {}; }
  /// Returns the floating-point operations of forward for one sample; a multiply-add counts as 2.
  virtual double forward_flops(std::span<const ActivationShape>, const ActivationShape&) const {
    return 0;
  }
  /// Returns the operations of backward for one sample. The default assumes the cost of one forward
  /// for parameter gradients and of another for data gradients.
  virtual double backward_flops(std::span<const ActivationShape> in, const ActivationShape& out,
                                bool input_gradient) const {
    return forward_flops(in, out) * (input_gradient ? 2 : 1);
  }
  /// Returns a value if a sample's result in training depends on the other samples
  /// (Op::coupled_channels).
  virtual std::optional<Coupling> coupling(bool /*is_frozen*/) const { return std::nullopt; }
  /// Returns true if the layer only changes the shape of its input (Flatten): no kernel, same
  /// memory.
  virtual bool is_view() const { return false; }
  /// Returns true if the layer may write its output over its input, or over one of them.
  virtual bool is_in_place() const { return false; }
  /// Returns this layer with `next`, the only reader of its output, fused after it; null if that is
  /// impossible.
  virtual std::unique_ptr<Layer> fuse(const Layer& next) const;
  /// Returns a value if evaluation may fold the layer into the one before it.
  virtual std::optional<RunningNorm> running_norm() const { return std::nullopt; }
  /// Returns, for evaluation, this layer with `norm` folded into its weight, whose rows are output
  /// channels, and its bias, which the result always has; null if that is impossible.
  virtual std::unique_ptr<Layer> fold(const RunningNorm& /*norm*/) const { return nullptr; }
  /// Returns the operation that computes the layer. It has a place for each of `params`, except
  /// counters, by their names (param_names). Never called for a view.
  virtual OpDesc describe(const LayerContext& context) const = 0;
  /// Writes the layer's evaluation as operations (op_writer.h) and returns its output, which may be
  /// its input. Throws ErrorKind::usage with the reason if it cannot be written. REQUIRES: a layer
  /// from make_layer, nothing fused or folded.
  virtual std::string write_ops(OpWriter& writer, const OpContext& context) const;
  /// Short text for the summary: "3x3, stride 1".
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
