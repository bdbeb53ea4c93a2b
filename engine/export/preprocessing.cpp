// The formulas are those of torchvision, transforms/v2/functional/_geometry.py. The operations are
// described at https://onnx.ai/onnx/operators.
#include "engine/export/preprocessing.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "engine/export/resize_ops.h"
#include "kernels/base/error.h"

namespace dpt {
namespace {

using Json = nlohmann::ordered_json;

/// Height or width: a number if it is known, otherwise an int64 value of shape (1) in the graph.
struct Extent {
  std::optional<std::int64_t> known;
  std::string value;
};

class PreprocessingWriter {
 public:
  PreprocessingWriter(OpWriter& writer, std::string pixels)
      : writer_(writer), pixels_(std::move(pixels)) {
    const std::string shape = writer_.op("Shape", {pixels_});
    height_ = {{}, writer_.op("Slice", {shape, writer_.integers({2}), writer_.integers({3})})};
    width_ = {{}, writer_.op("Slice", {shape, writer_.integers({3}), writer_.integers({4})})};
  }

  void add(const Json& transform) {
    const std::string type = transform.at("type");
    if (type == "Resize") return resize(transform);
    if (type == "CenterCrop") return center_crop(size_of(transform.at("size")));
    if (type == "Pad") return pad(transform);
    if (type == "Letterbox") return letterbox(transform);
    fail(ErrorKind::usage,
         "--include-preprocessing: data.transforms.eval has {}, which an ONNX model cannot "
         "express: export without it, and apply it before the model",
         type);
  }

  const std::string& pixels() const { return pixels_; }

 private:
  /// Returns `[height, width]` for a size such as 224 or [200, 300].
  static std::pair<std::int64_t, std::int64_t> size_of(const Json& size) {
    if (!size.is_array()) return {size, size};
    return {size.at(0), size.at(size.size() - 1)};
  }

  Extent constant(std::int64_t value) { return {value, {}}; }

  std::string value_of(const Extent& extent) {
    return extent.known ? writer_.integers({*extent.known}) : extent.value;
  }

  /// Adds a list of integers to the graph as one int64 value.
  std::string list_of_extents(const std::vector<Extent>& extents) {
    std::vector<std::int64_t> numbers;
    std::vector<std::string> values;
    for (const Extent& each : extents) {
      if (each.known) numbers.push_back(*each.known);
    }
    if (numbers.size() == extents.size()) return writer_.integers(numbers);
    for (const Extent& each : extents) values.push_back(value_of(each));
    return writer_.op("Concat", values, {{"axis", std::int64_t{0}}});
  }

  /// Computes the result of an operation on integers if both operands are known. Otherwise adds the
  /// operation to the graph.
  template <class Known>
  Extent op(const char* type, const Extent& a, const Extent& b, Known known) {
    if (a.known && b.known) return constant(known(*a.known, *b.known));
    return {{}, writer_.op(type, {value_of(a), value_of(b)})};
  }
  Extent add(const Extent& a, const Extent& b) {
    return op("Add", a, b, [](std::int64_t x, std::int64_t y) { return x + y; });
  }
  Extent subtract(const Extent& a, const Extent& b) {
    return op("Sub", a, b, [](std::int64_t x, std::int64_t y) { return x - y; });
  }
  Extent multiply(const Extent& a, const Extent& b) {
    return op("Mul", a, b, [](std::int64_t x, std::int64_t y) { return x * y; });
  }
  /// Divides and rounds down. REQUIRES: `a` is not negative.
  Extent divide(const Extent& a, const Extent& b) {
    return op("Div", a, b, [](std::int64_t x, std::int64_t y) { return x / y; });
  }
  Extent remainder(const Extent& a, const Extent& b) {
    return op("Mod", a, b, [](std::int64_t x, std::int64_t y) { return x % y; });
  }
  Extent least(const Extent& a, const Extent& b) {
    return op("Min", a, b, [](std::int64_t x, std::int64_t y) { return std::min(x, y); });
  }
  Extent greatest(const Extent& a, const Extent& b) {
    return op("Max", a, b, [](std::int64_t x, std::int64_t y) { return std::max(x, y); });
  }

  void resize(const Json& transform) {
    const Json& size = transform.at("size");
    const std::string interpolation = transform.value("interpolation", "bilinear");
    if (size.is_array() && size.size() == 2) {
      return resize_to(constant(size.at(0)), constant(size.at(1)), interpolation);
    }
    // The shorter side becomes `side`; the longer one keeps the ratio and is truncated to an
    // integer.
    const Extent side = constant(size.is_array() ? size.at(0) : size);
    const Extent shorter = least(height_, width_);
    resize_to(divide(multiply(side, height_), shorter), divide(multiply(side, width_), shorter),
              interpolation);
  }

  void resize_to(const Extent& height, const Extent& width, const std::string& interpolation) {
    pixels_ = write_resize(writer_, pixels_, {value_of(height_), value_of(width_)},
                           {value_of(height), value_of(width)}, interpolation);
    height_ = height;
    width_ = width;
  }

  /// Returns the start of a crop: Python's round((size - crop) / 2), which rounds halves to even
  /// numbers. Both 3 / 2 and 5 / 2 become 2.
  Extent crop_start(const Extent& size, const Extent& crop) {
    const Extent over = subtract(size, crop), half = divide(over, constant(2));
    return add(half, multiply(remainder(over, constant(2)), remainder(half, constant(2))));
  }

