// One function per family of networks, and the list of them.
#pragma once

#include <vector>

#include "engine/zoo/zoo.h"

namespace dpt {

std::vector<ZooNet> simple_family();
std::vector<ZooNet> alexnet_family();
std::vector<ZooNet> vgg_family();
std::vector<ZooNet> resnet_family();
std::vector<ZooNet> wide_resnet_family();
std::vector<ZooNet> mobilenet_family();
std::vector<ZooNet> squeezenet_family();
std::vector<ZooNet> densenet_family();
std::vector<ZooNet> convnext_family();

/// Returns the networks of all families, in the order of the reference.
inline std::vector<ZooNet> all_nets() {
  std::vector<ZooNet> all;
  for (const auto& family :
       {simple_family(), alexnet_family(), vgg_family(), resnet_family(), wide_resnet_family(),
        mobilenet_family(), squeezenet_family(), densenet_family(), convnext_family()}) {
    all.insert(all.end(), family.begin(), family.end());
  }
  return all;
}

}  // namespace dpt
