#include "engine/config/patch.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string>
#include <unordered_map>

#include "engine/config/issue.h"
#include "engine/config/merge.h"
#include "engine/config/scalars.h"
#include "engine/config/suggest.h"

namespace dpt {
namespace {

constexpr std::array<const char*, 4> kVerbs = {"change", "insert_before", "insert_after", "delete"};

/// Returns the number of copies of a block; 0 if it is not repeated.
std::int64_t copies_in(const YamlNode& item) {
  const YamlNode* repeat = item.find("repeat");
  return repeat ? std::max<std::int64_t>(read_integer(*repeat).value.value_or(0), 0) : 0;
}

/// Returns the number before the first dot; nothing if there is none.
std::optional<std::int64_t> leading_index(const std::string& name) {
  const std::string part = name.substr(0, name.find('.'));
  std::int64_t index = 0;
  const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), index);
  if (error != std::errc{} || end != part.data() + part.size()) return std::nullopt;
  return index;
}

std::size_t count_nodes(const YamlNode& node) {
  std::size_t count = 1;
  for (const YamlNode& child : node.children) count += count_nodes(child);
  return count;
}

/// Returns the copies that a repeated block stands for. Only the first copy keeps the block's
/// `from`.
std::vector<YamlNode> copies_of(YamlNode block, std::int64_t repeat) {
  remove_child(block, "repeat");
  remove_child(block, "name");
  std::vector<YamlNode> copies{block};
  remove_child(block, "from");
  copies.resize(static_cast<std::size_t>(repeat), block);
  return copies;
}

bool may_be_written_out(const YamlNode& block, std::int64_t repeat) {
  return count_nodes(block) * static_cast<std::size_t>(repeat) <= 4 * kMaxConfigNodes;
}

/// Replaces a named, repeated block by a Sequential of its copies.
void write_out(YamlNode& block, std::int64_t repeat) {
  YamlNode layers;
  layers.kind = YamlNode::Kind::list;
  layers.key = "layers";
  layers.where = layers.key_where = block.where;
  layers.children = copies_of(block, repeat);
  for (YamlNode& copy : layers.children) remove_child(copy, "from");
  YamlNode type = *block.find("type");
  type.text = "Sequential";
  std::erase_if(block.children,
                [](const YamlNode& child) { return child.key != "name" && child.key != "from"; });
  block.children.insert(block.children.begin(), std::move(type));
  block.children.push_back(std::move(layers));
}

std::optional<LayerPlace> find_in(YamlNode& list, const std::string& name, std::int64_t& index);

std::optional<LayerPlace> find_in_block(YamlNode& block, const std::string& name) {
  std::int64_t index = 0;
  for (const char* key : {"layers", "shortcut"}) {
    YamlNode* list = block.find(key);
    if (!list || !list->is_list()) continue;
    if (const auto found = find_in(*list, name, index)) return found;
  }
  return std::nullopt;
}

/// Finds a layer in a list. `index` is the index of the list's first item; on return, it is the
/// index after that of the last.
std::optional<LayerPlace> find_in(YamlNode& list, const std::string& name, std::int64_t& index) {
  for (std::size_t i = 0; i < list.children.size(); ++i) {
    YamlNode& item = list.children[i];
    const bool is_layer = item.is_map() && item.find("type");
    const std::string written = is_layer ? text_of_child(item, "name") : std::string();
    const std::int64_t repeat = is_layer ? copies_in(item) : 0;
    if (repeat > 0 && written.empty()) {
      const std::optional<std::int64_t> wanted = leading_index(name);
      const bool is_copy = wanted && *wanted >= index && *wanted < index + repeat;
      if (!is_copy || !may_be_written_out(item, repeat)) {
        index += repeat;
        continue;
      }
      std::vector<YamlNode> copies = copies_of(std::move(item), repeat);
      const auto at = list.children.begin() + static_cast<std::ptrdiff_t>(i);
      list.children.insert(list.children.erase(at), std::make_move_iterator(copies.begin()),
                           std::make_move_iterator(copies.end()));
      --i;  // visit the first copy, which is now at index i
      continue;
    }
    const std::string own = written.empty() ? fmt::format("{}", index) : written;
    ++index;
    if (!is_layer) continue;
    if (name == own) return LayerPlace{&list, i};
    if (!name.starts_with(own + ".")) continue;
    const std::string rest = name.substr(own.size() + 1);
    if (repeat > 0) {
      const std::optional<std::int64_t> copy = leading_index(rest);
      const bool is_copy = copy && *copy >= 0 && *copy < repeat;
      if (!is_copy || !may_be_written_out(item, repeat)) continue;
      write_out(item, repeat);
    }
    if (const auto found = find_in_block(item, rest)) return found;
  }
  return std::nullopt;
}

