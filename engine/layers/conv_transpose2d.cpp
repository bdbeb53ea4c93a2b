// ConvTranspose2d, like torch.nn.ConvTranspose2d: x (N,H,W,C), w (C,R,S,K/groups), y (N,P,Q,K).
#include <utility>

#include "engine/layers/activation_shape.h"
#include "engine/layers/init_options.h"
#include "engine/layers/kinds.h"
#include "engine/layers/op_writer.h"
#include "engine/layers/param_spec.h"
#include "engine/layers/shape_checks.h"

namespace dpt {

struct ConvTranspose2dOptions : InitOptions {
  std::int64_t out_channels = 0;
  Size2 kernel_size{1, 1};
  Size2 stride{1, 1}, padding{0, 0}, output_padding{0, 0}, dilation{1, 1};
  std::int64_t groups = 1;
};

class ConvTranspose2d final : public Layer {
 public:
  using Options = ConvTranspose2dOptions;

  explicit ConvTranspose2d(const Options& options) : options_(options) {}

  ActivationShape infer(std::span<const ActivationShape> in) const override {
    require_image(in[0]);
    const Options& o = options_;
    const SampleShape& x = in[0].shape;
    const Size2 covered{(x.h - 1) * o.stride.h + extent(o.kernel_size.h, o.dilation.h),
                        (x.w - 1) * o.stride.w + extent(o.kernel_size.w, o.dilation.w)};
    const ActivationShape out{{covered.h - 2 * o.padding.h + o.output_padding.h,
                               covered.w - 2 * o.padding.w + o.output_padding.w, o.out_channels},
                              false};
    if (out.shape.h < 1 || out.shape.w < 1) {
      fail(ErrorKind::usage,
           "padding {} leaves no output: the windows cover {} pixels for an input of {} (C x H x "
           "W), of which the padding removes {}; make the padding smaller",
           text_of(o.padding), text_of(covered), in[0].text(),
           text_of({2 * o.padding.h, 2 * o.padding.w}));
    }
    if (x.c % o.groups != 0 || o.out_channels % o.groups != 0) {
      throw ShapeError(fmt::format("groups {} must divide both the channels of its input, {}, and "
                                   "out_channels, {}",
                                   o.groups, x.c, o.out_channels),
                       out);
    }
    return out;
  }

  std::vector<ParamSpec> params(std::span<const ActivationShape> in) const override {
    const Options& o = options_;
    const std::int64_t window = o.kernel_size.h * o.kernel_size.w;
    ParamSpec weight;
    weight.file_shape = {in[0].shape.c, o.out_channels / o.groups, o.kernel_size.h,
                         o.kernel_size.w};
    weight.layout = ParamLayout::ohwi;
    // torch.nn.init computes fan_in from the second dimension, which here is the number of outputs.
    weight.fan_in = o.out_channels / o.groups * window;
    weight.fan_out = in[0].shape.c * window;
    return o.params(std::move(weight), o.out_channels);
  }

  double forward_flops(std::span<const ActivationShape> in, const ActivationShape&) const override {
    const Options& o = options_;
    const std::int64_t channels_of_a_group = o.out_channels / o.groups;
    return 2.0 * static_cast<double>(in[0].elements()) *
           static_cast<double>(o.kernel_size.h * o.kernel_size.w * channels_of_a_group);
  }

  OpDesc describe(const LayerContext& context) const override {
    const Options& o = options_;
    ConvTranspose2dDesc desc;
    desc.batch = context.batch;
    desc.in = context.in[0].shape;
    desc.out = context.out.shape;
    desc.kernel = o.kernel_size;
    desc.stride = o.stride;
    desc.padding = o.padding;
    desc.dilation = o.dilation;
    desc.groups = o.groups;
    desc.bias = o.bias;
    desc.type = context.type;
    desc.tf32 = context.tf32;
    desc.training = context.training;
    desc.input_gradient = context.input_gradient;
    return desc;
  }

  std::string write_ops(OpWriter& writer, const OpContext& context) const override {
    const Options& o = options_;
    std::vector<std::string> inputs{context.in[0], writer.param("weight")};
    if (o.bias) inputs.push_back(writer.param("bias"));
    using Sizes = std::vector<std::int64_t>;
    return writer.op("ConvTranspose", inputs,
                     {{"kernel_shape", Sizes{o.kernel_size.h, o.kernel_size.w}},
                      {"strides", Sizes{o.stride.h, o.stride.w}},
                      {"pads", Sizes{o.padding.h, o.padding.w, o.padding.h, o.padding.w}},
                      {"output_padding", Sizes{o.output_padding.h, o.output_padding.w}},
                      {"dilations", Sizes{o.dilation.h, o.dilation.w}},
                      {"group", o.groups}});
  }

  std::string detail() const override {
    const Options& o = options_;
    std::string text =
        fmt::format("{}, stride {}", text_of(o.kernel_size), short_text_of(o.stride));
    const auto add = [&](const char* what, const Size2& size, std::int64_t usual) {
      if (size != Size2{usual, usual}) text += fmt::format(", {} {}", what, short_text_of(size));
    };
    add("padding", o.padding, 0);
    add("output padding", o.output_padding, 0);
    add("dilation", o.dilation, 1);
    if (o.groups != 1) text += fmt::format(", groups {}", o.groups);
    if (!o.bias) text += ", no bias";
    return text;
  }

 private:
  Options options_;
};

LayerKind conv_transpose2d_layer() {
  using O = ConvTranspose2dOptions;
  static const ObjectTable table = with_init_fields<O>(object_table<O>(
      "ConvTranspose2d",
      "Transposed 2-D convolution, also called deconvolution: each pixel of the input adds to a "
      "window of the output, so a stride above 1 enlarges the image.",
      {field("out_channels", &O::out_channels, "Number of output channels.")
           .required()
           .range(1, 65536),
       field("kernel_size", &O::kernel_size, "Height and width of the kernel.")
           .required()
           .range(1, 1024),
       field("stride", &O::stride, "Distance between neighbouring windows.").range(1, 1024),
       field("padding", &O::padding, "Number of pixels removed from each side of the output.")
           .range(0, 1024),
       field("output_padding", &O::output_padding,
             "Pixels added to the end of the output's height and width; smaller than the stride.")
           .range(0, 1023),
       field("dilation", &O::dilation, "Spacing between the elements of the kernel.")
           .range(1, 1024),
       field("groups", &O::groups,
             "Number of groups of channels that are convolved separately; must divide the numbers "
             "of input and output channels.")
           .range(1, 65536)},
      [](const O& o) {
        // PyTorch also accepts an output_padding of the stride or more, if it is smaller than the
        // dilation. The libraries that compute the layer do not.
        if (o.output_padding.h >= o.stride.h || o.output_padding.w >= o.stride.w) {
          return fmt::format(
              "output_padding {} must be smaller than the stride, {}: it chooses among the sizes "
              "that a convolution with that stride maps to the same size",
              short_text_of(o.output_padding), short_text_of(o.stride));
        }
        return check_init(o);
      }));
  return layer_kind<ConvTranspose2d>(table);
}

}  // namespace dpt
