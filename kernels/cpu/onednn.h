// The thin layer between our CPU operations and oneDNN, whose header stays out of everyone else's
// compile. onednn.cpp is the only file that knows oneDNN 2.x from 3.x.
//
// Activations are NHWC, weights plain OHWI or [out][in], both in the type of the description;
// biases and the gradients of parameters are fp32. Where oneDNN prefers another weight layout, a
// Primitive reorders into its scratch memory in every run, because the weights change with every
// step.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "kernels/backend.h"

namespace dpt::onednn {

/// Which of the three passes a primitive computes.
enum class Pass : std::uint8_t { forward, backward_data, backward_weights };

/// Addresses of one run, named by the forward pass: in backward_data `x` is the gradient that is
/// written and `y` the one that is read; in backward_weights `weights` and `bias` are the
/// gradients. Unused ones stay null.
struct Tensors {
  DevPtr x, y;
  DevPtr weights, bias;
  DevPtr scratch;  ///< scratch_bytes(), 64-byte aligned
  GradWrite write = GradWrite::overwrite;
};

/// A ready-made oneDNN primitive with the reorders of its weights. Runs in the thread that made
/// it; not thread-safe. Movable.
class Primitive {
 public:
  struct Impl;
  explicit Primitive(std::unique_ptr<Impl> impl);
  Primitive(Primitive&&) noexcept;
  Primitive& operator=(Primitive&&) noexcept;
  ~Primitive();

  std::size_t scratch_bytes() const;
  /// oneDNN's name of the implementation: "brgconv:avx512_core".
  const std::string& implementation() const;
  /// Returns true if that is one of oneDNN's slow plain loops.
  bool is_reference() const;
  void run(const Tensors& tensors);

 private:
  std::unique_ptr<Impl> impl_;
};

/// The primitives of an operation: forward and, in training, the gradients of its parameters and of
/// its input.
struct Passes {
  /// `make` makes the primitive of a Pass.
  template <class Desc, class Make>
  Passes(const Desc& desc, const Make& make) : forward(make(Pass::forward)) {
    if (!desc.training) return;
    weights = make(Pass::backward_weights);
    if (desc.input_gradient) data = make(Pass::backward_data);
  }
  /// Returns the bytes that the pass with the most scratch memory needs.
  std::size_t scratch_bytes() const;
  /// Returns the name of every pass with its implementation.
  std::string implementation() const;

  Primitive forward;
  std::optional<Primitive> weights, data;
};

/// The convolution of `desc` (its pool is ignored) into conv_out; ReLU is applied in the forward
/// pass only if `fuse_relu`. Throws ErrorKind::device if oneDNN has no implementation, or if the
/// description is in bf16 and the processor has no instructions for that.
Primitive make_convolution(const Conv2dDesc& desc, Pass pass, bool fuse_relu, int threads);

/// y = x W^T + b with ReLU in the forward pass if `fuse_relu`. Throws as make_convolution.
Primitive make_linear(const LinearDesc& desc, Pass pass, bool fuse_relu, int threads);

/// "oneDNN 2.6.3".
std::string version();
/// The widest instruction set that oneDNN uses here, in its own words: "avx512_core_amx".
std::string instruction_set();
/// Returns true if the processor has bf16 instructions (AVX512-BF16 or AMX) that oneDNN uses here.
bool has_bf16();

}  // namespace dpt::onednn
