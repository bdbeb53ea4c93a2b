// GroupNorm and LayerNorm as in torch.nn, and LayerNorm2d, a LayerNorm over the channels of each
// pixel. All three normalise each sample separately, with the same operation (GroupNormDesc).
#include "engine/layers/activation_shape.h"
#include "engine/layers/kinds.h"
#include "engine/layers/op_writer.h"
#include "engine/layers/param_spec.h"
#include "engine/layers/shape_checks.h"

namespace dpt {
namespace {

/// Returns a parameter with the initial value `start`: 1 for a weight, 0 for a bias.
ParamSpec norm_param(const char* suffix, double start, std::vector<std::int64_t> file_shape) {
  ParamSpec spec;
  spec.suffix = suffix;
  spec.file_shape = std::move(file_shape);
  spec.init = {InitKind::constant, start};
  return spec;
}

GroupNormDesc norm_desc(const LayerContext& context, double eps) {
  GroupNormDesc desc;
  desc.batch = context.batch;
  desc.shape = context.out.shape;
  desc.eps = static_cast<float>(eps);
  desc.type = context.type;
  desc.training = context.training;
  desc.input_gradient = context.input_gradient;
  return desc;
}

}  // namespace

struct GroupNormOptions {
  std::int64_t num_groups = 1;
  double eps = 1e-5;
  bool affine = true;
};

class GroupNorm final : public Layer {
 public:
  using Options = GroupNormOptions;
  explicit GroupNorm(const Options& options) : options_(options) {}

  ActivationShape infer(std::span<const ActivationShape> in) const override {
    if (in[0].flat) {
      throw ShapeError(fmt::format("expected an image (C x H x W) as input, found a vector of {} "
                                   "features; use LayerNorm, or move it before the Flatten",
                                   in[0].elements()),
                       in[0]);
    }
    if (in[0].shape.c % options_.num_groups != 0) {
      throw ShapeError(fmt::format("num_groups {} must divide the channels of its input, {}",
                                   options_.num_groups, in[0].shape.c),
                       in[0]);
    }
    return in[0];
  }
  std::vector<ParamSpec> params(std::span<const ActivationShape> in) const override {
    if (!options_.affine) return {};
    return {norm_param("weight", 1, {in[0].shape.c}), norm_param("bias", 0, {in[0].shape.c})};
  }
  OpDesc describe(const LayerContext& context) const override {
    GroupNormDesc desc = norm_desc(context, options_.eps);
    desc.groups = options_.num_groups;
    desc.weight = desc.bias = options_.affine;
    return desc;
  }
  /// Writes the groups as channels of an image with one row, for InstanceNormalization to
  /// normalise. ONNX's GroupNormalization has one weight per channel only from opset 21 on.
  std::string write_ops(OpWriter& writer, const OpContext& context) const override {
    const SampleShape& shape = context.shapes[0].shape;
    const auto groups = static_cast<std::size_t>(options_.num_groups);
    const std::string rows =
        writer.op("Reshape", {context.in[0], writer.integers({0, options_.num_groups, -1})});
    const std::string normalised =
        writer.op("InstanceNormalization",
                  {rows, writer.floats({options_.num_groups}, std::vector(groups, 1.0F)),
                   writer.floats({options_.num_groups}, std::vector(groups, 0.0F))},
                  {{"epsilon", static_cast<float>(options_.eps)}});
    std::string y =
        writer.op("Reshape", {normalised, writer.integers({0, shape.c, shape.h, shape.w})});
    if (!options_.affine) return y;
    const std::string axes = writer.integers({1, 2});
    y = writer.op("Mul", {y, writer.op("Unsqueeze", {writer.param("weight"), axes})});
    return writer.op("Add", {y, writer.op("Unsqueeze", {writer.param("bias"), axes})});
  }
  std::string detail() const override {
    return fmt::format("{} group{}{}", options_.num_groups, options_.num_groups == 1 ? "" : "s",
                       options_.affine ? "" : ", not affine");
  }

 private:
  Options options_;
};

struct LayerNormOptions {
  double eps = 1e-5;
  bool elementwise_affine = true;
  bool bias = true;
};

/// Base of both kinds of LayerNorm. They differ in the set of values that they normalise together.
/// There is one weight for each element of the set.
class AnyLayerNorm : public Layer {
 public:
  using Options = LayerNormOptions;

  std::vector<ParamSpec> params(std::span<const ActivationShape> in) const override {
    std::vector<ParamSpec> all;
    if (has_weight()) all.push_back(param("weight", 1, in[0]));
    if (has_bias()) all.push_back(param("bias", 0, in[0]));
    return all;
  }
  std::string detail() const override {
    if (!has_weight()) return "not affine";
    return has_bias() ? "" : "no bias";
  }
  static ObjectTable make_table(const char* name, const char* doc, const char* affine_doc) {
    using O = Options;
    return object_table<O>(
        name, doc,
        {field("eps", &O::eps, "Added to the variance for numerical stability.").above(0),
         field("elementwise_affine", &O::elementwise_affine, affine_doc),
         field("bias", &O::bias, "Add the bias too, if elementwise_affine is true.")});
  }

