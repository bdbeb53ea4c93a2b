// The contract between the trainer and a device. One Backend object per device; it owns memory,
// the order of execution, and makes ready-made kernels ("describe once, execute many times").
//
// Rules every backend keeps:
//  - One thread uses a Backend: the replica's own. Only the functions that say so may be called
//    from another thread.
//  - Everything that takes a DevPtr is *queued*: it runs in call order on the device's one stream,
//    and may not have run when the call returns. `synchronize` and `wait` are the only places
//    where the host learns that something is done.
//  - The host never dereferences a DevPtr. Bytes cross by `upload`, `download` and nothing else.
//  - Making a kernel may allocate and take milliseconds; running one allocates nothing.
//  - Activations are NHWC, C fastest. Convolution weights are OHWI (out, kh, kw, in/groups), linear
//    weights [out][in]; biases [out]. Activations, their gradients and the weights that an
//    operation reads have the DType of the description; biases and the gradients of parameters are
//    fp32. Sums and statistics are kept in fp32 at least, whatever the type.
//  - In backward, an activation gradient is overwritten, a parameter gradient is overwritten or
//    added to as GradWrite says.
//  - Results depend only on the description and the inputs: not on the thread or on what ran
//    before. (This is what makes exact mode exact: see docs/exactness.md.) Timing may choose
//    between implementations only where BackendOptions allow it.
//  - Failures throw dpt::Error: a description that the device cannot run when the kernel is made
//    (ErrorKind::device), a device failure at the next call that notices it.
// Knows no YAML, files, layers or threads of ours.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/types.h"

namespace dpt {

class Backend;

/// Owns a piece of device memory; freed by its destructor. Move-only. An empty one owns nothing.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(DevPtr ptr, std::size_t bytes, void (*release)(DevPtr, std::size_t))
      : ptr_(ptr), bytes_(bytes), release_(release) {}
  DeviceMemory(DeviceMemory&& other) noexcept { swap(other); }
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    DeviceMemory taken(std::move(other));
    swap(taken);
    return *this;
  }
  ~DeviceMemory() {
    if (release_) release_(ptr_, bytes_);
  }
  DevPtr ptr() const { return ptr_; }
  std::size_t bytes() const { return bytes_; }

 private:
  void swap(DeviceMemory& other) noexcept {
    std::swap(ptr_, other.ptr_);
    std::swap(bytes_, other.bytes_);
    std::swap(release_, other.release_);
  }
  DevPtr ptr_;
  std::size_t bytes_ = 0;
  void (*release_)(DevPtr, std::size_t) = nullptr;
};

/// Host memory that copies to and from the device may use while the host goes on (page-locked for a
/// GPU).
using HostMemory = std::unique_ptr<std::byte, void (*)(std::byte*)>;

// ---- Descriptions ------------------------------------------------------------------------------

enum class PoolKind : std::uint8_t { max, average };

/// Pooling as torchvision/PyTorch define it (torch.nn.MaxPool2d, AvgPool2d). The output size is
/// given, so that ceil_mode is decided in one place (the layer's shape inference).
struct Pool2dDesc {
  PoolKind kind = PoolKind::max;
  Size2 kernel{2, 2}, stride{2, 2}, padding{0, 0}, dilation{1, 1};
  bool count_include_pad =
      true;  ///< average only: the divisor counts padding (never ceil overhang)
  std::int64_t divisor_override = 0;  ///< average only: 0 = none
  DType type = DType::f32;
  std::int64_t batch = 0;
  SampleShape in, out;
  bool training = true;        ///< false: forward only
  bool input_gradient = true;  ///< false: dx is never asked for
};

