// ZeroPad2d and Upsample as in torch.nn, and PadChannels. All three move values to other positions,
// with the same operation (PixelMapDesc).
#include "engine/layers/activation_shape.h"
#include "engine/layers/kinds.h"
#include "engine/layers/op_writer.h"
#include "engine/layers/shape_checks.h"

namespace dpt {

class PixelMap : public Layer {
 public:
  OpDesc describe(const LayerContext& context) const override {
    PixelMapDesc desc = map();
    desc.batch = context.batch;
    desc.in = context.in[0].shape;
    desc.out = context.out.shape;
    desc.type = context.type;
    return desc;
  }

 private:
  /// Returns a description with only the scale and the padding before the image set.
  virtual PixelMapDesc map() const = 0;
};

struct ZeroPad2dOptions {
  std::vector<std::int64_t> padding;
};

class ZeroPad2d final : public PixelMap {
 public:
  using Options = ZeroPad2dOptions;
  explicit ZeroPad2d(const Options& options)
      : left_(options.padding[0]),
        right_(options.padding[1]),
        top_(options.padding[2]),
        bottom_(options.padding[3]) {}

  ActivationShape infer(std::span<const ActivationShape> in) const override {
    require_image(in[0]);
    const SampleShape& s = in[0].shape;
    return {{s.h + top_ + bottom_, s.w + left_ + right_, s.c}, false};
  }
  std::string write_ops(OpWriter& writer, const OpContext& context) const override {
    return writer.op("Pad",
                     {context.in[0], writer.integers({0, 0, top_, left_, 0, 0, bottom_, right_})});
  }
  std::string detail() const override {
    return fmt::format("left {}, right {}, top {}, bottom {}", left_, right_, top_, bottom_);
  }

 private:
  PixelMapDesc map() const override {
    PixelMapDesc desc;
    desc.before = {top_, left_};
    return desc;
  }
  std::int64_t left_, right_, top_, bottom_;
};

enum class UpsampleMode : std::uint8_t { nearest };
constexpr auto enum_names(UpsampleMode) {
  return std::to_array<EnumName<UpsampleMode>>({{UpsampleMode::nearest, "nearest"}});
}

struct UpsampleOptions {
  Size2 scale_factor{1, 1};
  UpsampleMode mode = UpsampleMode::nearest;
};

class Upsample final : public PixelMap {
 public:
  using Options = UpsampleOptions;
  explicit Upsample(const Options& options) : scale_(options.scale_factor) {}

  ActivationShape infer(std::span<const ActivationShape> in) const override {
    require_image(in[0]);
    const SampleShape& s = in[0].shape;
    return {{s.h * scale_.h, s.w * scale_.w, s.c}, false};
  }
  std::string write_ops(OpWriter& writer, const OpContext& context) const override {
    const std::string scales = writer.floats(
        {4}, {1.0F, 1.0F, static_cast<float>(scale_.h), static_cast<float>(scale_.w)});
    return writer.op("Resize", {context.in[0], "", scales},
                     {{"mode", std::string("nearest")},
                      {"coordinate_transformation_mode", std::string("asymmetric")},
                      {"nearest_mode", std::string("floor")}});
  }
  std::string detail() const override {
    return fmt::format("nearest, scale_factor {}", short_text_of(scale_));
  }

 private:
  PixelMapDesc map() const override {
    PixelMapDesc desc;
    desc.scale = scale_;
    return desc;
  }
  Size2 scale_;
};

struct PadChannelsOptions {
  std::int64_t before = 0, after = 0;
};

class PadChannels final : public Layer {
 public:
  using Options = PadChannelsOptions;
  explicit PadChannels(const Options& options) : options_(options) {}

  ActivationShape infer(std::span<const ActivationShape> in) const override {
    require_image(in[0]);
    const SampleShape& s = in[0].shape;
    return {{s.h, s.w, s.c + options_.before + options_.after}, false};
  }
  /// Pads channels like the pixels of a row, because the channels of a pixel are contiguous.
  OpDesc describe(const LayerContext& context) const override {
    const SampleShape &in = context.in[0].shape, &out = context.out.shape;
    PixelMapDesc desc;
    desc.batch = context.batch;
    desc.in = {in.h * in.w, in.c, 1};
    desc.out = {out.h * out.w, out.c, 1};
    desc.before = {0, options_.before};
    desc.type = context.type;
    return desc;
  }
  std::string write_ops(OpWriter& writer, const OpContext& context) const override {
    return writer.op("Pad", {context.in[0],
                             writer.integers({0, options_.before, 0, 0, 0, options_.after, 0, 0})});
  }
  std::string detail() const override {
    return fmt::format("before {}, after {}", options_.before, options_.after);
  }

 private:
  Options options_;
};

LayerKind zero_pad2d_layer() {
  using O = ZeroPad2dOptions;
  static const ObjectTable table = object_table<O>(
      "ZeroPad2d", "Pads an image with zeros, like torch.nn.ZeroPad2d.",
      {field("padding", &O::padding, "Pixels on the sides: [left, right, top, bottom].")
           .required()
           .range(0, 1024)
           .items(4, 4)});
  return layer_kind<ZeroPad2d>(table);
}

LayerKind upsample_layer() {
  using O = UpsampleOptions;
  static const ObjectTable table = object_table<O>(
      "Upsample", "Enlarges an image by repeating each pixel, like torch.nn.Upsample.",
      {field("scale_factor", &O::scale_factor, "Number of repetitions along height and width.")
           .required()
           .range(1, 1024),
       field("mode", &O::mode, "Interpolation method.")});
  return layer_kind<Upsample>(table);
}

LayerKind pad_channels_layer() {
  using O = PadChannelsOptions;
  static const ObjectTable table = object_table<O>(
      "PadChannels",
      "Adds channels of zeros before and after the channels of an image, like "
      "torch.nn.functional.pad(x, (0, 0, 0, 0, before, after)). Used for shortcuts without "
      "parameters (option A of He et al. 2015).",
      {field("before", &O::before, "Number of channels of zeros before the input's channels.")
           .range(0, 65536),
       field("after", &O::after, "Number of channels of zeros after the input's channels.")
           .range(0, 65536)});
  return layer_kind<PadChannels>(table);
}

}  // namespace dpt
