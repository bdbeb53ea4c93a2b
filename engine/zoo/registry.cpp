// All networks of the zoo: one line for each family. The functions are in the families' own files.
#include <cassert>

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

namespace {

constexpr std::vector<ZooNet> (*kFamilies[])() = {
    &simple_family,       //
    &alexnet_family,      //
    &vgg_family,          //
    &resnet_family,       //
    &wide_resnet_family,  //
    &mobilenet_family,    //
    &squeezenet_family,   //
    &densenet_family,     //
    &convnext_family,     //
};

const std::vector<ZooNet>& all_nets() {
  static const std::vector<ZooNet> nets = [] {
    std::vector<ZooNet> all;
    for (const auto family : kFamilies) {
      for (const ZooNet& net : family()) all.push_back(net);
    }
    return all;
  }();
  return nets;
}

}  // namespace

const VariantTable& zoo_table() {
  static const VariantTable table = [] {
    VariantTable made;
    made.what = "network";
    made.tag = "zoo";
    for (const ZooNet& net : all_nets()) made.alternatives.push_back(net.table);
    made.hints = {{"wrn28_10", "wide_resnet28_10"},
                  {"wrn_28_10", "wide_resnet28_10"},
                  {"softmax", "logistic"},
                  {"lenet5", "lenet"}};
    return made;
  }();
  return table;
}

std::string zoo_layers(const Variant& chosen) {
  for (const ZooNet& net : all_nets()) {
    if (net.table->name == chosen.type) return net.layers(chosen.type, chosen);
  }
  assert(false && "zoo_layers: the reader lets no unknown network through");
  return {};
}

}  // namespace dpt
