// One operation on a device with its memory, for the check of its kernels.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/backend.h"
#include "kernels/reference/maths.h"

namespace dpt {

/// Device memory for an array, with guard bytes after it that no kernel may change.
class GuardedArray {
 public:
  GuardedArray(Backend& backend, std::size_t elements, DType type);
  DevPtr ptr() const { return memory_.ptr(); }
  std::size_t bytes() const { return bytes_; }
  void zero() { backend_->zero(ptr(), bytes_); }
  /// Writes values, beginning at element `at`.
  void set(std::span<const double> values, std::size_t at = 0);
  /// Reads values, beginning at element `at`.
  void get(std::size_t at, std::span<float> values) const;
  /// Returns true if nothing was written after the array.
  bool is_guarded() const;

 private:
  template <class T>
  void set_as(std::span<const double> values, std::size_t at);

  Backend* backend_;
  DType type_;
  std::size_t bytes_;
  DeviceMemory memory_;
};

/// A named array of results, on the host, and the pass that computes it.
struct NamedResult {
  std::string name;
  std::vector<float> values;
  Pass pass;
};

/// Variant of a run.
enum class RunVariant : std::uint8_t {
  plain,
  adds,      ///< the gradients of the parameters are added to those of the run before
  in_parts,  ///< backward completes dy from its parts (Op::completes_dy)
  in_place   ///< the output and dx overwrite x and dy (Op::in_place); later runs lack x
};

/// One operation on the device, with its memory.
class OperationRun {
 public:
  /// `live` of the `batch` samples have values. REQUIRES: `backend` and `maths` outlive the run.
  OperationRun(Backend& backend, const OpDesc& desc, const reference::Maths& maths,
               std::int64_t live, std::int64_t batch);
  const Op& op() const { return *op_; }

  void set(const reference::Values& x, const reference::Params& params);
  /// Runs both directions and returns the output and the gradients.
  std::vector<NamedResult> run(const reference::Values& dy, RunVariant variant, bool has_backward);
  /// Returns the results that the reference expects, in the order of `run`.
  std::vector<reference::Values> expected(reference::Values y, const reference::Values& dy,
                                          std::optional<reference::Derivatives> g) const;
  /// Returns the name of an array that a kernel has overrun, or an empty string.
  std::string overrun_array() const;

 private:
  GuardedArray on_device(std::size_t elements) const {
    return {backend_, elements / live_ * batch_, type_};
  }
  /// Parameters after the bias are running statistics, which have no gradient.
  bool has_gradient(std::size_t k) const { return k < 2 && maths_.params[k] > 0; }
  /// Writes the last of the samples that have values to the end of the batch, and the others to its
  /// beginning.
  void set_samples(GuardedArray& array, std::span<const double> values);
  /// Writes dy as the sum of two parts that a ReLU's backward gates. The sum is exact in fp32 and
  /// bf16. The first part is in the memory of dy.
  GradientParts set_parts(const reference::Values& dy);
  /// Reads the samples that have values, from where set_samples writes them.
  void get_samples(const GuardedArray& array, std::span<float> values) const;
  std::vector<float> samples_of(const GuardedArray& array, std::size_t count) const;
  /// Fills memory with NaN, which reveals an element that is never written, or is read too early.
  void forget(DevPtr at, std::size_t bytes);
  /// Fills the start of an array of any size.
  void forget_start(GuardedArray& array);
  /// Fills the samples that are compared.
  void forget_samples(GuardedArray& array);
  OpArgs arguments();

  Backend& backend_;
  const reference::Maths& maths_;
  std::size_t live_, batch_;
  DType type_;
  std::span<const std::string_view> names_;
  std::unique_ptr<Op> op_;
  std::vector<GuardedArray> x_, dx_;
  std::vector<GuardedArray> dy_parts_;  ///< the second part of dy and the gate, if needed
  GuardedArray y_, dy_, saved_, scratch_, ids_, step_;
  std::vector<GuardedArray> weights_, halves_, gradients_;
};

}  // namespace dpt
