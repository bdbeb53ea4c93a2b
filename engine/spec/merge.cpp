#include "engine/spec/merge.h"

#include <algorithm>
#include <string>
#include <unordered_map>

#include "engine/spec/patch.h"

namespace dpt {
namespace {

std::vector<std::string> names_of(const std::vector<Field>& fields) {
  std::vector<std::string> names;
  for (const Field& field : fields) names.push_back(field.name);
  return names;
}

/// Merges the child `key` of two mappings by its own rules, and takes it out of `over`.
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

/// The base's model keeps what does not belong to its layers if `over` names others.
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

std::string text_of_child(const YamlNode& map, const std::string& key) {
  const YamlNode* child = map.find(key);
  return child && child->kind == YamlNode::Kind::scalar ? child->text : std::string{};
}

void remove_child(YamlNode& map, const std::string& key) {
  std::erase_if(map.children, [&](const YamlNode& child) { return child.key == key; });
}

void merge(YamlNode& base, YamlNode over, const std::string& tag,
           const std::vector<std::string>& shared) {
  if (!base.is_map() || !over.is_map()) {
    base = std::move(over);
    return;
  }
  const std::string old_kind = text_of_child(base, tag);
  const std::string new_kind = text_of_child(over, tag);
  if (!old_kind.empty() && !new_kind.empty() && old_kind != new_kind) {
    // Another kind has other fields: only those that all kinds share stay.
    std::erase_if(base.children, [&](const YamlNode& child) {
      return std::find(shared.begin(), shared.end(), child.key) == shared.end();
    });
  }
  base.where = over.where;
  std::unordered_map<std::string, std::size_t> index;
  for (std::size_t i = 0; i < base.children.size(); ++i) index.emplace(base.children[i].key, i);
  for (YamlNode& child : over.children) {
    const auto found = index.find(child.key);
    if (found == index.end()) {
      base.children.push_back(std::move(child));
      continue;
    }
    YamlNode* old = &base.children[found->second];
    std::string key = child.key;
    const Where key_where = child.key_where;
    merge(*old, std::move(child));
    old->key = std::move(key);
    old->key_where = key_where;
  }
}

void merge_configs(YamlNode& base, YamlNode over, const SpecTables& tables) {
  merge_child(base, over, "data", [&](YamlNode& old, YamlNode now) {
    merge(old, std::move(now), "dataset", names_of(tables.data.fields));
  });
  merge_child(base, over, "model",
              [&](YamlNode& old, YamlNode now) { merge_models(old, std::move(now), tables); });
  merge(base, std::move(over));
}

}  // namespace dpt
