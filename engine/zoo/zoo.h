// Ready-made networks: `model: {zoo: resnet18, classes: 10}` stands for the layers that are
// generated here. There is one file per family. A network is a pure function from options to
// layers, as text that a config could contain, with blocks and names.
//
// Names and parameters are torchvision's if it has the network, so that torchvision's weights can
// be loaded.
#pragma once

#include <string>
#include <vector>

#include "engine/config/registry.h"

namespace dpt {

/// One network of the zoo.
struct ZooNet {
  const ObjectTable* table = nullptr;                         ///< name and options of the network
  std::string (*layers)(const std::string&, const Variant&);  ///< YAML list from name and options
};

/// Returns the networks of the zoo, as alternatives of `zoo: NAME`.
const Registry<ZooNet>& zoo_nets();

/// Returns the layers of `net` as text.
std::string zoo_layers(const Variant& net);

}  // namespace dpt
