#include "engine/spec/model_source.h"

#include <cassert>
#include <map>
#include <optional>

#include "engine/spec/binder.h"
#include "engine/spec/merge.h"
#include "engine/spec/overrides.h"
#include "engine/spec/patch.h"

namespace dpt {
namespace {

constexpr const char* kLayersKey = "layers";

void place(YamlNode& node, const Where& where) {
  node.where = node.key_where = where;
  for (YamlNode& child : node.children) place(child, where);
}

/// The network that the mapping chooses, with its options; without a type if it is not right, which
/// the reader will report.
Variant zoo_of(const SpecTables& tables, const YamlNode& model) {
  ModelSpec scratch;
  std::vector<ConfigIssue> issues;
  std::map<std::string, Where> origins;
  Binder(tables.root, model.where.file, issues, origins)
      .read_object(tables.model, &scratch, model, "model");
  return issues.empty() ? scratch.zoo : Variant{};
}

/// The layers of a network, each where the config names the network.
YamlNode layers_of(const Catalog& catalog, const Variant& zoo, const Where& where) {
  std::vector<ConfigIssue> issues;
  YamlNode layers = parse_yaml(catalog.zoo_layers(zoo), "zoo", issues);
  assert(issues.empty() && layers.is_list());
  place(layers, where);
  layers.key = kLayersKey;
  return layers;
}

/// Takes the child out of the mapping.
std::optional<YamlNode> take_child(YamlNode& map, const std::string& key) {
  const YamlNode* child = map.find(key);
  if (!child) return std::nullopt;
  YamlNode taken = *child;
  remove_child(map, key);
  return taken;
}

}  // namespace

void make_layers(const SpecTables& tables, const Catalog& catalog, YamlNode& tree,
                 const std::vector<LayerOverride>& overrides, std::vector<ConfigIssue>& issues) {
  YamlNode* model = tree.is_map() ? tree.find("model") : nullptr;
  Variant zoo;
  if (model && model->is_map()) {
    const std::optional<YamlNode> patch = take_child(*model, kPatchKey);
    if (const YamlNode* tag = model->find(kZooTag)) {
      const Where where = tag->where;
      if (model->find(kLayersKey)) {
        issues.push_back({where,
                          "expected 'zoo' or 'layers' in model, found both; to change "
                          "layers of a network of the zoo, write 'patch'"});
        return;
      }
      zoo = zoo_of(tables, *model);
      if (zoo.type.empty()) return;
      model->children.push_back(layers_of(catalog, zoo, where));
    }
    YamlNode* layers = model->find(kLayersKey);
    if (patch && layers && layers->is_list()) apply_patch(*layers, *patch, issues);
    if (!zoo.type.empty() && (patch || !overrides.empty())) {
      remove_child(*model, kZooTag);
      for (const Field& field : zoo.table->fields) remove_child(*model, field.name);
    }
  }
  for (const LayerOverride& each : overrides) {
    apply_override(tree, each.text, each.argument, issues);
  }
}

}  // namespace dpt
