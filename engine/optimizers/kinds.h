// One function per kind of optimizer, the list of them, and templates for their sources.
#pragma once

#include <cstring>
#include <type_traits>
#include <utility>

#include "engine/optimizers/optimizer.h"
#include "kernels/common/optimizers/formulas.h"

namespace dpt {

OptimizerKind sgd_optimizer();
OptimizerKind adam_optimizer();
OptimizerKind adamw_optimizer();
OptimizerKind nadam_optimizer();
OptimizerKind radam_optimizer();
OptimizerKind rmsprop_optimizer();
OptimizerKind adagrad_optimizer();
OptimizerKind adadelta_optimizer();
OptimizerKind yogi_optimizer();
OptimizerKind lion_optimizer();
OptimizerKind lars_optimizer();
OptimizerKind lamb_optimizer();

/// Returns all optimizers, in the order of docs/reference/config.md.
inline std::vector<OptimizerKind> all_optimizers() {
  return {sgd_optimizer(),   adam_optimizer(),    adamw_optimizer(),   nadam_optimizer(),
          radam_optimizer(), rmsprop_optimizer(), adagrad_optimizer(), adadelta_optimizer(),
          yogi_optimizer(),  lion_optimizer(),    lars_optimizer(),    lamb_optimizer()};
}

/// Options that all optimizers have. The options of each optimizer derive from them and may change
/// their defaults.
struct OptimizerOptions {
  double lr = 1e-3;
  double weight_decay = 0.0;
  bool maximize = false;
  std::vector<ParamGroupSpec> groups;
};

/// Returns the field of the options S for a member that S inherits from `Base`.
template <class S, class Base, class T>
Field inherited_field(const char* name, T Base::*member, const char* doc) {
  return field(name, static_cast<T S::*>(member), doc);
}

constexpr const char* kL2Penalty = "L2 penalty, added to the gradient.";
constexpr const char* kDecoupledDecay =
    "Decoupled weight decay: each update multiplies the weights by 1 - lr * weight_decay.";

/// Returns the field table of an optimizer with the options S. The fields `own` come between the
/// fields that all optimizers have.
template <class S>
ObjectTable optimizer_table_of(const char* name, const char* doc, const char* weight_decay_doc,
                               std::initializer_list<Field> own,
                               std::string (*check)(const S&) = nullptr) {
  ObjectTable table = object_table<S>(name, doc, {}, check);
  table.fields.push_back(inherited_field<S>("lr", &OptimizerOptions::lr,
                                            "Learning rate, before lr_schedule is applied.")
                             .at_least(0));
  table.fields.insert(table.fields.end(), own);
  table.fields.push_back(
      inherited_field<S>("weight_decay", &OptimizerOptions::weight_decay, weight_decay_doc)
          .at_least(0));
  table.fields.push_back(inherited_field<S>("maximize", &OptimizerOptions::maximize,
                                            "Maximise the loss instead of minimising it."));
  table.fields.push_back(objects_field(
      "groups", static_cast<std::vector<ParamGroupSpec> S::*>(&OptimizerOptions::groups),
      param_group_table(), "Parameter groups."));
  return table;
}

/// Returns the spec of an optimizer with this formula. `step(lr, weight_decay, t)` returns the Step
/// of update number t, counted from 1. As in PyTorch, the constants of an update are computed in
/// double; the kernels compute in float.
template <class Formula, class MakeStep>
OptimizerSpec optimizer_spec(const OptimizerOptions& options, std::vector<OptimizerState> states,
                             MakeStep step) {
  static_assert(std::is_same_v<std::invoke_result_t<MakeStep, double, double, std::int64_t>,
                               typename Formula::Step>);
  OptimizerSpec spec;
  spec.formula = formula_index<Formula>();
  spec.lr = options.lr;
  spec.weight_decay = options.weight_decay;
  spec.is_layerwise = LayerwiseFormula<Formula>;
  spec.states = std::move(states);
  spec.groups = options.groups;
  const float sign = options.maximize ? -1.0F : 1.0F;
  spec.update_step = [sign, step = std::move(step)](double lr, double weight_decay,
                                                    std::int64_t t) {
    const FormulaStep<Formula> now = {sign, step(lr, weight_decay, t)};
    UpdateStep block = {};
    std::memcpy(&block, &now, sizeof(now));
    return block;
  };
  return spec;
}

}  // namespace dpt
