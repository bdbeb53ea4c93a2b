// Conv2d, like torch.nn.Conv2d: x (N,H,W,C), w (K,R,S,C/groups), y (N,P,Q,K); zeros as padding. A
// ReLU and then a pooling can be fused after it.
#include <optional>
#include <utility>

#include "engine/layers/activation_shape.h"
#include "engine/layers/init_options.h"
#include "engine/layers/kinds.h"
#include "engine/layers/op_writer.h"
#include "engine/layers/param_spec.h"
#include "engine/layers/pool2d.h"
#include "engine/layers/relu.h"
#include "engine/layers/shape_checks.h"

namespace dpt {

struct Conv2dOptions : InitOptions {
  std::int64_t out_channels = 0;
  Size2 kernel_size{1, 1};
  Size2 stride{1, 1}, padding{0, 0}, dilation{1, 1};  ///< padding below 0: "same"
  std::int64_t groups = 1;
};

class Conv2d final : public Layer {
 public:
  using Options = Conv2dOptions;

  explicit Conv2d(const Options& options, bool relu = false,
                  std::optional<Pool2d> pool = std::nullopt)
      : options_(options), relu_(relu), pool_(std::move(pool)) {}

  ActivationShape infer(std::span<const ActivationShape> in) const override {
    const ActivationShape out = convolved(in[0]);
    return pool_ ? pool_->infer({&out, 1}) : out;
  }

  std::vector<ParamSpec> params(std::span<const ActivationShape> in) const override {
    const Options& o = options_;
    const std::int64_t window = o.kernel_size.h * o.kernel_size.w;
    ParamSpec weight;
    weight.file_shape = {o.out_channels, in[0].shape.c / o.groups, o.kernel_size.h,
                         o.kernel_size.w};
    weight.layout = ParamLayout::ohwi;
    weight.fan_in = in[0].shape.c / o.groups * window;
    weight.fan_out = o.out_channels * window;
    return o.params(std::move(weight), o.out_channels);
  }

  double forward_flops(std::span<const ActivationShape> in, const ActivationShape&) const override {
    const Options& o = options_;
    const auto window = static_cast<double>(o.kernel_size.h * o.kernel_size.w);
    const std::int64_t channels_of_a_group = in[0].shape.c / o.groups;
    return 2.0 * static_cast<double>(convolved(in[0]).elements()) * window *
           static_cast<double>(channels_of_a_group);
  }

  std::unique_ptr<Layer> fuse(const Layer& next) const override {
    if (pool_) return nullptr;
    if (!relu_ && dynamic_cast<const ReLU*>(&next)) return std::make_unique<Conv2d>(options_, true);
    // A pooling with a given output size may have unequal windows, which no fused kernel supports.
    const auto* pool = dynamic_cast<const Pool2d*>(&next);
    if (pool && !pool->geometry().output_size) {
      return std::make_unique<Conv2d>(options_, relu_, Pool2d(pool->geometry()));
    }
    return nullptr;
  }

  std::unique_ptr<Layer> fold(const RunningNorm& norm) const override {
    if (relu_ || pool_) return nullptr;
    Options options = options_;
    options.bias = true;
    return std::make_unique<Conv2d>(options, norm.relu);
  }

  OpDesc describe(const LayerContext& context) const override {
    const Options& o = options_;
    const ActivationShape conv_out = convolved(context.in[0]);
    Conv2dDesc desc;
    desc.batch = context.batch;
    desc.in = context.in[0].shape;
    desc.conv_out = conv_out.shape;
    desc.out = context.out.shape;
    desc.kernel = o.kernel_size;
    desc.stride = o.stride;
    desc.padding = padding();
    desc.dilation = o.dilation;
    desc.groups = o.groups;
    desc.bias = o.bias;
    desc.relu = relu_;
    if (pool_) {
      desc.pool = pool_->pool_desc(context, conv_out);
      // The fused pooling always passes its gradient on: the convolution needs it, if only for its
      // weights.
      desc.pool->input_gradient = context.training;
    }
    desc.type = context.type;
    desc.tf32 = context.tf32;
    desc.training = context.training;
    desc.input_gradient = context.input_gradient;
    return desc;
  }

