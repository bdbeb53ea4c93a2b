// A differentiable operation: its parameters, the addresses of one call, and its interface.
// A part of the Backend contract (kernels/backend.h, whose rules apply).
//
// A description that has parameters or running statistics lists their names in `kParams`. A layer's
// parameter has the index of its name in OpArgs::params. For example:
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

/// Maximum numbers of input activations and of parameters of an operation.
inline constexpr int kMaxInputs = 8;
inline constexpr std::size_t kMaxParams = 8;

/// Base of the descriptions that have a weight and an optional bias.
struct WeightAndBias {
  enum : std::size_t { kWeight, kBias };
  static constexpr std::array<std::string_view, 2> kParams{"weight", "bias"};
};

/// Addresses of a parameter or running statistic. All are null if the layer has none of that name.
struct ParamArgs {
  DevPtr f32;
  DevPtr bf16;  ///< bf16 copy, if the description's type is bf16
  /// fp32, or null if not requested. For a parameter, this is its gradient, which backward writes.
  /// For a running statistic, it is its value in this call times OpArgs::samples, which forward
  /// writes.
  DevPtr gradient;

  /// Returns the address of the values in the type of activations.
  DevPtr as(DType type) const { return type == DType::bf16 ? bf16 : f32; }
};

/// Parts of an operation that may have kernels of their own: the output, the gradients of the
/// inputs, and the gradients of the parameters.
enum class Pass : std::uint8_t { forward, backward_data, backward_weights };

/// First or later gradient of an accumulation: the first overwrites, later ones add. Statistics are
/// always written with `overwrite`.
enum class GradWrite : std::uint8_t { overwrite, add };

/// Parts of a gradient that is not complete yet. The gradient is first + second where gate is above
/// 0 or NaN, and 0 elsewhere. So it is the sum of the gradients of two readers, passed through
/// backward of a ReLU with output `gate`. If `second` is null, there is no sum; if `gate` is null,
/// there is no ReLU.
struct GradientParts {
  DevPtr first;  ///< null if the gradient is complete
  DevPtr second, gate;
};

/// Addresses of one call. Unused addresses stay null. `saved` holds the values that backward needs
/// from forward of the same batch. `scratch` may be shared with every other kernel.
struct OpArgs {
  DevPtr x, y;  ///< input and output activations; backward may read both
  std::array<DevPtr, kMaxInputs - 1> more_x{};   ///< inputs after the first
  std::array<DevPtr, kMaxInputs - 1> more_dx{};  ///< see separate_gradients; null: not requested
  std::array<ParamArgs, kMaxParams> params{};    ///< in the order of the description's kParams
  DevPtr dy, dx;  ///< gradients of y (read; may be clobbered, see backward_keeps_dy) and of
                  ///< x (overwritten); dx is for all inputs unless separate_gradients
  GradientParts dy_parts;  ///< given only if Op::completes_dy; dy may be the same memory as a part
  DevPtr saved, scratch;   ///< at least saved_bytes() and scratch_bytes(), 64-byte aligned
  GradWrite write = GradWrite::overwrite;

  // Set only for operations that couple samples (Op::coupled_channels).
  double values = 0;   ///< number of values per channel in the merged statistics
  double samples = 0;  ///< number of samples of the shard

  // Set only for dropout in training: the keys of its draws.
  DevPtr ids;   ///< i64 (batch), as InputArgs
  DevPtr step;  ///< i64 scalar
};

/// A differentiable operation made for one description.
class Op {
 public:
  virtual ~Op() = default;
  virtual std::size_t scratch_bytes() const { return 0; }
  virtual std::size_t saved_bytes() const { return 0; }
  /// Returns true if y may be the same memory as one of the inputs, and dx the same memory as dy.
  virtual bool in_place() const { return false; }
  /// These two return true if backward reads args.x or args.y. Activations that it does not read
  /// need not stay in memory.
  virtual bool backward_needs_x() const { return true; }
  virtual bool backward_needs_y() const { return true; }
  /// Returns true if backward leaves dy as it was, unless dx is the same memory.
  virtual bool backward_keeps_dy() const { return false; }
  /// Returns true if backward passes dy on unchanged as dx. It then need not be called if they are
  /// the same memory.
  virtual bool passes_dy() const { return false; }
  /// Returns true if backward sets dx to dy where y is above 0 or NaN, and to 0 elsewhere.
  virtual bool gates_dy() const { return false; }
  /// Returns true if backward_statistics can complete dy. If OpArgs::dy_parts is given, it first
  /// computes dy from these parts, with the same bits as the operations that it replaces (SumDesc,
  /// then ReluDesc). REQUIRES: coupled_channels() > 0 and backward_keeps_dy().
  virtual bool completes_dy() const { return false; }
  /// Returns true if each of several inputs has a separate gradient (dx and more_dx), in other
  /// memory than dy. Gradients that are not requested are null.
  virtual bool separate_gradients() const { return false; }
  /// Returns a number above 0 if each sample's result depends on all samples of the batch. The
  /// operation then has statistics of this many channels at the beginning of `saved`, which has at
  /// least 16 * channels bytes. It runs in four parts:
  /// 1. `forward_statistics` writes the moments of x there: the mean of every channel, then the sum
  ///    of squared deviations of every channel.
  /// 2. `forward` reads the moments, which may have been merged with those of other calls
  ///    (merge_moments).
  /// 3. `backward_statistics` writes two sums for every channel after the moments, and the
  ///    gradients of the parameters.
  /// 4. `backward` reads the sums, which may have been added to those of other calls.
  virtual std::int64_t coupled_channels() const { return 0; }
  virtual void forward_statistics(const OpArgs&) {}
  virtual void backward_statistics(const OpArgs&) {}
  virtual void forward(const OpArgs& args) = 0;
  virtual void backward(const OpArgs& args) = 0;
  /// Returns true if backward can also run in three parts: `begin_backward`, then `backward_params`
  /// and `backward_data`. backward_params computes the gradients of the parameters, and
  /// backward_data computes dx. These two may overlap: backward_data writes only dx and reads no
  /// scratch.
  virtual bool has_backward_parts() const { return false; }
  virtual void begin_backward(const OpArgs&) {}
  virtual void backward_params(const OpArgs&) {}
  virtual void backward_data(const OpArgs&) {}
  /// Returns true if backward rounds its operands to the operation's type after transforming them
  /// (Winograd's filtering in bf16). Then the errors of gradients are up to three times as large.
  virtual bool backward_rounds_transforms() const { return false; }
  /// Returns the name of the implementation that was chosen. It is for logs, and for the test that
  /// no slow reference implementation is used.
  virtual std::string implementation() const = 0;
  /// Returns the name of the kernel that computes a pass, if another could replace it (see
  /// OpFactory::avoid). Otherwise returns an empty string.
  virtual std::string replaceable_kernel(Pass) const { return {}; }
};

}  // namespace dpt
