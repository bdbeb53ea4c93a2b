// A differentiable operation: its parameters, the addresses that one call needs, and its interface.
// A part of the Backend contract (kernels/backend.h, whose rules apply).
//
// A description that has parameters or running statistics lists their names in `kParams`; a layer's
// parameter of that name gets the same place in OpArgs::params. So an operation may have any:
//
//   struct ScaledShiftDesc {
//     enum : std::size_t { kScale, kShift };
//     static constexpr std::array<std::string_view, 2> kParams{"scale", "shift"};
//     ...
//   };
//   args.params[desc.kShift].f32, args.params[desc.kShift].gradient
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "kernels/base/types.h"

namespace dpt {

/// The largest numbers of activations that an operation reads, and of its parameters.
inline constexpr int kMaxInputs = 8;
inline constexpr std::size_t kMaxParams = 8;

/// Base of the descriptions with the usual parameters.
struct WeightAndBias {
  enum : std::size_t { kWeight, kBias };
  static constexpr std::array<std::string_view, 2> kParams{"weight", "bias"};
};

/// Addresses of a parameter or running statistic; null if the layer has none of that name.
struct ParamArgs {
  DevPtr f32;
  DevPtr bf16;  ///< a copy of it, if the description's type is bf16
  /// fp32, null if not asked for: the gradient of a parameter, which backward writes; or the
  /// statistic of this call times OpArgs::samples, which forward writes.
  DevPtr gradient;

  /// Returns the address of the values in the type of activations.
  DevPtr as(DType type) const { return type == DType::bf16 ? bf16 : f32; }
};

/// Tells if a gradient is the first of its accumulation (overwritten) or a later one. Statistics
/// are written with `overwrite` only.
enum class GradWrite : std::uint8_t { overwrite, add };

/// Addresses of one call. Unused ones stay null. `saved` keeps what forward leaves for backward of
/// the same batch; `scratch` may be shared with every other kernel.
struct OpArgs {
  DevPtr x, y;  ///< input and output activations; backward may read both
  std::array<DevPtr, kMaxInputs - 1> more_x{};   ///< inputs after the first
  std::array<DevPtr, kMaxInputs - 1> more_dx{};  ///< see separate_gradients; null: not asked for
  std::array<ParamArgs, kMaxParams> params{};    ///< in the order of its description's kParams
  DevPtr dy, dx;          ///< gradients of y (read; may be clobbered, see backward_keeps_dy) and of
                          ///< x (overwritten); of each input, if there are several
  DevPtr saved, scratch;  ///< at least saved_bytes() and scratch_bytes(), 64-byte aligned
  GradWrite write = GradWrite::overwrite;

  // Only for operations that couple samples (Op::coupled_channels).
  double values = 0;   ///< per channel, in the merged statistics
  double samples = 0;  ///< number of samples of the shard

  // Only for dropout in training: the keys of its draws.
  DevPtr ids;   ///< i64 (batch), as InputArgs
  DevPtr step;  ///< i64 scalar
};

/// A differentiable operation made for one description.
class Op {
 public:
  virtual ~Op() = default;
  virtual std::size_t scratch_bytes() const { return 0; }
  virtual std::size_t saved_bytes() const { return 0; }
  /// Returns true if y may be the same memory as one of the inputs, and dx the same as dy.
  virtual bool in_place() const { return false; }
  /// Tell if backward reads args.x and args.y: the memory plan keeps only what is needed alive.
  virtual bool backward_needs_x() const { return true; }
  virtual bool backward_needs_y() const { return true; }
  /// Returns true if backward leaves dy as it was, unless dx is the same memory.
  virtual bool backward_keeps_dy() const { return false; }
  /// Returns true if backward passes dy through unchanged as dx, so that it need not be called when
  /// they are the same memory.
  virtual bool passes_dy() const { return false; }
  /// Returns true if each of several inputs has a gradient of its own, dx and more_dx, none of
  /// which is the same memory as dy; those that nobody asks for are null.
  virtual bool separate_gradients() const { return false; }
  /// Returns a number above 0 if each sample's result depends on all samples of the batch: the
  /// operation then has statistics of this many channels, at the beginning of `saved`, and runs in
  /// four parts. `forward_statistics` writes the moments of x there: a mean for every channel, then
  /// a sum of squared deviations from it. They may be merged with those of other calls
  /// (merge_moments) before `forward` reads them. `backward_statistics` writes sums after them, two
  /// for every channel, and the gradients of the parameters; sums may be added to those of other
  /// calls before `backward` reads them. `saved` is at least 16 * channels bytes.
  virtual std::int64_t coupled_channels() const { return 0; }
  virtual void forward_statistics(const OpArgs&) {}
  virtual void backward_statistics(const OpArgs&) {}
  virtual void forward(const OpArgs& args) = 0;
  virtual void backward(const OpArgs& args) = 0;
  /// Names the implementation chosen, for logs, and for the test that no slow reference
  /// implementation is used.
  virtual std::string implementation() const = 0;
};

}  // namespace dpt
