// Shapes and kernels of the pooling layers, with PyTorch's conventions
// (torch/aten: pooling_output_shape).
#include "engine/layers/pool2d.h"

#include <algorithm>

#include "engine/layers/activation_shape.h"
#include "engine/layers/op_writer.h"
#include "engine/layers/shape_checks.h"
#include "kernels/base/divide.h"

namespace dpt {
namespace {

/// Returns the number of windows along one axis. With ceil_mode, the last window may extend past
/// the end, but must begin inside the image or the padding before it.
std::int64_t windows(std::int64_t size, std::int64_t kernel, std::int64_t stride,
                     std::int64_t padding, std::int64_t dilation, bool ceil_mode) {
  const std::int64_t room = size + 2 * padding - extent(kernel, dilation);
  std::int64_t count = (room + (ceil_mode ? stride - 1 : 0)) / stride + 1;
  if (ceil_mode && (count - 1) * stride >= size + padding) --count;
  return count;
}

/// Returns true if every window has at least one tap on the image. Only a dilated kernel can miss
/// the image.
bool sees_image(std::int64_t size, std::int64_t count, std::int64_t kernel, std::int64_t stride,
                std::int64_t padding, std::int64_t dilation) {
  for (std::int64_t window = 0; window < count; ++window) {
    bool seen = false;
    for (std::int64_t tap = 0; tap < kernel && !seen; ++tap) {
      const std::int64_t at = window * stride - padding + tap * dilation;
      seen = at >= 0 && at < size;
    }
    if (!seen) return false;
  }
  return true;
}

/// Returns the distance by which a row of windows extends past the end of the image: the padding
/// there, or the overhang of the last window with ceil_mode.
std::int64_t end_padding(std::int64_t size, std::int64_t count, std::int64_t kernel,
                         std::int64_t stride, std::int64_t padding, std::int64_t dilation) {
  return std::max(padding, (count - 1) * stride + extent(kernel, dilation) - size - padding);
}

/// Writes a matrix that averages one axis over the windows of AdaptiveAvgPool2d. Its shape is (out,
/// in), or (in, out) if it is multiplied `from_right`.
std::string means(OpWriter& writer, std::int64_t in, std::int64_t out, bool from_right) {
  std::vector<float> matrix(static_cast<std::size_t>(in * out));
  for (std::int64_t o = 0; o < out; ++o) {
    const std::int64_t begin = o * in / out, end = ceil_div((o + 1) * in, out);
    for (std::int64_t i = begin; i < end; ++i) {
      matrix[from_right ? i * out + o : o * in + i] = 1.0F / static_cast<float>(end - begin);
    }
  }
  return writer.floats(from_right ? std::vector{in, out} : std::vector{out, in}, std::move(matrix));
}

}  // namespace

ActivationShape Pool2d::infer(std::span<const ActivationShape> in) const {
  require_image(in[0]);
  const PoolGeometry& g = geometry_;
  const SampleShape& x = in[0].shape;
  if (g.whole_image) return {{1, 1, x.c}, false};
  if (g.output_size) return {{g.output_size->h, g.output_size->w, x.c}, false};
  if (2 * g.padding.h > g.kernel.h || 2 * g.padding.w > g.kernel.w) {
    fail(ErrorKind::usage,
         "padding {} is more than half of kernel_size {}: windows at the border would contain only "
         "padding; use a padding of at most {}",
         text_of(g.padding), text_of(g.kernel), text_of({g.kernel.h / 2, g.kernel.w / 2}));
  }
  require_fit(in[0], g.kernel, g.padding, g.dilation);
  const ActivationShape out{
      {windows(x.h, g.kernel.h, g.stride.h, g.padding.h, g.dilation.h, g.ceil_mode),
       windows(x.w, g.kernel.w, g.stride.w, g.padding.w, g.dilation.w, g.ceil_mode), x.c},
      false};
  if (!sees_image(x.h, out.shape.h, g.kernel.h, g.stride.h, g.padding.h, g.dilation.h) ||
      !sees_image(x.w, out.shape.w, g.kernel.w, g.stride.w, g.padding.w, g.dilation.w)) {
    throw ShapeError(
        fmt::format("a window of kernel_size {} with dilation {} and padding {} covers no pixel of "
                    "its input of {} (C x H x W); use less dilation or padding",
                    text_of(g.kernel), text_of(g.dilation), text_of(g.padding), in[0].text()),
        out);
  }
  return out;
}

Pool2dDesc Pool2d::pool_desc(const LayerContext& context, const ActivationShape& in) const {
  Pool2dDesc desc;
  desc.kind = geometry_.kind;
  desc.kernel = geometry_.kernel;
  desc.stride = geometry_.stride;
  desc.padding = geometry_.padding;
  desc.dilation = geometry_.dilation;
  if (geometry_.whole_image) desc.kernel = desc.stride = {in.shape.h, in.shape.w};
  if (geometry_.output_size) {
    const Size2& out = *geometry_.output_size;
    desc.kernel = desc.stride = {ceil_div(in.shape.h, out.h), ceil_div(in.shape.w, out.w)};
    desc.adaptive = in.shape.h % out.h != 0 || in.shape.w % out.w != 0;
  }
  desc.count_include_pad = geometry_.count_include_pad;
  desc.divisor_override = geometry_.divisor_override;
  desc.type = context.type;
  desc.batch = context.batch;
  desc.in = in.shape;
  desc.out = context.out.shape;
  desc.training = context.training;
  desc.input_gradient = context.input_gradient;
  return desc;
}

OpDesc Pool2d::describe(const LayerContext& context) const {
  return pool_desc(context, context.in[0]);
}

// Writes explicit padding instead of ceil_mode, because runtimes disagree about the divisor of
// windows that extend past the end. All sizes are known, so the effect is the same.
std::string Pool2d::write_ops(OpWriter& writer, const OpContext& context) const {
  const PoolGeometry& g = geometry_;
  const std::string& x = context.in[0];
  const SampleShape &in = context.shapes[0].shape, &out = context.out.shape;
  const bool is_max = g.kind == PoolKind::max;
  if (g.whole_image) return writer.op(is_max ? "GlobalMaxPool" : "GlobalAveragePool", {x});
  if (g.output_size && (in.h % out.h != 0 || in.w % out.w != 0)) {
    // ONNX has no pooling with windows of unequal sizes, so write two matrix products.
    const std::string columns = writer.op("MatMul", {x, means(writer, in.w, out.w, true)});
    return writer.op("MatMul", {means(writer, in.h, out.h, false), columns});
  }
  Size2 kernel = g.kernel, stride = g.stride;
  if (g.output_size) kernel = stride = {in.h / out.h, in.w / out.w};
  const Size2 end{end_padding(in.h, out.h, kernel.h, stride.h, g.padding.h, g.dilation.h),
                  end_padding(in.w, out.w, kernel.w, stride.w, g.padding.w, g.dilation.w)};
  using Sizes = std::vector<std::int64_t>;
  std::vector<OpAttribute> attributes{{"kernel_shape", Sizes{kernel.h, kernel.w}},
                                      {"strides", Sizes{stride.h, stride.w}}};
  const auto pads = [](const Size2& before, const Size2& after) {
    return OpAttribute{"pads", Sizes{before.h, before.w, after.h, after.w}};
  };
  if (is_max) {
    attributes.push_back({"dilations", Sizes{g.dilation.h, g.dilation.w}});
    attributes.push_back(pads(g.padding, end));
    return writer.op("MaxPool", {x}, attributes);
  }
  if (g.divisor_override > 0) {
    // Count the padding, so that every divisor is the window size, and correct the result by a
    // factor.
    attributes.push_back(pads(g.padding, end));
    attributes.push_back({"count_include_pad", std::int64_t{1}});
    const auto factor =
        static_cast<float>(kernel.h * kernel.w) / static_cast<float>(g.divisor_override);
    return writer.op("Mul", {writer.op("AveragePool", {x}, attributes), writer.scalar(factor)});
  }
  if (!g.count_include_pad || end == g.padding) {
    attributes.push_back(pads(g.padding, end));
    attributes.push_back({"count_include_pad", std::int64_t{g.count_include_pad ? 1 : 0}});
    return writer.op("AveragePool", {x}, attributes);
  }
  // The padding counts, but the overhang of the last window does not. So pad the image first.
  const Size2& p = g.padding;
  const std::string padded =
      writer.op("Pad", {x, writer.integers({0, 0, p.h, p.w, 0, 0, p.h, p.w})});
  attributes.push_back(pads({0, 0}, {end.h - p.h, end.w - p.w}));
  return writer.op("AveragePool", {padded}, attributes);
}

std::string Pool2d::detail() const {
  const PoolGeometry& g = geometry_;
  if (g.whole_image) return "whole image";
  if (g.output_size) return "to " + text_of(*g.output_size);
  std::string text = fmt::format("{}, stride {}", text_of(g.kernel), short_text_of(g.stride));
  if (g.padding != Size2{0, 0}) text += fmt::format(", padding {}", short_text_of(g.padding));
  if (g.dilation != Size2{1, 1}) text += fmt::format(", dilation {}", short_text_of(g.dilation));
  if (g.ceil_mode) text += ", ceil";
  return text;
}

}  // namespace dpt
