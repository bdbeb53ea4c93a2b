#include "engine/spec/model_source.h"

#include <cassert>
#include <map>
#include <optional>

#include <fmt/ranges.h>

#include "engine/spec/binder.h"
#include "engine/spec/merge.h"
#include "engine/spec/overrides.h"
#include "engine/spec/patch.h"
#include "engine/spec/scalars.h"

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

/// Where a network of the zoo does not say its input or its classes, they become those of the data
/// set, as if they stood at `zoo`. What the data set does not tell, the reader will miss.
void complete_from_data(const Catalog& catalog, const YamlNode* data, YamlNode& model,
                        const Where& where) {
  const YamlNode* dataset = data && data->is_map() ? data->find("dataset") : nullptr;
  if (!dataset || !catalog.data_facts) return;
  const std::string name = read_string(*dataset).value.value_or("");
  const std::optional<DataFacts> facts = catalog.data_facts(name);
  if (!facts) return;
  const auto add = [&](const char* key, const std::string& value) {
    if (model.find(key)) return;
    std::vector<ConfigIssue> issues;
    YamlNode node = parse_yaml(value, "data", issues);
    assert(issues.empty());
    place(node, where);
    node.key = key;
    model.children.push_back(std::move(node));
  };
  add("input", fmt::format("[{}]", fmt::join(facts->input, ", ")));
  add("classes", fmt::format("{}", facts->classes));
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
      complete_from_data(catalog, tree.find("data"), *model, where);
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
