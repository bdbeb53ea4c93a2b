// Linear, like torch.nn.Linear: y = x W^T + b, where x is (N,in), or (N*H*W,in) if per pixel, and W
// is (out,in). A ReLU can be fused after it.
#include <utility>

#include "engine/layers/activation_shape.h"
#include "engine/layers/init_options.h"
#include "engine/layers/kinds.h"
#include "engine/layers/op_writer.h"
#include "engine/layers/param_spec.h"
#include "engine/layers/relu.h"
#include "engine/layers/shape_checks.h"

namespace dpt {

struct LinearOptions : InitOptions {
  std::int64_t out_features = 0;
  bool per_pixel = false;
};

class Linear final : public Layer {
 public:
  using Options = LinearOptions;

  explicit Linear(const Options& options, bool relu = false) : options_(options), relu_(relu) {}

  ActivationShape infer(std::span<const ActivationShape> in) const override {
    if (options_.per_pixel) {
      require_image(in[0]);
      return {{in[0].shape.h, in[0].shape.w, options_.out_features}, false};
    }
    const ActivationShape out{{1, 1, options_.out_features}, true};
    if (in[0].flat) return out;
    throw ShapeError(
        fmt::format("expected a vector as input, found an image of {} (C x H x W); add "
                    "{{type: Flatten}} before it",
                    in[0].text()),
        out);
  }

  std::vector<ParamSpec> params(std::span<const ActivationShape> in) const override {
    const std::int64_t features = features_of(in[0]), out = options_.out_features;
    ParamSpec weight;
    weight.file_shape = {out, features};
    if (in[0].flat && in[0].shape.h * in[0].shape.w > 1) {
      // Files hold the columns in PyTorch's (C,H,W) order, but activations are flattened as
      // (H,W,C).
      weight.layout = ParamLayout::linear_hwc;
      weight.hwc = in[0].shape;
    }
    weight.fan_in = features;
    weight.fan_out = out;
    return options_.params(std::move(weight), out);
  }

  double forward_flops(std::span<const ActivationShape> in, const ActivationShape&) const override {
    return 2.0 * static_cast<double>(in[0].elements()) * static_cast<double>(options_.out_features);
  }

  std::unique_ptr<Layer> fuse(const Layer& next) const override {
    if (relu_ || !dynamic_cast<const ReLU*>(&next)) return nullptr;
    return std::make_unique<Linear>(options_, true);
  }

  std::unique_ptr<Layer> fold(const RunningNorm& norm) const override {
    if (relu_) return nullptr;
    Options options = options_;
    options.bias = true;
    return std::make_unique<Linear>(options, norm.relu);
  }

  OpDesc describe(const LayerContext& context) const override {
    LinearDesc desc;
    desc.in = features_of(context.in[0]);
    desc.batch = context.batch * (context.in[0].elements() / desc.in);
    desc.out = options_.out_features;
    desc.bias = options_.bias;
    desc.relu = relu_;
    desc.type = context.type;
    desc.tf32 = context.tf32;
    desc.training = context.training;
    desc.input_gradient = context.input_gradient;
    return desc;
  }

  std::string write_ops(OpWriter& writer, const OpContext& context) const override {
    const std::string weight = writer.param("weight");
    std::vector<std::string> inputs{context.in[0], weight};
    // A Linear per pixel is a convolution with a 1x1 kernel.
    if (options_.per_pixel) inputs[1] = writer.op("Unsqueeze", {weight, writer.integers({2, 3})});
    if (options_.bias) inputs.push_back(writer.param("bias"));
    if (options_.per_pixel) return writer.op("Conv", inputs);
    return writer.op("Gemm", inputs, {{"transB", std::int64_t{1}}});
  }

  std::string detail() const override {
    std::string text = options_.per_pixel ? "per pixel" : "";
    if (!options_.bias) text += text.empty() ? "no bias" : ", no bias";
    return text;
  }

 private:
  /// Returns the number of features in a row of the matrix product.
  std::int64_t features_of(const ActivationShape& in) const {
    return options_.per_pixel ? in.shape.c : in.elements();
  }

  Options options_;
  bool relu_ = false;
};

LayerKind linear_layer() {
  using O = LinearOptions;
  static const ObjectTable table = with_init_fields<O>(
      object_table<O>("Linear", "Fully connected layer, y = x W^T + b.",
                      {field("out_features", &O::out_features, "Number of output features.")
                           .required()
                           .range(1, 1 << 24),
                       field("per_pixel", &O::per_pixel,
                             "Apply the layer to the channels of each pixel of an image, like "
                             "torch.nn.Linear after Permute [0, 2, 3, 1].")},
                      [](const O& options) { return check_init(options); }));
  return layer_kind<Linear>(table);
}

}  // namespace dpt
