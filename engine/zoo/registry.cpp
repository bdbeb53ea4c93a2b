// The registry of the networks of the zoo.
#include "engine/zoo/kinds.h"

namespace dpt {

const Registry<ZooNet>& zoo_nets() {
  static const Registry<ZooNet> registry("network", all_nets(),
                                         {{"wrn28_10", "wide_resnet28_10"},
                                          {"wrn_28_10", "wide_resnet28_10"},
                                          {"softmax", "logistic"},
                                          {"lenet5", "lenet"}},
                                         "zoo");
  return registry;
}

std::string zoo_layers(const Variant& chosen) {
  return zoo_nets().at(chosen.type).layers(chosen.type, chosen);
}

}  // namespace dpt