/// Convolution with optional bias, then optional ReLU, then optional pooling (applied in that
/// order). `conv_out` is the shape after the convolution, `out` after the pooling (equal to
/// conv_out without one). Pool's batch/type/in/out/training fields agree with this description.
struct Conv2dDesc {
  std::int64_t batch = 0;
  SampleShape in, conv_out, out;
  Size2 kernel, stride{1, 1}, padding{0, 0}, dilation{1, 1};
  std::int64_t groups = 1;
  bool bias = true;
  bool relu = false;
  std::optional<Pool2dDesc> pool;
  DType type = DType::f32;
  bool tf32 = false;  ///< factors may be rounded to tf32 (10 bits behind the point); f32 only
  bool training = true;
  bool input_gradient = true;  ///< false for the first layer: dx is never asked for
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

/// Softmax, cross-entropy, its gradient and the step's counts in one kernel.
struct CrossEntropyDesc {
  std::int64_t batch = 0;
  std::int64_t classes = 0;
  float label_smoothing = 0.0F;  ///< as torch.nn.CrossEntropyLoss
  DType type = DType::f32;
  bool training = true;  ///< false: no gradient is written
};

/// The replica's first kernel: raw samples -> activations. Order of operations: scale to 0..1
/// (u8 raw only), crop with zero padding, flip, normalise. See kernels/common/augment.h for the
/// formulas and random draws, which are the same on every backend.
struct InputDesc {
  std::int64_t batch = 0;
  DType raw_type = DType::u8;  ///< u8 or f32
  SampleShape raw, out;        ///< equal H and W unless `crop`
  bool crop = false;           ///< random crop of out.h x out.w from the zero-padded raw image
  std::int64_t crop_padding = 0;
  bool flip = false;  ///< horizontal, with probability flip_probability
  float flip_probability = 0.5F;
  std::vector<float> mean, stddev;  ///< per channel, empty = no normalisation; (x - mean) / std
  DType type = DType::f32;
  std::uint64_t seed = 0;
};

enum class OptimizerKind : std::uint8_t { sgd, adam, adamw };

/// One flat optimizer step, with PyTorch's formulas (torch.optim.SGD, Adam, AdamW).
struct OptimizerDesc {
  OptimizerKind kind = OptimizerKind::sgd;
  float momentum = 0.0F, dampening = 0.0F;
  bool nesterov = false;
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double weight_decay = 0.0;
  bool amsgrad = false;
  bool maximize = false;
};

// ---- Kernels -----------------------------------------------------------------------------------

/// Whether a parameter gradient is the first of its accumulation (overwritten) or a later one.
enum class GradWrite : std::uint8_t { overwrite, add };

/// Addresses of one call. Unused ones stay null. `saved` keeps what forward leaves for backward of
/// the same batch; `scratch` may be shared with every other kernel.
struct OpArgs {
  DevPtr x, y;            ///< input and output activations; backward may read both
  DevPtr weight;          ///< in the description's type
  DevPtr bias;            ///< fp32
  DevPtr dy, dx;          ///< gradients of y (read; may be clobbered) and x (overwritten)
  DevPtr dweight, dbias;  ///< gradients of the parameters, fp32
  DevPtr saved, scratch;  ///< at least saved_bytes() and scratch_bytes(), 64-byte aligned
  GradWrite write = GradWrite::overwrite;
};

/// A differentiable operation made for one description.
class Op {
 public:
  virtual ~Op() = default;
  virtual std::size_t scratch_bytes() const { return 0; }
  virtual std::size_t saved_bytes() const { return 0; }
  /// Whether y may be the same memory as x, and dx the same as dy.
  virtual bool in_place() const { return false; }
  /// Whether backward reads args.x / args.y: the memory plan keeps alive only what is needed.
  virtual bool backward_needs_x() const { return true; }
  virtual bool backward_needs_y() const { return true; }
  virtual void forward(const OpArgs& args) = 0;
  virtual void backward(const OpArgs& args) = 0;
  /// The implementation chosen, for logs and for the test that none is a slow reference one.
  virtual std::string implementation() const = 0;
};

/// The first floats behind the gradients in the flat gradient buffer; summed with them.
struct StepMetrics {
  float loss_sum = 0;    ///< sum over samples of the cross-entropy, natural logarithm
  float correct = 0;     ///< samples whose largest logit is the label's (first one wins a tie)
  float count = 0;       ///< samples seen
  float stop_votes = 0;  ///< ranks that were asked to stop after this step
};
inline constexpr std::size_t kMetricFloats = sizeof(StepMetrics) / sizeof(float);

struct CrossEntropyArgs {
  DevPtr logits;         ///< (batch, classes)
  DevPtr labels;         ///< i32, indexed by slots: label of sample k is labels[slots[k]]
  DevPtr slots;          ///< i32 (batch)
  DevPtr dlogits;        ///< (batch, classes), overwritten; may be the same memory as logits
  DevPtr metrics;        ///< StepMetrics; loss_sum, correct, count are overwritten or added to
  DevPtr sample_loss;    ///< f32 (batch) or null
  DevPtr prediction;     ///< i32 (batch): index of the largest logit; or null
  DevPtr inverse_count;  ///< f32 scalar: gradients are scaled by it (1 / global batch count)
  GradWrite write = GradWrite::overwrite;
};

class CrossEntropyOp {
 public:
  virtual ~CrossEntropyOp() = default;
  virtual void run(const CrossEntropyArgs& args) = 0;
};

struct InputArgs {
  DevPtr raw;    ///< raw samples, each raw.elements() of raw_type, indexed by slots
  DevPtr slots;  ///< i32 (batch): sample k is raw[slots[k]]
  DevPtr ids;    ///< i64 (batch): the sample's index in its data set, key of its random draws
  DevPtr epoch;  ///< i64 scalar, key of the random draws
  DevPtr y;      ///< (batch, out), overwritten
};

class InputOp {
 public:
  virtual ~InputOp() = default;
  virtual void run(const InputArgs& args) = 0;
};

/// What changes from step to step, in device memory so that a captured graph can read it.
/// `optimizer` scalars are computed in double on the host (see kernels/common/optimizer_math.h).
struct StepScalars {
  std::int64_t epoch = 0;
  float inverse_count = 0;
  float lr = 0;
  float step_size = 0;           ///< Adam: lr / (1 - beta1^t)
  float inverse_sqrt_bias2 = 1;  ///< Adam: 1 / sqrt(1 - beta2^t)
  float first_step = 0;          ///< SGD: 1 at the first step (momentum buffer = gradient)
  float max_norm = 0;            ///< gradient clip; 0 = none
  float grad_norm = 0;           ///< written by `grad_norm`
  float clip = 1;                ///< written by `grad_norm`: min(1, max_norm / (norm + 1e-6))
};

struct OptimizerArgs {
  DevPtr params, grads;           ///< fp32, `count` elements; params are updated
  DevPtr state1, state2, state3;  ///< SGD: momentum. Adam: exp_avg, exp_avg_sq, max_exp_avg_sq
  DevPtr scalars;                 ///< StepScalars; gradients are multiplied by `clip` first
  DevPtr params16;                ///< bf16 copy of params, written with them; or null
  std::int64_t count = 0;
};

/// One addition of a tree sum: part `left` += part `right`.
struct TreeAdd {
  int left = 0, right = 0;
};

// ---- The device --------------------------------------------------------------------------------

struct DeviceInfo {
  std::string name;             ///< as configs name it: "cpu", "cuda:0"
  std::string description;      ///< model name of the processor or card
  std::string instruction_set;  ///< part of what makes results: "avx2", "avx512_core_amx", "sm_90"
  std::string library;          ///< "oneDNN 2.6.3", "cuDNN 9.19"
  int threads = 1;              ///< CPU threads used by one replica
  bool queues = false;          ///< calls return before their work has run
};

/// What a backend may do to be fast.
struct BackendOptions {
  /// Implementations that give the same bits every time, chosen by the description alone.
  bool exact = false;
  /// Where timed choices between implementations are kept; empty = nothing is timed.
  std::string plan_cache;
};

/// A point in a backend's queue, which other backends of its kind can wait for.
class Fence {
 public:
  virtual ~Fence() = default;
};

/// A row of queued calls, recorded to run again in one go.
class Recording {
 public:
  virtual ~Recording() = default;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual const DeviceInfo& info() const = 0;

