// The operations of a network as a device runs them: what describes one, what one call needs, and
// the part of the Backend contract (kernels/backend.h, whose rules apply) that makes them.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "kernels/base/types.h"

namespace dpt {

// ---- Descriptions ------------------------------------------------------------------------------

/// The largest number of activations that an operation reads.
inline constexpr int kMaxInputs = 8;

enum class PoolKind : std::uint8_t { max, average };

/// Pooling as torchvision/PyTorch define it (torch.nn.MaxPool2d, AvgPool2d). The output size is
/// given, so that ceil_mode is decided in one place (the layer's shape inference).
struct Pool2dDesc {
  PoolKind kind = PoolKind::max;
  Size2 kernel{2, 2}, stride{2, 2}, padding{0, 0}, dilation{1, 1};
  bool count_include_pad =
      true;  ///< average only: the divisor counts padding (never ceil overhang)
  std::int64_t divisor_override = 0;  ///< average only: 0 = none
  /// Average only: instead of all that, windows that divide the input as evenly as can be, output o
  /// from floor(o * in / out) to ceil((o + 1) * in / out), as torch.nn.AdaptiveAvgPool2d.
  bool adaptive = false;
  DType type = DType::f32;
  std::int64_t batch = 0;
  SampleShape in, out;
  bool training = true;        ///< false: forward only
  bool input_gradient = true;  ///< false: dx is never asked for
};

/// Convolution with optional bias, then optional ReLU, then optional pooling (applied in that
/// order). `conv_out` is the shape after the convolution, `out` after the pooling (equal to
/// conv_out without one). `padding` is before the image; conv_out tells how far windows reach
/// behind it (kernels/common/conv_padding.h). Pool's batch/type/in/out/training fields agree with
/// this description.
struct Conv2dDesc {
  std::int64_t batch = 0;
  SampleShape in, conv_out, out;
  Size2 kernel, stride{1, 1}, padding{0, 0}, dilation{1, 1};
  std::int64_t groups = 1;
  bool bias = true;
  bool relu = false;
  std::optional<Pool2dDesc> pool;
  DType type = DType::f32;
  bool tf32 = false;  ///< operands may be rounded to tf32 (10-bit mantissa); f32 only
  bool training = true;
  bool input_gradient = true;  ///< false for the first layer: dx is never asked for
};

/// The transpose of a convolution from images of y's shape to images of x's, with an optional bias
/// (torch.nn.ConvTranspose2d): each pixel of x adds its channels, times the weight (in.c, kernel,
/// out.c / groups), to a window of y. Kernel, stride, padding, dilation and groups are those of
/// that convolution, which kernels/common/conv_transpose.h describes.
struct ConvTranspose2dDesc {
  std::int64_t batch = 0;
  SampleShape in, out;
  Size2 kernel, stride{1, 1}, padding{0, 0}, dilation{1, 1};
  std::int64_t groups = 1;
  bool bias = true;
  DType type = DType::f32;
  bool tf32 = false;  ///< as Conv2dDesc
  bool training = true;
  bool input_gradient = true;
};

/// y = x W^T + b over rows, then optional ReLU. x (batch, in), W (out, in), y (batch, out).
struct LinearDesc {
  std::int64_t batch = 0, in = 0, out = 0;
  bool bias = true;
  bool relu = false;
  DType type = DType::f32;
  bool tf32 = false;  ///< as Conv2dDesc
  bool training = true;
  bool input_gradient = true;
};

struct ReluDesc {
  std::int64_t batch = 0;
  SampleShape shape;
  DType type = DType::f32;
  bool training = true;
};

/// An elementwise function.
enum class ActivationKind : std::uint8_t {
  leaky_relu,
  relu6,
  gelu,
  gelu_tanh,
  silu,
  sigmoid,
  tanh,
  softplus,
  hardswish,
  hardsigmoid
};

/// As the layers of torch.nn; the formulas stand in kernels/common/activations.h.
struct ActivationDesc {
  ActivationKind kind = ActivationKind::leaky_relu;
  float slope = 0.01F;                   ///< leaky_relu: below 0
  float beta = 1.0F, threshold = 20.0F;  ///< softplus
  std::int64_t batch = 0;
  SampleShape shape;
  DType type = DType::f32;
  bool training = true;
};

/// In training, each element (or each channel of a sample) is set to 0 with probability p, and what
/// is kept is multiplied by 1 / (1 - p), as torch.nn.Dropout and Dropout2d; else y = x. The draws
/// are a function of seed, stream, OpArgs::step, OpArgs::ids and the place in the sample: see
/// kernels/common/dropout.h.
struct DropoutDesc {
  std::int64_t batch = 0;
  SampleShape shape;
  double p = 0.5;         ///< from 0 to below 1
  bool channels = false;  ///< whole channels
  DType type = DType::f32;
  bool training = true;
  std::uint64_t seed = 0;
  std::uint64_t stream = 0;  ///< stands for the layer
};

/// y = the sum of all inputs, in their order, then optional ReLU. All have the same shape. dx is
/// the gradient of each of them.
struct SumDesc {
  std::int64_t batch = 0;
  SampleShape shape;
  int inputs = 2;  ///< 2 to kMaxInputs
  bool relu = false;
  DType type = DType::f32;
  bool training = true;
};

/// Batch normalisation of each channel over samples and pixels (torch.nn.BatchNorm1d, BatchNorm2d),
/// then optional ReLU. With `batch_statistics` it couples the samples of a batch (see Op).
struct BatchNormDesc {
  std::int64_t batch = 0;
  SampleShape shape;
  float eps = 1e-5F;
  bool affine = true;            ///< has a weight and a bias
  bool batch_statistics = true;  ///< false: normalises with running_mean and running_var
  bool relu = false;
  DType type = DType::f32;
  bool training = true;
  bool input_gradient = true;
};

/// y has the channels of all inputs, in their order; all have the same height and width. Each has a
/// gradient of its own.
struct ConcatDesc {
  std::int64_t batch = 0;
  std::vector<SampleShape> in;  ///< 2 to kMaxInputs
  /// True for inputs of any sizes: y, of 1x1 pixels, has their elements one input after another,
  /// each in the order (C,H,W).
  bool flatten = false;
  SampleShape out;
  DType type = DType::f32;
};

/// y = a * b, elementwise. One of the two may have 1x1 pixels: each of its channels is then the
/// factor of all pixels of the other's. Each has a gradient of its own.
struct ProductDesc {
  std::int64_t batch = 0;
  std::array<SampleShape, 2> in;
  SampleShape out;
  DType type = DType::f32;
};

/// The pixels of x, each repeated, at other places: pixel (p, q) of y is pixel
/// (floor((p - before.h) / scale.h), floor((q - before.w) / scale.w)) of x, and 0 where x has none.
struct PixelMapDesc {
  std::int64_t batch = 0;
  SampleShape in, out;
  Size2 scale{1, 1}, before{0, 0};
  DType type = DType::f32;
};

/// Normalises each sample by itself, over all pixels and the channels of each of `groups` groups of
/// neighbouring channels (torch.nn.GroupNorm), then y = y * weight + bias for each channel.
struct GroupNormDesc {
  std::int64_t batch = 0;
  SampleShape shape;
  std::int64_t groups = 1;  ///< divides shape.c
  float eps = 1e-5F;
  bool weight = true, bias = true;  ///< fp32 (channels)
  DType type = DType::f32;
  bool training = true;
  bool input_gradient = true;
};

/// y = weight * x with a weight for each channel, or one for all; with `negative_only` just where x
/// is not above 0 (torch.nn.PReLU). The weight is fp32.
struct ChannelScaleDesc {
  std::int64_t batch = 0;
  SampleShape shape;
  bool one_weight = false;
  bool negative_only = false;
  DType type = DType::f32;
  bool training = true;
  bool input_gradient = true;
};

/// What a loss adds up for metrics: a value of each sample that counts.
enum class SampleSum : std::uint8_t {
  top_k,           ///< 1 where the label's output is one of the k largest (the first wins a tie)
  absolute_error,  ///< mean over the outputs of |prediction - target|; not of cross-entropy
  squared_error,   ///< the same of their squares
  matches,         ///< share of the outputs that are on their target's side of 0.5; likewise
  none             ///< 0
};
struct MetricSum {
  SampleSum kind = SampleSum::top_k;
  std::int32_t k = 1;
  bool operator==(const MetricSum&) const = default;
};

/// A loss of the model's outputs with its gradient and the step's sums, in one kernel. The mean of
/// a batch is the sum of its samples' losses over the sum of their weights.
struct LossDesc {
  std::int64_t batch = 0;
  std::int64_t classes = 0;            ///< outputs of a sample
  std::vector<MetricSum> sums = {{}};  ///< of StepMetrics::sums, in this order
  /// A sample with the weight 0 does not count: neither its loss, nor its gradient, nor in `sums`.
  TargetShape targets;
  DType type = DType::f32;
  bool training = true;  ///< false: no gradient is written
};

/// Softmax and cross-entropy, as torch.nn.CrossEntropyLoss, of labels or of soft labels. A sample's
/// weight is its own, if it has one, times that of its label's class; of soft labels it is its own
/// alone. It is 0 for a label that is ignored.
struct CrossEntropyDesc : LossDesc {
  float label_smoothing = 0.0F;
  std::vector<float> class_weights;          ///< one for each class; empty: all are 1
  std::optional<std::int32_t> ignore_index;  ///< the label of samples that do not count
};

/// A function of one output and its target.
enum class ElementLossKind : std::uint8_t { mse, l1, smooth_l1, bce_with_logits };

/// The mean over a sample's outputs of an elementwise loss, as torch.nn's of that name. Without
/// targets of each output, they are 1 for the label's output and 0 for the others. The formulas
/// stand in kernels/common/element_losses.h.
struct ElementLossDesc : LossDesc {
  ElementLossKind kind = ElementLossKind::mse;
  float beta = 1.0F;              ///< smooth_l1
  std::vector<float> pos_weight;  ///< bce_with_logits: one for each output; empty: all are 1
};

/// Every operation and every loss that there is: a backend that lacks one does not compile.
using OpDesc = std::variant<Conv2dDesc, ConvTranspose2dDesc, LinearDesc, Pool2dDesc, ReluDesc,
                            ActivationDesc, DropoutDesc, SumDesc, BatchNormDesc, ConcatDesc,
                            ProductDesc, PixelMapDesc, GroupNormDesc, ChannelScaleDesc>;
using LossOpDesc = std::variant<CrossEntropyDesc, ElementLossDesc>;

/// A rectangle of a sample that goes into the model, inside of it; without a height there is none.
/// It has no initialisers, so that the threads of device code can share one.
struct InputBox {
  std::int32_t top, left, height, width;
  bool operator==(const InputBox&) const = default;
};

/// How each sample of a batch is mixed with its partner: inside `box` it becomes own * itself +
/// partner * the other, or the other alone where own is 0; outside it stays what it is.
struct InputMix {
  float own = 1, partner = 0;
  InputBox box{};
  bool operator==(const InputMix&) const = default;
};

/// The replica's first kernel: raw samples -> activations. Order of operations: scale to 0..1
/// (u8 raw only), crop with zero padding, flip, normalise, erase, mix. See kernels/common/augment.h
/// for the formulas and random draws, which are the same on every backend; what is erased and how
/// samples are mixed is drawn on the host.
struct InputDesc {
  std::int64_t batch = 0;
  DType raw_type = DType::u8;  ///< u8 or f32
  SampleShape raw, out;        ///< equal H and W unless `crop`
  bool crop = false;           ///< random crop of out.h x out.w from the zero-padded raw image
  std::int64_t crop_padding = 0;
  bool flip = false;  ///< horizontal, with probability flip_probability
  float flip_probability = 0.5F;
  std::vector<float> mean, stddev;  ///< per channel, empty = no normalisation; (x - mean) / std
  bool erase = false;               ///< a rectangle of each sample gets erase_value
  std::vector<float> erase_value;   ///< per channel
  bool mix = false;                 ///< each sample with a partner
  DType type = DType::f32;
  std::uint64_t seed = 0;
};

// ---- Kernels -----------------------------------------------------------------------------------

/// Whether a parameter gradient is the first of its accumulation (overwritten) or a later one.
enum class GradWrite : std::uint8_t { overwrite, add };

/// Addresses of one call. Unused ones stay null. `saved` keeps what forward leaves for backward of
/// the same batch; `scratch` may be shared with every other kernel.
struct OpArgs {
  DevPtr x, y;  ///< input and output activations; backward may read both
  std::array<DevPtr, kMaxInputs - 1> more_x{};   ///< the other inputs, where there are several
  std::array<DevPtr, kMaxInputs - 1> more_dx{};  ///< see separate_gradients; null: not asked for
  DevPtr weight;          ///< in the description's type; of a normalisation fp32
  DevPtr bias;            ///< fp32
  DevPtr bias16;          ///< the same in bf16, where the description's type is that
  DevPtr dy, dx;          ///< gradients of y (read; may be clobbered, see backward_keeps_dy) and of
                          ///< x (overwritten); of each input, where there are several
  DevPtr dweight, dbias;  ///< gradients of the parameters, fp32
  DevPtr saved, scratch;  ///< at least saved_bytes() and scratch_bytes(), 64-byte aligned
  GradWrite write = GradWrite::overwrite;

