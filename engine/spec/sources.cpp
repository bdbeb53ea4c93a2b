#include "engine/spec/sources.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>

#include "engine/spec/paths.h"
#include "engine/spec/scalars.h"
#include "engine/spec/stored_spec.h"

namespace dpt {
namespace {

constexpr std::size_t kMaxExtends = 16;

/// Names the file by which cycles are found.
std::string identity(const std::string& file) {
  std::error_code error;
  const auto path = std::filesystem::weakly_canonical(file, error);
  return error ? file : path.string();
}

std::string tag_value(const YamlNode& map, const std::string& tag) {
  const YamlNode* child = map.find(tag);
  return child && child->kind == YamlNode::Kind::scalar ? child->text : std::string{};
}

void remove_child(YamlNode& map, const std::string& key) {
  std::erase_if(map.children, [&](const YamlNode& child) { return child.key == key; });
}

/// Merges `over` into `base`: mappings merge, everything else replaces.
void merge(YamlNode& base, YamlNode over, const ObjectTable* data) {
  if (!base.is_map() || !over.is_map()) {
    base = std::move(over);
    return;
  }
  const std::string tag = data ? "dataset" : "type";
  const std::string old_kind = tag_value(base, tag);
  const std::string new_kind = tag_value(over, tag);
  if (!old_kind.empty() && !new_kind.empty() && old_kind != new_kind) {
    // Another kind has other fields: only those that all kinds share stay.
    std::erase_if(base.children, [&](const YamlNode& child) {
      return !data || std::none_of(data->fields.begin(), data->fields.end(),
                                   [&](const Field& f) { return f.name == child.key; });
    });
  }
  base.where = over.where;
  for (YamlNode& child : over.children) {
    YamlNode* old = base.find(child.key);
    if (!old) {
      base.children.push_back(std::move(child));
      continue;
    }
    std::string key = child.key;
    const Where key_where = child.key_where;
    merge(*old, std::move(child), nullptr);
    old->key = std::move(key);
    old->key_where = key_where;
  }
}

void merge_root(YamlNode& base, YamlNode over, const SpecTables& tables) {
  YamlNode* old_data = base.is_map() ? base.find("data") : nullptr;
  const YamlNode* new_data = over.is_map() ? over.find("data") : nullptr;
  if (old_data && new_data) {
    const Where key_where = new_data->key_where;
    merge(*old_data, *new_data, &tables.data);
    old_data->key = "data";
    old_data->key_where = key_where;
    remove_child(over, "data");
  }
  merge(base, std::move(over), nullptr);
}

class Loader {
 public:
  Loader(const SpecTables& tables, std::vector<std::string>& files,
         std::vector<ConfigIssue>& issues)
      : tables_(tables), files_(files), issues_(issues) {}

  YamlNode load(const std::string& text, const std::string& file) {
    files_.push_back(file);
    chain_.push_back(identity(file));
    YamlNode tree = parse_yaml(text, file, issues_);
    if (tree.is_map()) {
      if (const YamlNode* extends = tree.find(kExtendsKey)) {
        std::optional<YamlNode> base = load_base(*extends, file);
        remove_child(tree, kExtendsKey);
        if (base && base->kind != YamlNode::Kind::map) {
          // What is wrong with the base is already reported; its fields would all seem missing.
          tree = std::move(*base);
        } else if (base) {
          merge_root(*base, std::move(tree), tables_);
          tree = std::move(*base);
        }
      }
    }
    chain_.pop_back();
    return tree;
  }

 private:
  YamlNode broken(const Where& at, std::string text) {
    issues_.push_back({at, std::move(text)});
    YamlNode node;
    node.kind = YamlNode::Kind::broken;
    return node;
  }

