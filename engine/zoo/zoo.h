// Ready-made networks: `model: {zoo: resnet18, classes: 10}` stands for the layers that are made
// here. One file per family, each a pure function from options to layers, which are text as a
// config would have it: blocks, names, and all.
//
// Names and parameters are torchvision's where it has the network, so that its weights load.
#pragma once

#include <string>
#include <vector>

#include "engine/config/registry.h"

namespace dpt {

/// One network of the zoo.
struct ZooNet {
  const ObjectTable* table = nullptr;                         ///< its name and options
  std::string (*layers)(const std::string&, const Variant&);  ///< a YAML list, of name and options
};

/// Returns the networks of the zoo, as alternatives of `zoo: NAME`.
const Registry<ZooNet>& zoo_nets();

/// The layers that `net` stands for.
std::string zoo_layers(const Variant& net);

}  // namespace dpt