  // Memory. Addresses are aligned to 64 bytes at least. Throws ErrorKind::device naming `what`,
  // the bytes asked for and the bytes free when there is not enough.
  virtual DeviceMemory allocate(std::size_t bytes, const std::string& what) = 0;
  /// Read-only data set memory on the device: the CPU borrows `host`, which must outlive it; a GPU
  /// copies it.
  virtual DeviceMemory make_resident(std::span<const std::byte> host, const std::string& what) = 0;
  virtual HostMemory allocate_host(std::size_t bytes, const std::string& what) = 0;
  /// Bytes that could be allocated now, more or less.
  virtual std::uint64_t free_bytes() = 0;
  /// Whether this backend's kernels may read and write memory that `other` allocated. Sets up what
  /// that needs. `other` is only asked what it is.
  virtual bool can_use_memory_of(const Backend& other) = 0;
  /// `host` must stay unchanged until the copy is done.
  virtual void upload(DevPtr to, const void* host, std::size_t bytes) = 0;
  /// `host` is valid once a later synchronize/wait has returned.
  virtual void download(void* host, DevPtr from, std::size_t bytes) = 0;
  virtual void copy(DevPtr to, DevPtr from, std::size_t bytes) = 0;
  virtual void zero(DevPtr to, std::size_t bytes) = 0;
  /// Marks this point of the queue; `wait` returns once everything before it has run.
  virtual std::uint64_t record() = 0;
  virtual void wait(std::uint64_t mark) = 0;
  virtual void synchronize() = 0;