/// Appends the names of a list's items, in order.
void add_names(const YamlNode& list, std::int64_t& index, std::vector<std::string>& names) {
  for (const YamlNode& item : list.children) {
    const std::string written = item.is_map() ? text_of_child(item, "name") : std::string();
    if (!written.empty()) {
      names.push_back(written);
      ++index;
      continue;
    }
    const std::int64_t copies = item.is_map() ? std::max<std::int64_t>(copies_in(item), 1) : 1;
    for (std::int64_t copy = 0; copy < std::min<std::int64_t>(copies, 100); ++copy) {
      names.push_back(fmt::format("{}", index + copy));
    }
    index += copies;
  }
}

/// Finds layers of a list like find_layer. Indexes those with a plain name, because a walk through
/// the list for each of many changes would take quadratic time.
class Finder {
 public:
  explicit Finder(YamlNode& layers) : layers_(layers) {}

  std::optional<LayerPlace> find(const std::string& name) {
    if (name.find('.') != std::string::npos || leading_index(name)) {
      is_indexed_ = false;  // find_layer may write out the copies of a block
      return find_layer(layers_, name);
    }
    if (!is_indexed_) make_index();
    const auto found = index_.find(name);
    if (found == index_.end()) return std::nullopt;
    return LayerPlace{&layers_, found->second};
  }

  /// Records that `count` layers were inserted before the one at `place`.
  void inserted(const LayerPlace& place, std::size_t count) {
    if (place.list != &layers_ || !is_indexed_) return;
    for (auto& [name, at] : index_) {
      if (at >= place.index) at += count;
    }
    for (std::size_t i = place.index; i < place.index + count; ++i) add(i);
  }

  /// Records that a layer was removed or renamed.
  void forget() { is_indexed_ = false; }

 private:
  void make_index() {
    index_.clear();
    for (std::size_t i = 0; i < layers_.children.size(); ++i) add(i);
    is_indexed_ = true;
  }

  /// Adds a layer to the index. Of several layers with the same name, the first is found.
  void add(std::size_t at) {
    const YamlNode& item = layers_.children[at];
    if (!item.is_map() || !item.find("type")) return;
    const std::string name = text_of_child(item, "name");
    if (name.empty()) return;
    const auto [other, is_new] = index_.emplace(name, at);
    if (!is_new) other->second = std::min(other->second, at);
  }

  YamlNode& layers_;
  std::unordered_map<std::string, std::size_t> index_;
  bool is_indexed_ = false;
};

class Patcher {
 public:
  Patcher(YamlNode& layers, std::vector<ConfigIssue>& issues)
      : layers_(layers), finder_(layers), issues_(issues) {}

  void apply(const YamlNode& entry) {
    const YamlNode* verb = verb_of(entry);
    if (!verb) return;
    const Scalar<std::string> name = read_string(*verb);
    if (!name.value) {
      issue(verb->where, fmt::format("expected the name of a layer, found {}{}", found_text(*verb),
                                     name.hint.empty() ? "" : "; " + name.hint));
      return;
    }
    const bool is_insert = verb->key.starts_with("insert");
    if (verb->key != "change" && !has_only(entry, verb->key, is_insert)) return;
    if (verb->key == "change" && entry.children.size() == 1) {
      issue(entry.where,
            fmt::format("expected the fields to change in layer '{}', found none", *name.value));
      return;
    }
    const std::optional<LayerPlace> place = finder_.find(*name.value);
    if (!place) {
      issue(verb->where, issues_.size() < kMaxIssues
                             ? no_such_layer(layers_, *name.value)
                             : "there is no layer " + in_quotes(*name.value));
      return;
    }
    if (is_insert) {
      insert(*place, *entry.find("layers"), verb->key == "insert_after");
    } else if (verb->key == "delete") {
      place->list->children.erase(place->list->children.begin() +
                                  static_cast<std::ptrdiff_t>(place->index));
      finder_.forget();
    } else {
      YamlNode over = entry;
      remove_child(over, verb->key);
      over.key = place->item().key;
      if (over.find("name")) finder_.forget();
      merge(place->item(), std::move(over), "type", {"name", "from"});
    }
  }

 private:
  void issue(const Where& where, std::string text) { issues_.push_back({where, std::move(text)}); }

