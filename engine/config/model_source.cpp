#include "engine/config/model_source.h"

#include <cassert>
#include <map>
#include <optional>

#include <fmt/ranges.h>

#include "engine/config/binder.h"
#include "engine/config/issue.h"
#include "engine/config/merge.h"
#include "engine/config/overrides.h"
#include "engine/config/patch.h"
#include "engine/config/scalars.h"

namespace dpt {
namespace {

constexpr const char* kLayersKey = "layers";

void place(YamlNode& node, const Where& where) {
  node.where = node.key_where = where;
  for (YamlNode& child : node.children) place(child, where);
}

/// Returns the zoo network that the mapping chooses, with its options. The result has no type if
/// the mapping is invalid; the reader will report that.
Variant zoo_of(const SpecTables& tables, const YamlNode& model) {
  ModelSpec scratch;
  std::vector<ConfigIssue> issues;
  std::map<std::string, Where> origins;
  Binder(tables.root, model.where.file, issues, origins)
      .read_object(tables.model, &scratch, model, "model");
  return issues.empty() ? scratch.zoo : Variant{};
}

/// Returns the layers of a network. All get the position `where`, at which the config names the
/// network.
YamlNode layers_of(const Catalog& catalog, const Variant& zoo, const Where& where) {
  std::vector<ConfigIssue> issues;
  YamlNode layers = parse_yaml(catalog.zoo_layers(zoo), "zoo", issues);
  assert(issues.empty() && layers.is_list());
  place(layers, where);
  layers.key = kLayersKey;
  return layers;
}

/// Removes the child from the mapping and returns it; nothing if there is none.
std::optional<YamlNode> take_child(YamlNode& map, const std::string& key) {
  const YamlNode* child = map.find(key);
  if (!child) return std::nullopt;
  YamlNode taken = *child;
  remove_child(map, key);
  return taken;
}

/// Adds `key: value` to the model, as if written at `where`, unless the model has the key.
void add_value(YamlNode& model, const char* key, const std::string& value, const Where& where) {
  if (model.find(key)) return;
  std::vector<ConfigIssue> issues;
  YamlNode node = parse_yaml(value, "data", issues);
  assert(issues.empty());
  place(node, where);
  node.key = key;
  model.children.push_back(std::move(node));
}

/// Arbitrary number of outputs for an invalid data section, which is reported elsewhere.
constexpr std::int64_t kAnyOutputs = 2;

/// Returns the data set of the data section. The result has no table if one of the data set's own
/// fields is invalid.
Variant dataset_of(const SpecTables& tables, const YamlNode& data) {
  DataSpec scratch;
  std::vector<ConfigIssue> issues;
  std::map<std::string, Where> origins;
  Binder(tables.root, data.where.file, issues, origins)
      .read_object(tables.data, &scratch, data, "data");
  if (!scratch.dataset.table) return {};
  for (const ConfigIssue& issue : issues) {
    for (const Field& field : scratch.dataset.table->fields) {
      if (concerns(issue, "data." + field.name)) return {};
    }
  }
  return scratch.dataset;
}

/// Returns the number of outputs that the data set requires; unset if it leaves that open.
std::optional<std::int64_t> outputs_for(const SpecTables& tables, const Catalog& catalog,
                                        const YamlNode* data, const Where& where,
                                        std::vector<ConfigIssue>& issues) {
  if (!data || !data->is_map()) return kAnyOutputs;
  const Variant dataset = dataset_of(tables, *data);
  if (!dataset.table) return kAnyOutputs;
  try {
    return catalog.data_outputs(dataset);
  } catch (const Error& error) {
    issues.push_back({where, std::string(kClassesUnknown) + error.what(),
                      error.kind() == ErrorKind::data, "data"});
    return kAnyOutputs;
  }
}

/// Adds the data set's input or classes to a network of the zoo that lacks them, as if written at
/// `where`. If the data set does not state them, the reader reports them as missing.
void complete_from_data(const SpecTables& tables, const Catalog& catalog, const YamlNode* data,
                        YamlNode& model, const Where& where, std::vector<ConfigIssue>& issues) {
  const YamlNode* dataset = data && data->is_map() ? data->find("dataset") : nullptr;
  const std::string name = dataset ? read_string(*dataset).value.value_or("") : "";
  if (const auto facts = catalog.data_facts ? catalog.data_facts(name) : std::nullopt) {
    add_value(model, "input", fmt::format("[{}]", fmt::join(facts->input, ", ")), where);
    add_value(model, "classes", fmt::format("{}", facts->classes), where);
  }
  if (!catalog.data_outputs || model.find("classes")) return;
  const auto outputs = outputs_for(tables, catalog, data, where, issues);
  if (outputs) add_value(model, "classes", fmt::format("{}", *outputs), where);
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
      complete_from_data(tables, catalog, tree.find("data"), *model, where, issues);
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