  // Order between queues. Waiting for a fence that was never recorded does nothing.
  virtual std::unique_ptr<Fence> make_fence() = 0;
  virtual void record(Fence& fence) = 0;
  /// What is queued here from now on runs after what `fence` (of this or another backend of the
  /// same kind) marked when it was last recorded. The host does not wait. REQUIRES: that `record`
  /// call has returned.
  virtual void wait_for(const Fence& fence) = 0;
  /// A copy beside the queue, so that it may run while kernels do: begins when `after` has passed,
  /// records `done` at its end.
  virtual void upload_beside(DevPtr to, const void* host, std::size_t bytes, const Fence& after,
                             Fence& done) = 0;

  // The same row of calls again and again: one launch instead of many.
  /// Calls `work` and keeps what it queues instead of running it; `work` may call kernels, copy and
  /// zero, nothing that crosses to the host, waits or allocates. Null, and `work` is not called,
  /// where the device has no such thing (the CPU). REQUIRES: `work` ran once without recording.
  virtual std::unique_ptr<Recording> capture(const std::function<void()>& work) = 0;
  virtual void replay(Recording& recording) = 0;

  // Ready-made kernels. The Backend must outlive them.
  virtual std::unique_ptr<Op> conv2d(const Conv2dDesc& desc) = 0;
  virtual std::unique_ptr<Op> linear(const LinearDesc& desc) = 0;
  virtual std::unique_ptr<Op> pool2d(const Pool2dDesc& desc) = 0;
  virtual std::unique_ptr<Op> relu(const ReluDesc& desc) = 0;
  virtual std::unique_ptr<CrossEntropyOp> cross_entropy(const CrossEntropyDesc& desc) = 0;
  virtual std::unique_ptr<InputOp> input(const InputDesc& desc) = 0;

  // Flat fp32 kernels over `count` elements.
  /// to[i] = a[i] + b[i]; any of the three may be the same memory.
  virtual void add(DevPtr to, DevPtr a, DevPtr b, std::int64_t count) = 0;
  /// Does `additions` in order, then copies parts[0] to each of `outs`, which may be parts. The
  /// parts are clobbered. The memory may be another backend's (can_use_memory_of).
  virtual void tree_sum(std::span<const DevPtr> parts, std::span<const TreeAdd> additions,
                        std::span<const DevPtr> outs, std::int64_t count) = 0;
  /// to[i] = from[i] rounded to bf16, ties to even.
  virtual void to_bf16(DevPtr to, DevPtr from, std::int64_t count) = 0;
  /// scalars.grad_norm = 2-norm of grads in a fixed summation order; scalars.clip from max_norm
  /// (torch.nn.utils.clip_grad_norm_). `scalars` is a StepScalars.
  virtual void grad_norm(DevPtr grads, std::int64_t count, DevPtr scalars) = 0;
  virtual void optimizer_step(const OptimizerDesc& desc, const OptimizerArgs& args) = 0;
};

/// A backend that runs on `threads` threads of the CPU (one OpenMP team per replica thread: make
/// and use it in the replica's thread).
std::unique_ptr<Backend> make_cpu_backend(int threads);

}  // namespace dpt