  void center_crop(std::pair<std::int64_t, std::int64_t> size) {
    const Extent height = constant(size.first), width = constant(size.second);
    if (height_.known == height.known && width_.known == width.known) return;
    // A smaller image is padded first. If the padding is odd, the extra row or column is at the
    // bottom or right.
    const Extent more_h = greatest(subtract(height, height_), constant(0));
    const Extent more_w = greatest(subtract(width, width_), constant(0));
    const Extent top = divide(more_h, constant(2)), left = divide(more_w, constant(2));
    if (more_h.known != 0 || more_w.known != 0) {
      pad_sides(top, left, subtract(more_h, top), subtract(more_w, left), "constant", 0.0F);
    }
    const Extent y = crop_start(height_, height), x = crop_start(width_, width);
    const std::string starts = list_of_extents({y, x});
    const std::string ends = list_of_extents({add(y, height), add(x, width)});
    pixels_ = writer_.op("Slice", {pixels_, starts, ends, writer_.integers({2, 3})});
    height_ = height;
    width_ = width;
  }

  void pad(const Json& transform) {
    const std::string mode = transform.value("padding_mode", "constant");
    if (mode == "symmetric") {
      fail(ErrorKind::usage,
           "--include-preprocessing: data.transforms.eval has Pad with padding_mode: symmetric, "
           "which an ONNX model cannot express: export without it, and apply it before the model");
    }
    std::vector<std::int64_t> sides = list_of<std::int64_t>(transform.at("padding"));
    if (sides.size() == 1) sides.assign(4, sides[0]);
    if (sides.size() == 2) sides = {sides[0], sides[1], sides[0], sides[1]};
    const Extent left = constant(sides[0]), top = constant(sides[1]);
    const Extent right = constant(sides[2]), bottom = constant(sides[3]);
    if (mode == "constant") return pad_filled(transform, top, left, bottom, right);
    pad_sides(top, left, bottom, right, mode, 0.0F);
  }

  /// Resizes the image to fit, with sizes computed in double, and pads it on both sides.
  void letterbox(const Json& transform) {
    const auto [height, width] = size_of(transform.at("size"));
    const auto real = [&](const Extent& extent) {
      return writer_.op("Cast", {value_of(extent)}, {{"to", kOpDouble}});
    };
    const std::string h = real(height_), w = real(width_);
    const std::string scale = writer_.op("Min", {writer_.op("Div", {real(constant(height)), h}),
                                                 writer_.op("Div", {real(constant(width)), w})});
    // The operation Round rounds halves to even numbers, as Python does.
    const auto scaled = [&](const std::string& side) {
      const std::string size = writer_.op("Round", {writer_.op("Mul", {side, scale})});
      return greatest({{}, writer_.op("Cast", {size}, {{"to", kOpInt64}})}, constant(1));
    };
    resize_to(scaled(h), scaled(w), "bilinear");
    const Extent more_h = subtract(constant(height), height_);
    const Extent more_w = subtract(constant(width), width_);
    const Extent top = divide(more_h, constant(2)), left = divide(more_w, constant(2));
    pad_filled(transform, top, left, subtract(more_h, top), subtract(more_w, left));
    height_ = constant(height);
    width_ = constant(width);
  }

  /// Pads with `fill`: one value for all channels, or one per channel.
  void pad_filled(const Json& transform, const Extent& top, const Extent& left,
                  const Extent& bottom, const Extent& right) {
    const std::vector<float> fill = list_of<float>(transform.at("fill"));
    if (fill.size() == 1) return pad_sides(top, left, bottom, right, "constant", fill[0]);
    // Subtract the fill values first, so that all channels are padded with 0.
    const std::string fills = writer_.floats({static_cast<std::int64_t>(fill.size()), 1, 1}, fill);
    pixels_ = writer_.op("Sub", {pixels_, fills});
    pad_sides(top, left, bottom, right, "constant", 0.0F);
    pixels_ = writer_.op("Add", {pixels_, fills});
  }

  void pad_sides(const Extent& top, const Extent& left, const Extent& bottom, const Extent& right,
                 const std::string& mode, float fill) {
    const Extent none = constant(0);
    const std::string pads = list_of_extents({none, none, top, left, none, none, bottom, right});
    std::vector<std::string> inputs{pixels_, pads};
    if (mode == "constant") inputs.push_back(writer_.scalar(fill));
    pixels_ = writer_.op("Pad", inputs, {{"mode", mode}});
    height_ = add(add(height_, top), bottom);
    width_ = add(add(width_, left), right);
  }

  template <class T>
  static std::vector<T> list_of(const Json& value) {
    if (value.is_array()) return value.get<std::vector<T>>();
    return {value.get<T>()};
  }

  OpWriter& writer_;
  std::string pixels_;
  Extent height_, width_;
};

}  // namespace

std::string write_preprocessing(OpWriter& writer, const std::string& pixels,
                                const Json& transforms) {
  PreprocessingWriter preprocessing(writer, pixels);
  for (const Json& transform : transforms) {
    if (transform.at("type") != "Normalize") preprocessing.add(transform);
  }
  return preprocessing.pixels();
}

}  // namespace dpt
