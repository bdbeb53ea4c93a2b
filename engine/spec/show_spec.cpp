// TrainSpec -> YAML that reads back to it, and the difference of two such texts.
#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <tuple>

#include "engine/spec/flat_values.h"
#include "engine/spec/paths.h"
#include "engine/spec/read_spec.h"
#include "engine/spec/scalars.h"
#include "engine/spec/secrets.h"
#include "engine/spec/spec_tables.h"
#include "engine/spec/yaml_tree.h"

namespace dpt {
namespace {

template <class T, class ToText>
std::string yaml_list(const std::vector<T>& list, ToText to_text) {
  std::vector<std::string> texts;
  for (const T& element : list) texts.push_back(to_text(element));
  return fmt::format("[{}]", fmt::join(texts, ", "));
}

std::string yaml_number(double value) {
  return fmt::format("{}", value);
}
std::string yaml_integer(std::int64_t value) {
  return fmt::format("{}", value);
}

struct ToYaml {
  const Field& field;

  std::string operator()(std::monostate) const { return "null"; }
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(std::int64_t value) const {
    return value == 0 && !field.zero_word.empty() ? field.zero_word : yaml_integer(value);
  }
  std::string operator()(double value) const { return yaml_number(value); }
  std::string operator()(const std::string& value) const {
    return yaml_string(field.type == FieldType::path ? stored_path(value)
                                                     : escape_variables(value));
  }
  std::string operator()(const Size2& value) const {
    if (!field.size_word.empty() && value == kWordSize) return field.size_word;
    if (value.h == value.w) return yaml_integer(value.h);
    return fmt::format("[{}, {}]", value.h, value.w);
  }
  std::string operator()(const std::vector<double>& value) const {
    if (value.empty() && !field.zero_word.empty()) return field.zero_word;
    return yaml_list(value, yaml_number);
  }
  std::string operator()(const std::vector<std::int64_t>& value) const {
    return yaml_list(value, yaml_integer);
  }
  std::string operator()(const std::vector<std::string>& value) const {
    return yaml_list(value,
                     [](const std::string& text) { return yaml_string(escape_variables(text)); });
  }
  std::string operator()(const TextPairs& value) const {
    std::vector<std::string> texts;
    for (const auto& [key, text] : value) {
      texts.push_back(yaml_string(key) + ": " + yaml_string(escape_variables(text)));
    }
    return fmt::format("{{{}}}", fmt::join(texts, ", "));
  }
};

class Writer {
 public:
  Writer(const TrainSpec& spec, bool with_origins) : spec_(spec), with_origins_(with_origins) {}

  void object(const ObjectTable& table, const void* object, const std::string& path) {
    if (!table.choice.variants) {
      fields(table.fields, object, path);
      return;
    }
    // As people write it: the kind, a name if it has one, the kind's own fields, the common ones.
    // The tables give write access only; nothing is written through it here.
    const Variant& chosen = *table.choice.at(const_cast<void*>(object));
    if (chosen.type.empty()) {
      fields(table.fields, object, path);
      return;
    }
    std::vector<Field> names, others;
    for (const Field& field : table.fields) {
      if (field.name == table.choice.makes) continue;
      const bool is_name = field.type == FieldType::string || field.type == FieldType::strings;
      (is_name ? names : others).push_back(field);
    }
    line(table.choice.variants->tag + ": " + yaml_string(chosen.type),
         path + "." + table.choice.variants->tag);
    fields(names, object, path);
    // By name: a Variant of a block does not keep its table.
    for (const ObjectTable* kind : table.choice.variants->alternatives) {
      if (kind->name == chosen.type) fields(kind->fields, chosen.options.get(), path);
    }
    fields(others, object, path);
  }

  std::string finish() {
    std::string out;
    std::size_t widest = 0;
    for (const Line& line : lines_)
      widest = std::max(widest, std::min<std::size_t>(line.text.size(), 60));
    for (const Line& line : lines_) {
      out += line.text;
      if (!line.origin.empty()) {
        out.append(std::max(widest, line.text.size()) - line.text.size() + 2, ' ');
        out += "# " + line.origin;
      }
      out += '\n';
    }
    return out;
  }

 private:
  struct Line {
    std::string text;
    std::string origin;
  };

  void fields(const std::vector<Field>& all, const void* object, const std::string& path) {
    for (const Field& field : all) {
      const std::string here = path.empty() ? field.name : path + "." + field.name;
      write(field, object, here);
    }
  }