  std::string write_ops(OpWriter& writer, const OpContext& context) const override {
    const Options& o = options_;
    const Size2 before = padding();
    Size2 after = before;
    if (is_same()) {
      after = {extent(o.kernel_size.h, o.dilation.h) - 1 - before.h,
               extent(o.kernel_size.w, o.dilation.w) - 1 - before.w};
    }
    std::vector<std::string> inputs{context.in[0], writer.param("weight")};
    if (o.bias) inputs.push_back(writer.param("bias"));
    using Sizes = std::vector<std::int64_t>;
    return writer.op("Conv", inputs,
                     {{"kernel_shape", Sizes{o.kernel_size.h, o.kernel_size.w}},
                      {"strides", Sizes{o.stride.h, o.stride.w}},
                      {"pads", Sizes{before.h, before.w, after.h, after.w}},
                      {"dilations", Sizes{o.dilation.h, o.dilation.w}},
                      {"group", o.groups}});
  }

  std::string detail() const override {
    const Options& o = options_;
    std::string text =
        fmt::format("{}, stride {}", text_of(o.kernel_size), short_text_of(o.stride));
    if (is_same()) {
      text += ", padding same";
    } else if (o.padding != Size2{0, 0}) {
      text += fmt::format(", padding {}", short_text_of(o.padding));
    }
    if (o.dilation != Size2{1, 1}) text += fmt::format(", dilation {}", short_text_of(o.dilation));
    if (o.groups != 1) text += fmt::format(", groups {}", o.groups);
    if (!o.bias) text += ", no bias";
    return text;
  }

 private:
  /// Returns the shape after the convolution, before any fused pooling.
  ActivationShape convolved(const ActivationShape& in) const {
    require_image(in);
    const Options& o = options_;
    if (is_same()) return with_channels({in.shape.h, in.shape.w, o.out_channels}, in);
    require_fit(in, o.kernel_size, o.padding, o.dilation);
    const auto positions = [](std::int64_t size, std::int64_t kernel, std::int64_t stride,
                              std::int64_t padding, std::int64_t dilation) {
      return (size + 2 * padding - extent(kernel, dilation)) / stride + 1;
    };
    return with_channels(
        {positions(in.shape.h, o.kernel_size.h, o.stride.h, o.padding.h, o.dilation.h),
         positions(in.shape.w, o.kernel_size.w, o.stride.w, o.padding.w, o.dilation.w),
         o.out_channels},
        in);
  }

  /// Returns `shape`. Throws unless the groups divide the channels.
  ActivationShape with_channels(const SampleShape& shape, const ActivationShape& in) const {
    const Options& o = options_;
    const ActivationShape out{shape, false};
    if (in.shape.c % o.groups != 0 || o.out_channels % o.groups != 0) {
      throw ShapeError(fmt::format("groups {} must divide both the channels of its input, {}, and "
                                   "out_channels, {}",
                                   o.groups, in.shape.c, o.out_channels),
                       out);
    }
    return out;
  }

  bool is_same() const { return options_.padding.h < 0; }
  /// Returns the padding before the image. If a kernel with padding "same" covers an even number of
  /// pixels, there is one more zero after the image, as in PyTorch. The output size implies that
  /// zero.
  Size2 padding() const {
    const Options& o = options_;
    if (!is_same()) return o.padding;
    return {(extent(o.kernel_size.h, o.dilation.h) - 1) / 2,
            (extent(o.kernel_size.w, o.dilation.w) - 1) / 2};
  }

  Options options_;
  bool relu_ = false;
  std::optional<Pool2d> pool_;
};

LayerKind conv2d_layer() {
  using O = Conv2dOptions;
  static const ObjectTable table = with_init_fields<O>(object_table<O>(
      "Conv2d", "2-D convolution over an image.",
      {field("out_channels", &O::out_channels, "Number of output channels.")
           .required()
           .range(1, 65536),
       field("kernel_size", &O::kernel_size, "Height and width of the kernel.")
           .required()
           .range(1, 1024),
       field("stride", &O::stride, "Stride of the convolution.").range(1, 1024),
       field("padding", &O::padding,
             "Zero padding on each side of the image; same: the padding that keeps the image's "
             "size (only with stride 1).")
           .range(0, 1024)
           .or_word("same"),
       field("dilation", &O::dilation, "Spacing between the elements of the kernel.")
           .range(1, 1024),
       field("groups", &O::groups,
             "Number of groups of channels that are convolved separately; must divide the numbers "
             "of input and output channels.")
           .range(1, 65536)},
      [](const O& options) {
        if (options.padding.h < 0 && options.stride != Size2{1, 1}) {
          return fmt::format(
              "padding: same needs stride 1, found stride {}, as in PyTorch; write the padding as "
              "a number",
              short_text_of(options.stride));
        }
        return check_init(options);
      }));
  return layer_kind<Conv2d>(table);
}

}  // namespace dpt