 protected:
  explicit AnyLayerNorm(const Options& options) : options_(options) {}
  /// Writes the normalisation over all axes from `axis` on. `sizes` are their sizes.
  std::string write_norm(OpWriter& writer, const std::string& x, std::int64_t axis,
                         const std::vector<std::int64_t>& sizes) const {
    std::int64_t count = 1;
    for (const std::int64_t size : sizes) count *= size;
    std::vector<std::string> inputs{
        x, has_weight() ? writer.param("weight")
                        : writer.floats(sizes, std::vector(static_cast<std::size_t>(count), 1.0F))};
    if (has_bias()) inputs.push_back(writer.param("bias"));
    return writer.op("LayerNormalization", inputs,
                     {{"axis", axis}, {"epsilon", static_cast<float>(options_.eps)}});
  }
  bool has_weight() const { return options_.elementwise_affine; }
  bool has_bias() const { return options_.elementwise_affine && options_.bias; }
  /// Describes the operation, with each sample divided into `sets_of_a_sample` sets.
  GroupNormDesc describe_sets(const LayerContext& context, std::int64_t sets_of_a_sample) const {
    GroupNormDesc desc = norm_desc(context, options_.eps);
    desc.batch *= sets_of_a_sample;
    desc.shape = {1, 1, context.out.elements() / sets_of_a_sample};
    desc.weight = has_weight();
    desc.bias = has_bias();
    return desc;
  }

 private:
  virtual ParamSpec param(const char* suffix, double start, const ActivationShape& in) const = 0;

  Options options_;
};

class LayerNorm final : public AnyLayerNorm {
 public:
  explicit LayerNorm(const Options& options) : AnyLayerNorm(options) {}
  ActivationShape infer(std::span<const ActivationShape> in) const override { return in[0]; }
  OpDesc describe(const LayerContext& context) const override { return describe_sets(context, 1); }
  std::string write_ops(OpWriter& writer, const OpContext& context) const override {
    const ActivationShape& in = context.shapes[0];
    const SampleShape& s = in.shape;
    return write_norm(writer, context.in[0], 1,
                      in.flat ? std::vector{in.elements()} : std::vector{s.c, s.h, s.w});
  }

 private:
  ParamSpec param(const char* suffix, double start, const ActivationShape& in) const override {
    const SampleShape& s = in.shape;
    ParamSpec spec = norm_param(suffix, start,
                                in.flat ? std::vector{in.elements()} : std::vector{s.c, s.h, s.w});
    if (s.h * s.w > 1) {
      spec.layout = ParamLayout::vector_hwc;
      spec.hwc = s;
    }
    return spec;
  }
};

class LayerNorm2d final : public AnyLayerNorm {
 public:
  explicit LayerNorm2d(const Options& options) : AnyLayerNorm(options) {}
  ActivationShape infer(std::span<const ActivationShape> in) const override {
    if (!in[0].flat) return in[0];
    throw ShapeError(fmt::format("expected an image (C x H x W) as input, found a vector of {} "
                                 "features; use LayerNorm, or move it before the Flatten",
                                 in[0].elements()),
                     in[0]);
  }
  OpDesc describe(const LayerContext& context) const override {
    return describe_sets(context, context.out.shape.h * context.out.shape.w);
  }
  std::string write_ops(OpWriter& writer, const OpContext& context) const override {
    using Axes = std::vector<std::int64_t>;
    const std::string pixels =
        writer.op("Transpose", {context.in[0]}, {{"perm", Axes{0, 2, 3, 1}}});
    const std::string y = write_norm(writer, pixels, -1, {context.shapes[0].shape.c});
    return writer.op("Transpose", {y}, {{"perm", Axes{0, 3, 1, 2}}});
  }

 private:
  ParamSpec param(const char* suffix, double start, const ActivationShape& in) const override {
    return norm_param(suffix, start, {in.shape.c});
  }
};

LayerKind group_norm_layer() {
  using O = GroupNormOptions;
  static const ObjectTable table = object_table<O>(
      "GroupNorm",
      "Normalisation of each sample over groups of channels and all pixels, like "
      "torch.nn.GroupNorm.",
      {field("num_groups", &O::num_groups,
             "Number of groups; must divide the channels of the input.")
           .required()
           .range(1, 65536),
       field("eps", &O::eps, "Added to the variance for numerical stability.").above(0),
       field("affine", &O::affine, "Add a learnable weight and bias per channel.")});
  return layer_kind<GroupNorm>(table);
}

LayerKind layer_norm_layer() {
  static const ObjectTable table = AnyLayerNorm::make_table(
      "LayerNorm",
      "Normalisation of each sample over all of its values, like torch.nn.LayerNorm with "
      "normalized_shape [C, H, W], or [features] for a vector.",
      "Add a learnable weight and bias per value.");
  return layer_kind<LayerNorm>(table);
}

LayerKind layer_norm2d_layer() {
  static const ObjectTable table = AnyLayerNorm::make_table(
      "LayerNorm2d",
      "Normalisation of each pixel over its channels, like torchvision's LayerNorm2d.",
      "Add a learnable weight and bias per channel.");
  return layer_kind<LayerNorm2d>(table);
}

}  // namespace dpt