  void write(const Field& field, const void* object, const std::string& path) {
    switch (field.type) {
      case FieldType::object: {
        const void* nested = field.nested_const(object);
        if (!nested) {
          line(field.name + ": null", path);
          return;
        }
        // Write an optional mapping as a mapping, because stored configs are compared key by key.
        if (!field.plain_key.empty() && !field.is_optional && is_plain(field, nested)) {
          const Field& plain = plain_field(field);
          const PlainValue value = plain.get(nested);
          const auto* strings = std::get_if<std::vector<std::string>>(&value);
          if (strings && strings->empty()) return;  // as an absent list
          line(field.name + ": " + std::visit(ToYaml{plain}, value), path);
          return;
        }
        open(field.name);
        this->object(*field.object, nested, path);
        close(": {}");
        return;
      }
      case FieldType::objects: {
        open(field.name);
        const std::vector<const void*> elements = field.elements(object);
        for (std::size_t i = 0; i < elements.size(); ++i) {
          next_item_ = true;
          ++depth_;
          this->object(*field.object, elements[i], fmt::format("{}.{}", path, i));
          --depth_;
        }
        close(": []");
        return;
      }
      case FieldType::variant: {
        const Variant& chosen = *field.one(const_cast<void*>(object));
        if (!chosen.table) return;
        open(field.name);
        variant(*field.variants, chosen, path);
        close(": {}");
        return;
      }
      case FieldType::variants: {
        open(field.name);
        const std::vector<Variant>& all = *field.list(const_cast<void*>(object));
        for (std::size_t i = 0; i < all.size(); ++i) {
          next_item_ = true;
          ++depth_;
          variant(*field.variants, all[i], fmt::format("{}.{}", path, i));
          --depth_;
        }
        close(": []");
        return;
      }
      case FieldType::patch:
        return;
      default:
        break;
    }
    const PlainValue value = field.get(object);
    // An absent list and an empty one are the same, and most layers have no `from`.
    const auto* strings = std::get_if<std::vector<std::string>>(&value);
    if (strings && strings->empty() && !field.is_required) return;
    const auto* texts = std::get_if<TextPairs>(&value);
    if (texts && texts->empty()) return;
    // A name that was not written, of what is not called by its index.
    const auto* string = std::get_if<std::string>(&value);
    if (string && string->empty() && field.type == FieldType::string) return;
    line(field.name + ": " + std::visit(ToYaml{field}, value), path);
  }

  /// Whether all fields but the one that a plain value stands for have their defaults.
  static bool is_plain(const Field& field, const void* object) {
    const std::shared_ptr<void> defaults = field.object->make();
    const std::vector<Field>& all = field.object->fields;
    return std::all_of(all.begin(), all.end(), [&](const Field& each) {
      return each.name == field.plain_key || each.get(object) == each.get(defaults.get());
    });
  }

  void variant(const VariantTable& table, const Variant& chosen, const std::string& path) {
    line(table.tag + ": " + yaml_string(chosen.type), path + "." + table.tag);
    if (chosen.table) fields(chosen.table->fields, chosen.options.get(), path);
  }

  /// A key whose value is a mapping or list; close() names the empty one.
  void open(const std::string& key) {
    opened_.push_back(lines_.size());
    lines_.push_back({indent() + key, {}});
    ++depth_;
  }
  void close(const char* empty) {
    --depth_;
    const std::size_t at = opened_.back();
    opened_.pop_back();
    lines_[at].text += at + 1 == lines_.size() ? empty : ":";
  }

  std::string indent() {
    std::string out(static_cast<std::size_t>(depth_) * 2, ' ');
    if (next_item_) out.replace(out.size() - 2, 2, "- ");
    next_item_ = false;
    return out;
  }

  void line(const std::string& text, const std::string& path) {
    lines_.push_back({indent() + text, with_origins_ ? origin(path) : std::string{}});
  }

  std::string origin(const std::string& path) const {
    const auto found = spec_.origins.find(path);
    if (found == spec_.origins.end()) return "default";
    const std::string file = hide_secrets(found->second.file);
    return found->second.line == 0 ? file : fmt::format("{}:{}", file, found->second.line);
  }

  const TrainSpec& spec_;
  bool with_origins_;
  std::vector<Line> lines_;
  std::vector<std::size_t> opened_;
  int depth_ = 0;
  bool next_item_ = false;
};

/// Returns a node without children as text. A string that would read as something else is quoted.
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
    // A name may be a number, too.
    keys[i] = fmt::format("{}", i);
    while (names.contains(keys[i])) keys[i].insert(0, "#");
  }
  return keys;
}

/// All values of a tree by dotted path, in order. Items of a list go by their name if they have
/// one, and lists of plain values are one value.
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
  constexpr std::size_t kShown = 2;  // items shown before and after
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

std::string show_spec(const Catalog& catalog, const TrainSpec& spec, bool origins) {
  const SpecTables tables(catalog);
  Writer writer(spec, origins);
  writer.object(tables.root, &spec, "");
  return writer.finish();
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
