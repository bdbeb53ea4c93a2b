// All optimizers: one line each.
#include <algorithm>
#include <array>
#include <cassert>

#include "engine/optimizers/optimizer.h"

namespace dpt {

constexpr OptimizerKind (*kKinds[])() = {
    &optimizer_kind<class SGD>,       //
    &optimizer_kind<class Adam>,      //
    &optimizer_kind<class AdamW>,     //
    &optimizer_kind<class NAdam>,     //
    &optimizer_kind<class RAdam>,     //
    &optimizer_kind<class RMSprop>,   //
    &optimizer_kind<class Adagrad>,   //
    &optimizer_kind<class Adadelta>,  //
    &optimizer_kind<class Yogi>,      //
    &optimizer_kind<class Lion>,      //
    &optimizer_kind<class LARS>,      //
    &optimizer_kind<class LAMB>,      //
};

std::span<const OptimizerKind> optimizer_kinds() {
  static const auto kinds = [] {
    std::array<OptimizerKind, std::size(kKinds)> made{};
    std::transform(std::begin(kKinds), std::end(kKinds), made.begin(),
                   [](OptimizerKind (*kind)()) { return kind(); });
    return made;
  }();
  return kinds;
}

const VariantTable& optimizer_table() {
  static const VariantTable table = [] {
    VariantTable made;
    made.what = "optimizer";
    for (const OptimizerKind& kind : optimizer_kinds()) made.alternatives.push_back(kind.table);
    made.hints = {{"Momentum", "SGD"}, {"momentum", "SGD"},        {"Nesterov", "SGD"},
                  {"NAG", "SGD"},      {"GradientDescent", "SGD"}, {"AdamWeightDecay", "AdamW"},
                  {"Nadam", "NAdam"},  {"RectifiedAdam", "RAdam"}, {"RMSProp", "RMSprop"}};
    return made;
  }();
  return table;
}

const ObjectTable& param_group_table() {
  using S = ParamGroupSpec;
  static const ObjectTable table = [] {
    ObjectTable made = object_table<S>(
        "groups", "Parameters that are updated in another way than the rest.",
        {field("match", &S::match,
               "Patterns over the names of parameters, such as \"*.bias\". A star is any number of "
               "characters, a question mark one; the first group that matches a parameter is its "
               "group.")
             .required()
             .items(1, 10'000),
         field("weight_decay", &S::weight_decay, "Instead of the optimizer's.").at_least(0),
         field("lr_scale", &S::lr_scale, "Factor of the learning rate.").at_least(0)});
    made.set_where = [](void* object, const Where& at) { static_cast<S*>(object)->where = at; };
    return made;
  }();
  return table;
}

OptimizerSpec make_optimizer(const Variant& options) {
  const auto kinds = optimizer_kinds();
  const auto kind = std::find_if(kinds.begin(), kinds.end(), [&](const OptimizerKind& each) {
    return each.table->name == options.type;
  });
  assert(kind != kinds.end() && "the reader admits only names of optimizer_table()");
  return kind->make(options);
}

std::vector<std::string> OptimizerSpec::state_names() const {
  std::vector<std::string> names;
  for (const OptimizerState& state : states) names.push_back(state.name);
  return names;
}

}  // namespace dpt
