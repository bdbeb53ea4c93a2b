// The operations of a network: the list of all descriptions, and the part of the Backend contract
// (kernels/backend.h, whose rules apply) that creates kernels from them.
#pragma once

#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "kernels/conv_descs.h"
#include "kernels/element_descs.h"
#include "kernels/input_op.h"
#include "kernels/loss_op.h"
#include "kernels/norm_descs.h"
#include "kernels/op.h"

namespace dpt {

/// List of all operations: applies the macro EACH to the type of each description. Each backend
/// uses it to declare an overload of its function that creates a kernel, so a backend that lacks an
/// operation does not link.
#define DPT_OPS(EACH) DPT_CONV_OPS(EACH) DPT_ELEMENT_OPS(EACH) DPT_NORM_OPS(EACH)

template <class First, class... Descs>
using VariantWithoutFirst = std::variant<Descs...>;

/// Description of any operation.
#define DPT_AND_TYPE(Desc) , Desc
using OpDesc = VariantWithoutFirst<void DPT_OPS(DPT_AND_TYPE)>;
#undef DPT_AND_TYPE

/// Returns the description's kParams, or nothing if it has no parameters.
inline std::span<const std::string_view> param_names(const OpDesc& desc) {
  return std::visit(
      []<class Desc>(const Desc&) -> std::span<const std::string_view> {
        if constexpr (requires { Desc::kParams; }) {
          static_assert(Desc::kParams.size() <= kMaxParams);
          return Desc::kParams;
        } else {
          return {};
        }
      },
      desc);
}

/// Returns the type of the activations.
inline DType type_of(const OpDesc& desc) {
  return std::visit([](const auto& each) { return each.type; }, desc);
}

/// Creates kernels from descriptions ("describe once, execute many times"). The Backend must
/// outlive the kernels. Throws ErrorKind::device for a description that the device cannot run.
class OpFactory {
 public:
  virtual ~OpFactory() = default;
  virtual std::unique_ptr<Op> make(const OpDesc& desc) = 0;
  /// Lets `make` use the kernels with these names (Op::replaceable_kernel) only where no others can
  /// run. Existing operations keep their kernels.
  virtual void avoid([[maybe_unused]] const std::set<std::string>& kernels) {}
  virtual std::unique_ptr<LossOp> make_loss(const LossOpDesc& desc) = 0;
  virtual std::unique_ptr<InputOp> make_input(const InputDesc& desc) = 0;
};

}  // namespace dpt
