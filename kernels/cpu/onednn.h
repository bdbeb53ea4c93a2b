// Wrapper of oneDNN. Only onednn.cpp includes oneDNN's header and handles the differences between
// versions 2.x and 3.x.
//
// Activations are NHWC, weights plain OHWI or [out][in], both in the type of the description;
// biases and the gradients of parameters are fp32. If oneDNN prefers another weight layout, a
// Primitive reorders the weights into its scratch memory in every run, because they change with
// every step.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "kernels/backend.h"

namespace dpt::onednn {

/// Addresses of one run, named as in the forward pass. In backward_data, `x` is the gradient that
/// is written and `y` the gradient that is read. In backward_weights, `weights` and `bias` are the
/// gradients. Unused addresses stay null.
struct Tensors {
  DevPtr x, y;
  DevPtr weights, bias;
  DevPtr scratch;  ///< scratch_bytes(), 64-byte aligned
  GradWrite write = GradWrite::overwrite;
};

/// A oneDNN primitive with the reorders of its weights. Must run in the thread that created it; not
/// thread-safe. Movable.
class Primitive {
 public:
  struct Impl;
  explicit Primitive(std::unique_ptr<Impl> impl);
  Primitive(Primitive&&) noexcept;
  Primitive& operator=(Primitive&&) noexcept;
  ~Primitive();

  std::size_t scratch_bytes() const;
  /// Returns oneDNN's name of the implementation: "brgconv:avx512_core".
  const std::string& implementation() const;
  /// Returns true if the implementation is one of oneDNN's slow reference loops.
  bool is_reference() const;
  void run(const Tensors& tensors);

 private:
  std::unique_ptr<Impl> impl_;
};

/// Primitives of an operation: forward and, in training, the gradients of its parameters and of its
/// input.
struct Passes {
  /// Creates the primitives; `make` creates the primitive of a Pass.
  template <class Desc, class Make>
  Passes(const Desc& desc, const Make& make) : forward(make(Pass::forward)) {
    if (!desc.training) return;
    weights = make(Pass::backward_weights);
    if (desc.input_gradient) data = make(Pass::backward_data);
  }
  /// Returns the maximum scratch memory of the passes in bytes.
  std::size_t scratch_bytes() const;
  /// Returns the names of all passes with their implementations.
  std::string implementation() const;

  Primitive forward;
  std::optional<Primitive> weights, data;
};

/// Creates the convolution of `desc` into conv_out, without the pool. Applies ReLU in the forward
/// pass only if `fuse_relu`. Throws ErrorKind::device if oneDNN has no implementation, or if the
/// description is in bf16 and the processor has no bf16 instructions.
Primitive make_convolution(const Conv2dDesc& desc, Pass pass, bool fuse_relu, int threads);

/// Creates y = x W^T + b, with ReLU in the forward pass if `fuse_relu`. Throws as make_convolution.
Primitive make_linear(const LinearDesc& desc, Pass pass, bool fuse_relu, int threads);

/// Returns the name and version: "oneDNN 2.6.3".
std::string version();
/// Returns oneDNN's name of the widest instruction set that it uses on this machine:
/// "avx512_core_amx".
std::string instruction_set();
/// Returns true if the processor has bf16 instructions (AVX512-BF16 or AMX) that oneDNN uses.
bool has_bf16();

}  // namespace dpt::onednn
