#include "engine/config/flat_values.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <span>

#include "engine/config/issue.h"
#include "engine/config/yaml_tree.h"

namespace dpt {
namespace {

/// Returns a node without children as text. Quotes a string that would otherwise not be read as a
/// string.
std::string flat_text(const YamlNode& node, bool is_in_list) {
  if (node.kind == YamlNode::Kind::null) return "null";
  if (node.is_list()) return "[]";
  if (node.is_map()) return "{}";
  if (node.is_plain) return node.text;
  const bool looks_plain = node.text == "null" || node.text == "[]" || node.text == "{}";
  const bool divides =
      is_in_list && (node.text.empty() || node.text.find_first_of(",[]\"") != std::string::npos);
  return looks_plain || divides ? '"' + node.text + '"' : node.text;
}

/// Returns the keys of the items of a list: their names, else their indices.
std::vector<std::string> keys_of_items(const YamlNode& list) {
  std::vector<std::string> keys;
  std::set<std::string> names;
  for (const YamlNode& item : list.children) {
    const YamlNode* name = item.find("name");
    keys.push_back(name ? name->text : std::string());
    if (name) names.insert(name->text);
  }
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (list.children[i].find("name")) continue;
    // An index may collide with a name that is a number.
    keys[i] = fmt::format("{}", i);
    while (names.contains(keys[i])) keys[i].insert(0, "#");
  }
  return keys;
}

/// Appends all values of a tree with their dotted paths, in order. An item of a list is identified
/// by its name if it has one. A list of plain values is one value.
void flatten(const YamlNode& node, const std::string& path, FlatConfig& out) {
  if (node.children.empty()) {
    out.values.emplace_back(path, flat_text(node, false));
    return;
  }
  const bool is_plain_list =
      node.is_list() && std::all_of(node.children.begin(), node.children.end(),
                                    [](const YamlNode& child) { return child.children.empty(); });
  if (is_plain_list) {
    std::vector<std::string> texts;
    for (const YamlNode& child : node.children) texts.push_back(flat_text(child, true));
    out.values.emplace_back(path, fmt::format("[{}]", fmt::join(texts, ", ")));
    return;
  }
  const std::vector<std::string> items =
      node.is_list() ? keys_of_items(node) : std::vector<std::string>();
  const bool has_names =
      node.is_list() && std::any_of(node.children.begin(), node.children.end(),
                                    [](const YamlNode& child) { return child.find("name"); });
  if (has_names) out.orders[path] = items;
  for (std::size_t i = 0; i < node.children.size(); ++i) {
    const std::string& key = node.is_list() ? items[i] : node.children[i].key;
    flatten(node.children[i], path.empty() ? key : path + "." + key, out);
  }
}

bool is_under(const std::string& path, const std::vector<std::string>& prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(), [&](const std::string& prefix) {
    return path == prefix || path.starts_with(prefix + ".");
  });
}

}  // namespace

FlatConfig flat_config(const std::string& yaml, const std::string& which) {
  std::vector<ConfigIssue> issues;
  const YamlNode tree = parse_yaml(yaml, which, issues);
  if (!issues.empty()) {
    fail(ErrorKind::usage, "cannot compare configs: {}: {}", issues[0].where.text(),
         issues[0].text);
  }
  FlatConfig config;
  flatten(tree, "", config);
  return config;
}

std::vector<std::string> differing_orders(const std::vector<std::vector<std::string>>& lists) {
  if (lists.empty()) return {};
  std::map<std::string, std::size_t> holders;
  for (const std::vector<std::string>& list : lists) {
    for (const std::string& item : list) ++holders[item];
  }
  std::vector<std::vector<std::string>> common = lists;
  for (std::vector<std::string>& list : common) {
    std::erase_if(list, [&](const std::string& item) { return holders[item] < lists.size(); });
  }
  const std::vector<std::string>& first = common[0];
  const auto agree_at = [&](std::size_t i) {
    return std::all_of(common.begin(), common.end(), [&](const auto& list) {
      return list.size() == first.size() && list[i] == first[i];
    });
  };
  std::size_t begin = 0, end = first.size();
  while (begin < end && agree_at(begin)) ++begin;
  if (begin == end) return {};
  while (agree_at(end - 1)) --end;
  constexpr std::size_t kShown = 2;  // maximum number of equal items shown on each side
  const std::size_t from = begin > kShown ? begin - 1 : 0;
  const std::size_t to = first.size() - end > kShown ? end + 1 : first.size();
  std::vector<std::string> texts;
  for (const std::vector<std::string>& list : common) {
    texts.push_back(fmt::format("{}{}{}", from > 0 ? "..., " : "",
                                fmt::join(std::span(list).subspan(from, to - from), ", "),
                                to < list.size() ? ", ..." : ""));
  }
  return texts;
}

std::vector<std::string> diff_specs(const std::string& old_yaml, const std::string& new_yaml,
                                    const std::vector<std::string>& ignored) {
  const FlatConfig before = flat_config(old_yaml, "old config");
  const FlatConfig after = flat_config(new_yaml, "new config");
  const std::map<std::string, std::string> old_values(before.values.begin(), before.values.end());
  const std::map<std::string, std::string> new_values(after.values.begin(), after.values.end());
  std::vector<std::string> lines;
  for (const auto& [path, items] : before.orders) {
    const auto now = after.orders.find(path);
    if (is_under(path, ignored) || now == after.orders.end()) continue;
    const std::vector<std::string> orders = differing_orders({items, now->second});
    if (orders.empty()) continue;
    lines.push_back(fmt::format("{}: the order differs: {} -> {}", path, orders[0], orders[1]));
  }
  for (const auto& [path, value] : before.values) {
    const auto now = new_values.find(path);
    if (is_under(path, ignored) || (now != new_values.end() && now->second == value)) continue;
    lines.push_back(fmt::format("{}: {} -> {}", path, value,
                                now == new_values.end() ? "(absent)" : now->second));
  }
  for (const auto& [path, value] : after.values) {
    if (is_under(path, ignored) || old_values.contains(path)) continue;
    lines.push_back(fmt::format("{}: (absent) -> {}", path, value));
  }
  return lines;
}

}  // namespace dpt