  // Batch normalisation only.
  DevPtr running_mean, running_var;  ///< fp32 (channels)
  /// fp32 (channels): `forward` overwrites them with the statistics used times `samples`, unless
  /// `write` is add; the variance is the unbiased one. Null: not asked for.
  DevPtr mean_sum, var_sum;
  double values = 0;   ///< of a channel, that the merged statistics are of
  double samples = 0;  ///< of the shard

  // Dropout in training only: the keys of its draws.
  DevPtr ids;   ///< i64 (batch), as InputArgs
  DevPtr step;  ///< i64 scalar
};

/// A differentiable operation made for one description.
class Op {
 public:
  virtual ~Op() = default;
  virtual std::size_t scratch_bytes() const { return 0; }
  virtual std::size_t saved_bytes() const { return 0; }
  /// Whether y may be the same memory as one of the inputs, and dx the same as dy.
  virtual bool in_place() const { return false; }
  /// Whether backward reads args.x / args.y: the memory plan keeps alive only what is needed.
  virtual bool backward_needs_x() const { return true; }
  virtual bool backward_needs_y() const { return true; }
  /// Whether backward leaves dy as it was, unless dx is the same memory.
  virtual bool backward_keeps_dy() const { return false; }
  /// Whether dx is dy, so that backward need not be called where they are the same memory.
  virtual bool passes_dy() const { return false; }
  /// Whether each of several inputs has a gradient of its own, dx and more_dx, none of which is the
  /// same memory as dy; those that nobody asks for are null.
  virtual bool separate_gradients() const { return false; }
  /// Above 0 where each sample's result depends on all samples of the batch: the operation then
  /// has statistics of so many channels, at the beginning of `saved`, and runs in four parts.
  /// `forward_statistics` writes the moments of x there: a mean for every channel, then a sum of
  /// squared deviations from it. They may be merged with those of other calls (merge_moments)
  /// before `forward` reads them. `backward_statistics` writes sums behind them, two for every
  /// channel, and the gradients of the parameters; sums may be added to those of other calls before
  /// `backward` reads them. `saved` is 16 * channels bytes at least.
  virtual std::int64_t coupled_channels() const { return 0; }
  virtual void forward_statistics(const OpArgs&) {}
  virtual void backward_statistics(const OpArgs&) {}
  virtual void forward(const OpArgs& args) = 0;
  virtual void backward(const OpArgs& args) = 0;
  /// The implementation chosen, for logs, and for the test that no slow reference implementation is
  /// used.
  virtual std::string implementation() const = 0;
};

struct LossArgs {
  DevPtr logits;  ///< (batch, classes)
  /// i32, indexed by slots: label of sample k is labels[slots[k]]. Not read where targets have
  /// none.
  DevPtr labels;
  DevPtr targets;      ///< f32 rows of targets.floats(), indexed by slots; null where that is 0
  DevPtr slots;        ///< i32 (batch)
  DevPtr dlogits;      ///< (batch, classes), overwritten; may be the same memory as logits
  DevPtr metrics;      ///< StepMetrics; what a loss sums up is overwritten or added to
  DevPtr sample_loss;  ///< f32 (batch) or null
  DevPtr sample_sums;  ///< f32 (batch, sums): what each sample adds to them; or null
  DevPtr prediction;   ///< i32 (batch): index of the largest logit; or null
  /// f32 (batch, classes): what each output says of its target, of cross-entropy the softmax; or
  /// null
  DevPtr outputs;
  /// f32 scalar: gradients are scaled by it (1 / global batch count). Null: they are those of the
  /// sum, because only the sum over all ranks tells the divisor (see divide_by_weight).
  DevPtr inverse_count;
  GradWrite write = GradWrite::overwrite;
};

/// A loss with its gradient, per-sample values and sums, made for one description.
class LossOp {
 public:
  virtual ~LossOp() = default;
  virtual void run(const LossArgs& args) = 0;
};

struct InputArgs {
  DevPtr raw;    ///< raw samples, each raw.elements() of raw_type, indexed by slots
  DevPtr slots;  ///< i32 (batch): sample k is raw[slots[k]]
  DevPtr ids;    ///< i64 (batch): the sample's index in its data set, key of its random draws
  DevPtr epoch;  ///< i64 scalar, key of the random draws
  DevPtr y;      ///< (batch, out), overwritten
  /// InputBox (batch): what is erased of a sample, in places of its output. Null without `erase`.
  DevPtr boxes{};
  /// InputMix, for the whole batch; null without `mix`. Sample k's partner is then sample k - 1 of
  /// `slots`, `ids` and `boxes`, which have an entry before the first.
  DevPtr mix{};
};

class InputOp {
 public:
  virtual ~InputOp() = default;
  virtual void run(const InputArgs& args) = 0;
};

/// Makes kernels of descriptions ("describe once, execute many times"). The Backend must outlive
/// them. Throws ErrorKind::device for a description that the device cannot run.
class OpFactory {
 public:
  virtual ~OpFactory() = default;
  virtual std::unique_ptr<Op> make(const OpDesc& desc) = 0;
  virtual std::unique_ptr<LossOp> make_loss(const LossOpDesc& desc) = 0;
  virtual std::unique_ptr<InputOp> make_input(const InputDesc& desc) = 0;
};

}  // namespace dpt
