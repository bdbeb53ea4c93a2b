#include "engine/config/merge.h"

#include <algorithm>
#include <unordered_map>

namespace dpt {
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
    // Another kind has other fields: keep only those that all kinds share.
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

}  // namespace dpt
