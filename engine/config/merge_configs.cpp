#include "engine/config/merge_configs.h"

#include <algorithm>
#include <string>
#include <vector>

#include "engine/config/merge.h"
#include "engine/config/patch.h"

namespace dpt {
namespace {

std::vector<std::string> names_of(const std::vector<Field>& fields) {
  std::vector<std::string> names;
  for (const Field& field : fields) names.push_back(field.name);
  return names;
}

/// Merges the child `key` of two mappings with `merge_values`, and removes it from `over`.
template <class Merge>
void merge_child(YamlNode& base, YamlNode& over, const std::string& key, Merge merge_values) {
  YamlNode* old = base.is_map() ? base.find(key) : nullptr;
  const YamlNode* now = over.is_map() ? over.find(key) : nullptr;
  if (!old || !now) return;
  const Where key_where = now->key_where;
  merge_values(*old, *now);
  old->key = key;
  old->key_where = key_where;
  remove_child(over, key);
}

/// Merges models. If `over` names other layers, drops the base's layers, zoo network and patches.
void merge_models(YamlNode& base, YamlNode over, const SpecTables& tables) {
  const FlatChoice& zoo = tables.model.choice;
  if (base.is_map() && over.is_map()) {
    const YamlNode* tag = over.find(kZooTag);
    const bool is_same_net = tag && text_of_child(base, kZooTag) == tag->text;
    if (over.find(zoo.makes) || (tag && !is_same_net)) {
      const auto stays = [&](const YamlNode& child) {
        const std::vector<std::string> names = names_of(tables.model.fields);
        return child.key != zoo.makes && child.key != kPatchKey &&
               std::find(names.begin(), names.end(), child.key) != names.end();
      };
      std::erase_if(base.children, [&](const YamlNode& child) { return !stays(child); });
    }
  }
  merge_child(base, over, kPatchKey, [](YamlNode& first, YamlNode second) {
    if (!first.is_list() || !second.is_list()) {
      if (first.kind != YamlNode::Kind::broken) first = std::move(second);
      return;
    }
    for (YamlNode& entry : second.children) first.children.push_back(std::move(entry));
  });
  merge(base, std::move(over), kZooTag, names_of(tables.model.fields));
}

}  // namespace

void merge_configs(YamlNode& base, YamlNode over, const SpecTables& tables) {
  merge_child(base, over, "data", [&](YamlNode& old, YamlNode now) {
    merge(old, std::move(now), "dataset", names_of(tables.data.fields));
  });
  merge_child(base, over, "model",
              [&](YamlNode& old, YamlNode now) { merge_models(old, std::move(now), tables); });
  merge(base, std::move(over));
}

}  // namespace dpt