  std::optional<YamlNode> load_base(const YamlNode& extends, const std::string& file) {
    const Scalar<std::string> name = read_string(extends);
    if (!name.value || name.value->empty()) {
      if (extends.kind == YamlNode::Kind::broken) return extends;
      return broken(
          extends.where,
          fmt::format("expected the path of a config in 'extends', found {}", found_text(extends)));
    }
    const ExpandedPath expanded = expand_variables(*name.value);
    if (!expanded.problem.empty()) return broken(extends.where, expanded.problem);
    std::string path = expanded.path;
    if (!std::filesystem::path(path).is_absolute()) {
      path = (std::filesystem::path(file).parent_path() / path).string();
    }
    const std::string id = identity(path);
    if (std::find(chain_.begin(), chain_.end(), id) != chain_.end()) {
      return broken(extends.where,
                    fmt::format("'extends' leads back to {}: a config cannot extend itself", path));
    }
    if (chain_.size() >= kMaxExtends) {
      return broken(extends.where,
                    fmt::format("expected at most {} configs that extend one another, found more",
                                kMaxExtends));
    }
    std::string text;
    try {
      text = read_config_text(path);
    } catch (const Error& error) {
      return broken(extends.where, error.what());
    }
    YamlNode base = load(text, path);
    if (base.kind == YamlNode::Kind::map || base.kind == YamlNode::Kind::broken) return base;
    return broken(base.where, fmt::format("expected a config, found {}", found_text(base)));
  }

  const SpecTables& tables_;
  std::vector<std::string>& files_;
  std::vector<ConfigIssue>& issues_;
  std::vector<std::string> chain_;
};

/// Marks everything under `node` as the n-th argument's.
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

  /// Walks to the node of the path, making mappings on the way, and replaces it. Whether the names
  /// are known is found out when the tree is read.
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

  /// By name, where the longest one that fits wins (names may have dots), else by index.
  YamlNode* list_item(YamlNode& node, std::size_t& at) {
    YamlNode* found = nullptr;
    std::size_t length = 0;
    std::vector<std::string> names;
    for (YamlNode& item : node.children) {
      const std::string name = item.is_map() ? tag_value(item, "name") : std::string{};
      if (name.empty()) continue;
      names.push_back(name);
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
    if (!found) {
      no_such_item(node, path_.substr(0, at - 1), key, names);
      return nullptr;
    }
    at += length + 1;
    return found;
  }

  void no_such_item(const YamlNode& node, const std::string& list, const std::string& key,
                    const std::vector<std::string>& names) {
    std::string text = fmt::format("{} has no item '{}'", list, key);
    const std::string near = closest(key, names);
    text += near.empty() ? "." : fmt::format(", did you mean '{}'?", near);
    if (node.children.empty()) {
      text += " It is empty";
    } else {
      text += fmt::format(" It has the indices 0 to {}", node.children.size() - 1);
      if (!names.empty()) text += fmt::format(" and the names {}", fmt::join(names, ", "));
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

std::string read_config_text(const std::string& file) {
  std::error_code error;
  if (std::filesystem::is_directory(file, error)) {
    fail(ErrorKind::usage, "cannot read the config {}: it is a folder", file);
  }
  std::ifstream in(file, std::ios::binary);
  if (!in) fail(ErrorKind::usage, "cannot read the config {}: {}", file, std::strerror(errno));
  // One byte past the limit is enough to know that it is too long, also for an endless device.
  std::string text(kMaxConfigBytes + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (in.bad()) fail(ErrorKind::usage, "cannot read the config {}: {}", file, std::strerror(errno));
  text.resize(static_cast<std::size_t>(in.gcount()));
  if (text.size() > kMaxConfigBytes) {
    fail(ErrorKind::usage, "cannot read the config {}: expected at most {} bytes, found more", file,
         kMaxConfigBytes);
  }
  return text;
}

YamlNode load_tree(const SpecTables& tables, const std::string& text, const std::string& file,
                   const std::vector<std::string>& overrides, bool stored,
                   std::vector<std::string>& files, std::vector<ConfigIssue>& issues) {
  YamlNode tree = Loader(tables, files, issues).load(text, file);
  if (tree.kind == YamlNode::Kind::broken) return tree;
  if (stored) rename_former_keys(tables.root, tree);
  int argument = 0;
  for (const std::string& text_of_override : overrides) {
    Override(tree, text_of_override, ++argument, issues).apply();
  }
  return tree;
}

}  // namespace dpt
