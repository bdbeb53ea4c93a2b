#include "engine/config/overrides.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "engine/config/issue.h"
#include "engine/config/merge.h"
#include "engine/config/patch.h"
#include "engine/config/scalars.h"
#include "engine/config/spec_tables.h"
#include "engine/config/suggest.h"

namespace dpt {
namespace {

constexpr const char* kLayers = "model.layers.";
constexpr const char* kPatch = "model.patch";

/// Gives everything under `node` the place of the n-th argument.
void place(YamlNode& node, int argument) {
  node.where = {kCommandLine, 0, argument};
  node.key_where = node.where;
  for (YamlNode& child : node.children) place(child, argument);
}

/// Puts one `path=value` into a tree.
class Override {
 public:
  Override(YamlNode& root, const std::string& text, int argument, std::vector<ConfigIssue>& issues)
      : root_(root), text_(text), argument_(argument), issues_(issues) {}

  void apply() {
    const std::size_t equals = text_.find('=');
    path_ = text_.substr(0, equals);
    if (equals == std::string::npos || path_.empty() || path_.front() == '.' ||
        path_.back() == '.' || path_.find("..") != std::string::npos) {
      issue(fmt::format("expected path.to.field=value, found {}", in_quotes(text_)));
      return;
    }
    std::vector<ConfigIssue> problems;
    YamlNode value = parse_yaml(text_.substr(equals + 1), kCommandLine, problems);
    for (const ConfigIssue& problem : problems) {
      issue(fmt::format("the value of {}: {}", path_, problem.text));
    }
    if (value.kind == YamlNode::Kind::broken) return;
    if (path_ == kExtendsKey) {
      issue("'extends' belongs in config files, not on the command line");
      return;
    }
    place(value, argument_);
    set(std::move(value));
  }

 private:
  void issue(std::string text) {
    issues_.push_back({{kCommandLine, 0, argument_}, std::move(text)});
  }

  /// Walks to the node of the path, creates missing mappings, and replaces the node. Unknown names
  /// are reported when the tree is read.
  void set(YamlNode value) {
    YamlNode* node = &root_;
    std::size_t at = 0;
    while (at < path_.size()) {
      if (node->kind == YamlNode::Kind::broken) return;
      node = node->is_list() ? list_item(*node, at) : map_child(*node, at);
      if (!node) return;
    }
    value.key = node->key;
    value.key_where = node->key_where;
    if (path_ == kPatch && node->is_list() && value.is_list()) {
      // Append patches, as if one config extended another.
      for (YamlNode& entry : value.children) node->children.push_back(std::move(entry));
      return;
    }
    *node = std::move(value);
  }

  YamlNode* map_child(YamlNode& node, std::size_t& at) {
    if (node.kind == YamlNode::Kind::null) node.kind = YamlNode::Kind::map;
    if (!node.is_map()) {
      issue(fmt::format("{} is {}, not a mapping, so it has no '{}'", path_.substr(0, at - 1),
                        found_text(node), path_.substr(at)));
      return nullptr;
    }
    const std::size_t end = std::min(path_.find('.', at), path_.size());
    const std::string key = path_.substr(at, end - at);
    at = end + 1;
    if (YamlNode* child = node.find(key)) return child;
    YamlNode child;
    child.key = key;
    place(child, argument_);
    node.children.push_back(std::move(child));
    return &node.children.back();
  }

  /// Finds an item by the longest name that matches (names may have dots), otherwise by index.
  YamlNode* list_item(YamlNode& node, std::size_t& at) {
    YamlNode* found = nullptr;
    std::size_t length = 0;
    for (YamlNode& item : node.children) {
      const std::string name = item.is_map() ? text_of_child(item, "name") : std::string{};
      if (name.empty()) continue;
      const std::size_t end = at + name.size();
      const bool fits =
          path_.compare(at, name.size(), name) == 0 && (end == path_.size() || path_[end] == '.');
      if (fits && name.size() > length) {
        found = &item;
        length = name.size();
      }
    }
    const std::string key = path_.substr(at, path_.find('.', at) - at);
    if (!found) {
      std::size_t index = 0;
      const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), index);
      const bool is_index = error == std::errc{} && end == key.data() + key.size();
      if (is_index && index < node.children.size()) {
        found = &node.children[index];
        length = key.size();
      }
    }
    if (is_list_of_layers(at) && (!found || is_inside(*found, at + length))) {
      if (YamlNode* inside = layer_by_full_name(node, at)) return inside;
    }
    if (!found) {
      no_such_item(node, path_.substr(0, at - 1), key);
      return nullptr;
    }
    at += length + 1;
    return found;
  }

  bool is_list_of_layers(std::size_t at) const { return path_.compare(0, at, kLayers) == 0; }

  /// Returns true if the path continues, after a block, with something that is not a key of the
  /// block.
  bool is_inside(const YamlNode& item, std::size_t end) const {
    static constexpr std::array kKeys = {"type",     "name",   "from",       "layers",
                                         "shortcut", "repeat", "activation", "share_weights"};
    if (!item.find("layers") || end >= path_.size()) return false;
    const std::string key = path_.substr(end + 1, path_.find('.', end + 1) - end - 1);
    return std::find(kKeys.begin(), kKeys.end(), key) == kKeys.end();
  }

  /// Returns the layer, inside a block, whose full name is the longest prefix of the path from `at`
  /// on, and moves `at` past that name. Returns null if there is none.
  YamlNode* layer_by_full_name(YamlNode& layers, std::size_t& at) {
    for (std::size_t end = path_.rfind('.'); end != std::string::npos && end > at;
         end = path_.rfind('.', end - 1)) {
      const std::optional<LayerPlace> place = find_layer(layers, path_.substr(at, end - at));
      if (!place) continue;
      at = end + 1;
      return &place->item();
    }
    return nullptr;
  }

  void no_such_item(const YamlNode& node, const std::string& list, const std::string& key) {
    std::vector<std::string> names;
    for (const YamlNode& item : node.children) {
      const std::string name = item.is_map() ? text_of_child(item, "name") : std::string{};
      if (!name.empty()) names.push_back(name);
    }
    std::string text = fmt::format("{} has no item '{}'", list, key);
    const std::string near = closest(key, names);
    text += near.empty() ? "." : fmt::format(", did you mean '{}'?", near);
    if (node.children.empty()) {
      text += " It is empty";
    } else {
      text += fmt::format(" It has the indices 0 to {}", node.children.size() - 1);
      if (!names.empty()) text += " and the names " + known_names(names);
    }
    issue(std::move(text));
  }

  YamlNode& root_;
  const std::string& text_;
  int argument_;
  std::vector<ConfigIssue>& issues_;
  std::string path_;
};

}  // namespace

bool is_for_layers(const std::string& override_text) {
  return override_text.starts_with(kLayers);
}

void apply_override(YamlNode& root, const std::string& override_text, int argument,
                    std::vector<ConfigIssue>& issues) {
  Override(root, override_text, argument, issues).apply();
}

}  // namespace dpt
