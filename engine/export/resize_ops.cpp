// The formulas are those of Pillow, src/libImaging/Resample.c and Geometry.c (nearest). The
// operations are described at https://onnx.ai/onnx/operators.
//
// An output row is a weighted sum of a few neighbouring input rows. The output rows are divided
// into kBlocks blocks. Each block reads one range of input rows, gathered into a matrix, and
// multiplies it by the matrix of its weights. Ranges are short, so that little is multiplied by
// zero.
//
// Pillow's weights are integers of 22 bits. float32 adds up integers exactly only below 2^24. So a
// weight is split into two halves of 11 bits, which have sums of their own.
#include "engine/export/resize_ops.h"

#include <vector>

namespace dpt {
namespace {

/// Number of blocks of output rows. More blocks skip more zeros, but make small matrices. 16 to 64
/// take the same time in onnxruntime.
constexpr std::int64_t kBlocks = 32;

/// Factor of the upper half of a weight. A weight is upper * kHalf + lower.
constexpr double kHalf = 1 << 11;

/// Weights of one axis, as values of the graph.
struct AxisWeights {
  std::string inputs;   ///< int64 (kBlocks, range): input rows that a block reads
  std::string weights;  ///< float32 (kBlocks, 2 * rows, range): upper halves, then lower halves
  std::string rows;     ///< int64 (1): number of output rows of a block
  std::string out;      ///< int64 (1): total number of output rows, at most kBlocks * rows
};

class ResizeWriter {
 public:
  explicit ResizeWriter(OpWriter& writer) : writer_(writer) {}

  /// Computes weights that map `in` rows to `out` rows. Both are values of type int64 and shape
  /// (1).
  AxisWeights axis_weights(const std::string& in, const std::string& out, bool is_bicubic) {
    const std::string ins = real(scalar_of(in)), outs = real(scalar_of(out));
    const std::string scale = op("Div", ins, outs), stretch = op("Max", scale, number(1));
    const std::string support = op("Mul", stretch, number(is_bicubic ? 2 : 1));
    const std::string rows =
        op("Div", op("Add", out, integer(kBlocks - 1)), integer(kBlocks));  // rounded up

    // Input rows [begin, end) of each output row, (kBlocks, rows, 1). Any entries after the last
    // output row repeat that row.
    const std::string all = writer_.op(
        "Range", {number(0), real(scalar_of(op("Mul", rows, integer(kBlocks)))), number(1)});
    const std::string row = writer_.op("Reshape", {op("Min", all, op("Sub", outs, number(1))),
                                                   writer_.integers({kBlocks, -1, 1})});
    const std::string center = op("Mul", op("Add", row, number(0.5)), scale);
    const std::string begin = writer_.op(
        "Floor", {op("Max", op("Add", op("Sub", center, support), number(0.5)), number(0))});
    const std::string end =
        writer_.op("Floor", {op("Min", op("Add", op("Add", center, support), number(0.5)), ins)});

    // Input rows of each block, (kBlocks, 1, range). They begin at the first input row of the
    // block's first output row, or earlier if necessary so that they end within the image.
    const std::string first = writer_.op("ReduceMin", {begin}, {{"axes", ints({1})}});
    const std::string range =
        writer_.op("ReduceMax", {op("Sub", end, first)}, {{"keepdims", std::int64_t{0}}});
    const std::string input = op("Add", op("Min", first, op("Sub", ins, range)),
                                 writer_.op("Range", {number(0), range, number(1)}));

    const std::string distance =
        op("Mul", op("Add", op("Sub", input, center), number(0.5)), op("Div", number(1), stretch));
    const std::string is_read =
        writer_.op("And", {op("GreaterOrEqual", input, begin), op("Less", input, end)});
    const std::string raw =
        op("Mul", is_bicubic ? cubic(distance) : linear(distance), real(is_read));
    const std::string sum = writer_.op("ReduceSum", {raw, integer(2)});
    const std::string weight = op("Mul", op("Div", raw, sum), number(kHalf * kHalf));
    // Round halves away from 0.
    const std::string rounded =
        op("Mul", writer_.op("Sign", {weight}),
           writer_.op("Floor", {op("Add", writer_.op("Abs", {weight}), number(0.5))}));
    const std::string upper = writer_.op("Round", {op("Mul", rounded, number(1 / kHalf))});
    const std::string lower = op("Sub", rounded, op("Mul", upper, number(kHalf)));
    return {writer_.op("Squeeze", {writer_.op("Cast", {input}, {{"to", kOpInt64}}), integer(1)}),
            writer_.op("Cast", {writer_.op("Concat", {upper, lower}, {{"axis", std::int64_t{1}}})},
                       {{"to", kOpFloat}}),
            rows, out};
  }

