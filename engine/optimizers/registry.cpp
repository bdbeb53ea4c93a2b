// The registry of optimizers, and the field table of parameter groups, which all optimizers share.
#include "engine/optimizers/kinds.h"

namespace dpt {

const Registry<OptimizerKind>& optimizer_kinds() {
  static const Registry<OptimizerKind> registry("optimizer", all_optimizers(),
                                                {{"Momentum", "SGD"},
                                                 {"momentum", "SGD"},
                                                 {"Nesterov", "SGD"},
                                                 {"NAG", "SGD"},
                                                 {"GradientDescent", "SGD"},
                                                 {"AdamWeightDecay", "AdamW"},
                                                 {"Nadam", "NAdam"},
                                                 {"RectifiedAdam", "RAdam"},
                                                 {"RMSProp", "RMSprop"}});
  return registry;
}

const ObjectTable& param_group_table() {
  using S = ParamGroupSpec;
  static const ObjectTable table = [] {
    ObjectTable made = object_table<S>(
        "groups", "Parameters with their own weight decay or learning rate.",
        {field("match", &S::match,
               "Patterns for names of parameters, such as \"*.bias\". A star matches any number of "
               "characters, a question mark one; the first group that matches a parameter is its "
               "group.")
             .required()
             .items(1, 10'000),
         field("weight_decay", &S::weight_decay,
               "Weight decay of the group, instead of the optimizer's.")
             .at_least(0),
         field("lr_scale", &S::lr_scale, "Factor of the learning rate.").at_least(0)});
    made.set_where = [](void* object, const Where& at) { static_cast<S*>(object)->where = at; };
    return made;
  }();
  return table;
}

OptimizerSpec make_optimizer(const Variant& options) {
  return optimizer_kinds().at(options.type).make(options);
}

std::vector<std::string> OptimizerSpec::state_names() const {
  std::vector<std::string> names;
  for (const OptimizerState& state : states) names.push_back(state.name);
  return names;
}

}  // namespace dpt