  /// Returns the key that states the change. Reports an issue and returns null unless there is
  /// exactly one.
  const YamlNode* verb_of(const YamlNode& entry) {
    if (entry.kind == YamlNode::Kind::broken) return nullptr;
    const YamlNode* verb = nullptr;
    std::vector<std::string> found;
    for (const YamlNode& child : entry.children) {
      if (!entry.is_map()) break;
      const bool is_verb = std::find(kVerbs.begin(), kVerbs.end(), child.key) != kVerbs.end();
      if (is_verb) verb = &child;
      if (is_verb) found.push_back(child.key);
    }
    if (found.size() == 1) return verb;
    std::string text =
        fmt::format("expected one of {} in an entry of 'patch', found ", fmt::join(kVerbs, ", "));
    std::string near;
    const std::vector<std::string> verbs(kVerbs.begin(), kVerbs.end());
    for (const YamlNode& child : entry.children) {
      if (found.empty() && entry.is_map() && near.empty()) near = closest(child.key, verbs);
    }
    text += !entry.is_map() ? found_text(entry)
            : found.empty() ? "none of them"
                            : fmt::format("{}", fmt::join(found, ", "));
    if (!near.empty()) text += fmt::format("; did you mean '{}'?", near);
    issue(entry.where, std::move(text));
    return nullptr;
  }

  bool has_only(const YamlNode& entry, const std::string& verb, bool needs_layers) {
    bool is_good = true;
    for (const YamlNode& child : entry.children) {
      if (child.key == verb || (needs_layers && child.key == "layers")) continue;
      issue(child.key_where,
            fmt::format("unknown key {} next to '{}'. Known keys: {}{}", in_quotes(child.key), verb,
                        verb, needs_layers ? ", layers" : ""));
      is_good = false;
    }
    const YamlNode* layers = entry.find("layers");
    if (!needs_layers || !is_good) return is_good;
    if (layers && layers->kind == YamlNode::Kind::broken) return false;
    if (layers && layers->is_list() && !layers->children.empty()) return true;
    issue(layers ? layers->where : entry.where,
          fmt::format("expected a list of at least 1 layer in 'layers' of '{}', found {}", verb,
                      layers ? found_text(*layers) : "no such key"));
    return false;
  }

  void insert(LayerPlace place, const YamlNode& layers, bool after) {
    if (after) ++place.index;
    std::vector<YamlNode>& items = place.list->children;
    items.insert(items.begin() + static_cast<std::ptrdiff_t>(place.index), layers.children.begin(),
                 layers.children.end());
    finder_.inserted(place, layers.children.size());
  }

  YamlNode& layers_;
  Finder finder_;
  std::vector<ConfigIssue>& issues_;
};

}  // namespace

std::optional<LayerPlace> find_layer(YamlNode& layers, const std::string& name) {
  std::int64_t index = 0;
  return find_in(layers, name, index);
}

std::string no_such_layer(YamlNode& layers, const std::string& name) {
  // List the names in the innermost block that exists.
  std::vector<std::string> names;
  std::string block;
  for (std::size_t dot = name.rfind('.'); dot != std::string::npos && names.empty() && dot > 0;
       dot = name.rfind('.', dot - 1)) {
    const std::optional<LayerPlace> place = find_layer(layers, name.substr(0, dot));
    if (!place || !place->item().find("layers")) continue;
    block = name.substr(0, dot) + ".";
    std::int64_t index = 0;
    if (const std::int64_t repeat = copies_in(place->item()); repeat > 0) {
      for (; index < std::min<std::int64_t>(repeat, 100); ++index) {
        names.push_back(fmt::format("{}", index));
      }
      continue;
    }
    for (const char* key : {"layers", "shortcut"}) {
      if (const YamlNode* list = place->item().find(key)) add_names(*list, index, names);
    }
  }
  std::int64_t index = 0;
  if (names.empty()) add_names(layers, index, names);
  for (std::string& each : names) each = block + each;
  const std::string near = closest(name, names);
  return fmt::format("there is no layer {}{} Layers: {}", in_quotes(name),
                     near.empty() ? "." : fmt::format(", did you mean '{}'?", near),
                     names.empty() ? "none" : known_names(names));
}

void apply_patch(YamlNode& layers, const YamlNode& patch, std::vector<ConfigIssue>& issues) {
  if (patch.kind == YamlNode::Kind::broken || patch.kind == YamlNode::Kind::null) return;
  if (!patch.is_list()) {
    issues.push_back({patch.where, fmt::format("expected a list of changes in '{}', found {}",
                                               kPatchKey, found_text(patch))});
    return;
  }
  Patcher patcher(layers, issues);
  for (const YamlNode& entry : patch.children) patcher.apply(entry);
}

}  // namespace dpt