  std::string weigh_rows(const std::string& pixels, const AxisWeights& axis) {
    // Shapes: (N, channels, kBlocks, range, width), then (N, channels, kBlocks, 2 * rows, width).
    const std::string inputs =
        writer_.op("Gather", {pixels, axis.inputs}, {{"axis", std::int64_t{2}}});
    const std::string sums = op("MatMul", axis.weights, inputs);
    const std::string twice = op("Mul", axis.rows, integer(2));
    const std::string upper = real(writer_.op("Slice", {sums, integer(0), axis.rows, integer(3)}));
    const std::string lower = real(writer_.op("Slice", {sums, axis.rows, twice, integer(3)}));
    const std::string sum = op("Add", op("Mul", upper, number(kHalf)), lower);
    const std::string rounded = writer_.op(
        "Floor", {op("Mul", op("Add", sum, number(kHalf * kHalf / 2)), number(1 / kHalf / kHalf))});
    const std::string clipped = writer_.op("Clip", {rounded, number(0), number(255)});
    const std::string shape = writer_.op(
        "Concat", {writer_.integers({0, 0}), op("Mul", axis.rows, integer(kBlocks)), integer(-1)},
        {{"axis", std::int64_t{0}}});
    const std::string joined =
        writer_.op("Reshape", {writer_.op("Cast", {clipped}, {{"to", kOpFloat}}), shape});
    return writer_.op("Slice", {joined, integer(0), axis.out, integer(2)});
  }

  std::string weigh_columns(const std::string& pixels, const AxisWeights& axis) {
    return transposed(weigh_rows(transposed(pixels), axis));
  }

  /// Returns for each of `out` output rows (axis 2) or columns (axis 3) the nearest of `in` input
  /// ones.
  std::string take_nearest(const std::string& pixels, const std::string& in, const std::string& out,
                           std::int64_t axis) {
    const std::string scale = op("Div", real(in), real(out));
    const std::string others = writer_.op("Expand", {scale, op("Sub", out, integer(1))});
    const std::string steps =
        writer_.op("Concat", {op("Mul", scale, number(0.5)), others}, {{"axis", std::int64_t{0}}});
    // Add up positions step by step, to round them as Pillow does (ImagingScaleAffine).
    const std::string place =
        writer_.op("Cast", {op("CumSum", steps, writer_.integers({0}))}, {{"to", kOpInt64}});
    return writer_.op("Gather", {pixels, op("Min", place, op("Sub", in, integer(1)))},
                      {{"axis", axis}});
  }

  /// Writes the condition under which Pillow resizes the height before the width. That order then
  /// leaves less work for the second pass.
  std::string is_height_first(const GraphSize& from, const GraphSize& to) {
    const std::string fewer_rows = op("Sub", from.height, to.height);
    const std::string fewer_columns = op("Sub", from.width, to.width);
    return scalar_of(
        op("Greater", fewer_rows, op("Max", op("Mul", fewer_columns, integer(2)), integer(0))));
  }

 private:
  static std::vector<std::int64_t> ints(std::vector<std::int64_t> values) { return values; }
  std::string op(const char* type, const std::string& a, const std::string& b) {
    return writer_.op(type, {a, b});
  }
  std::string number(double value) { return writer_.doubles({}, {value}); }
  std::string integer(std::int64_t value) { return writer_.integers({value}); }
  std::string real(const std::string& value) {
    return writer_.op("Cast", {value}, {{"to", kOpDouble}});
  }
  std::string scalar_of(const std::string& value) { return writer_.op("Squeeze", {value}); }
  std::string transposed(const std::string& pixels) {
    return writer_.op("Transpose", {pixels}, {{"perm", ints({0, 1, 3, 2})}});
  }

  /// Writes max(0, 1 - |x|).
  std::string linear(const std::string& x) {
    return op("Max", op("Sub", number(1), writer_.op("Abs", {x})), number(0));
  }

  /// Writes Pillow's bicubic_filter, with a = -0.5: ((a + 2) x - (a + 3)) x x + 1 for |x| < 1, and
  /// (((x - 5) x + 8) x - 4) a for |x| < 2.
  std::string cubic(const std::string& signed_x) {
    const std::string x = writer_.op("Abs", {signed_x});
    const std::string is_inner = real(op("Less", x, number(1)));
    const std::string is_outer = op("Sub", real(op("Less", x, number(2))), is_inner);
    const std::string line = op("Sub", op("Mul", number(1.5), x), number(2.5));
    const std::string inner = op("Add", op("Mul", op("Mul", line, x), x), number(1));
    const std::string square = op("Add", op("Mul", op("Sub", x, number(5)), x), number(8));
    const std::string outer = op("Mul", op("Sub", op("Mul", square, x), number(4)), number(-0.5));
    return op("Add", op("Mul", is_inner, inner), op("Mul", is_outer, outer));
  }

  OpWriter& writer_;
};

}  // namespace

std::string write_resize(OpWriter& writer, const std::string& pixels, const GraphSize& from,
                         const GraphSize& to, const std::string& interpolation) {
  ResizeWriter resize(writer);
  if (interpolation == "nearest") {
    const std::string rows = resize.take_nearest(pixels, from.height, to.height, 2);
    return resize.take_nearest(rows, from.width, to.width, 3);
  }
  const bool is_bicubic = interpolation == "bicubic";
  const AxisWeights rows = resize.axis_weights(from.height, to.height, is_bicubic);
  const AxisWeights columns = resize.axis_weights(from.width, to.width, is_bicubic);
  // Each pass rounds to integers, so the order of the passes affects the result.
  return writer.either(
      resize.is_height_first(from, to),
      [&] { return resize.weigh_columns(resize.weigh_rows(pixels, rows), columns); },
      [&] { return resize.weigh_rows(resize.weigh_columns(pixels, columns), rows); });
}

}  // namespace dpt
