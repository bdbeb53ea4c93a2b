#include "engine/config/binder.h"

#include <algorithm>
#include <utility>

#include "engine/config/issue.h"
#include "engine/config/key_suggestions.h"
#include "engine/config/paths.h"
#include "engine/config/scalars.h"
#include "engine/config/suggest.h"
#include "engine/config/values.h"

namespace dpt {
namespace {

std::string join(const std::string& path, const std::string& key) {
  return path.empty() ? key : path + "." + key;
}

std::vector<std::string> names_of(const VariantTable& table) {
  std::vector<std::string> names;
  for (const ObjectTable* alternative : table.alternatives) names.push_back(alternative->name);
  return names;
}

/// Returns the plural for messages: "losses", "optimizers".
std::string plural(const std::string& what) {
  return what + (what.ends_with('s') ? "es" : "s");
}

std::string unknown_kind(const VariantTable& table, const std::string& type) {
  const std::vector<std::string> names = names_of(table);
  std::string text = fmt::format("unknown {} {}", table.what, in_quotes(type));
  std::string near;
  for (const auto& [theirs, ours] : table.hints) {
    if (lower_case(theirs) == lower_case(type)) near = ours;
  }
  if (near.empty()) near = closest(type, names);
  const bool is_name = std::find(names.begin(), names.end(), near) != names.end();
  if (near.empty()) {
    text += ".";
  } else {
    text += fmt::format(", did you mean {}?", is_name ? fmt::format("'{}'", near) : near);
  }
  return text + fmt::format(" Known {}: {}", plural(table.what), fmt::join(names, ", "));
}

}  // namespace

Binder::Binder(const ObjectTable& root, const std::string& file, std::vector<ConfigIssue>& issues,
               std::map<std::string, Where>& origins, Labels labels, Author author)
    : root_(root),
      file_(file),
      issues_(issues),
      origins_(origins),
      labels_(labels),
      author_(author) {}

void Binder::Scope::add(const std::vector<Field>& fields) {
  for (const Field& field : fields) {
    names.push_back(field.name);
    if (!field.former_name.empty()) renamed[field.former_name] = field.name;
  }
}

void Binder::issue(const Where& where, std::string text) {
  issues_.push_back({where, std::move(text)});
}

bool Binder::is_required(const Field& field) const {
  return field.is_required && (!field.is_of_labels || labels_ == Labels::needed);
}

void Binder::run_checks(const ObjectTable& table, const void* target, const YamlNode& node,
                        const std::string& path, const std::string& owner) {
  std::string problem;
  if (table.check_labels && labels_ == Labels::needed) problem = table.check_labels(target);
  if (table.check && problem.empty()) problem = table.check(target);
  if (problem.empty()) return;
  issues_.push_back({node.where, fmt::format("{}: {}", owner, problem), false, path + kTogether});
}

/// Reports a plain value where a mapping is expected, and suggests the mapping to write.
void Binder::refuse_plain(const ObjectTable& table, const YamlNode& node, const Scope& scope) {
  const VariantTable* kinds = table.choice.variants;
  const bool is_scalar = node.kind == YamlNode::Kind::scalar;
  std::string key;
  if (is_scalar && kinds) {
    const std::vector<std::string> names = names_of(*kinds);
    if (std::find(names.begin(), names.end(), node.text) == names.end()) {
      issue(node.where,
            fmt::format("{}: expected a mapping such as {{{}: {}}}; {}", scope.owner, kinds->tag,
                        names.empty() ? "NAME" : names.front(), unknown_kind(*kinds, node.text)));
      return;
    }
    key = kinds->tag;
  }
  for (const Field& field : table.fields) {
    if (is_scalar && key.empty() && (field.is_required || table.fields.size() == 1)) {
      key = field.name;
    }
  }
  std::string text = fmt::format("expected a mapping for {}, found {}; its keys are {}",
                                 scope.owner, found_text(node), fmt::join(scope.names, ", "));
  if (!key.empty()) text += fmt::format("; write {{{}: {}}}", key, node.text);
  issue(node.where, std::move(text));
}

void Binder::read_object(const ObjectTable& table, void* target, const YamlNode& node,
                         const std::string& path) {
  Scope scope;
  scope.owner = path.empty() ? "the config" : path;
  if (node.kind == YamlNode::Kind::broken) return;
  const VariantTable* kinds = table.choice.variants;
  if (kinds && !kinds->alternatives.empty()) scope.names.push_back(kinds->tag);
  scope.add(table.fields);
  // Loading removes `extends` from the tree; list it so that it is suggested for a misspelling.
  if (path.empty()) scope.names.push_back(kExtendsKey);
  if (!node.is_map()) {
    refuse_plain(table, node, scope);
    return;
  }
  if (table.set_where) table.set_where(target, node.where);
  const std::size_t issues_before = issues_.size();

  const ObjectTable* chosen = nullptr;
  const bool is_left_out = !table.choice.makes.empty() && !node.find(kinds->tag);
  if (kinds && !is_left_out) {
    if (!table.choice.makes.empty()) scope.meant.push_back(table.choice.makes);
    chosen = choose(*kinds, table.choice.default_type, node, path);
    scope.is_complete = chosen != nullptr;
    if (chosen) {
      scope.owner = fmt::format("{} {}", kinds->what, chosen->name);
      scope.add(chosen->fields);
    }
  }
  report_unknown_keys(node, scope, kinds);
  read_fields(table.fields, target, node, path, scope);
  if (chosen) read_options(*chosen, *table.choice.at(target), node, path, scope);
  if (issues_.size() == issues_before) run_checks(table, target, node, path, scope.owner);
}

void Binder::read_fields(const std::vector<Field>& fields, void* target, const YamlNode& node,
                         const std::string& path, const Scope& scope) {
  for (const Field& field : fields) {
    if (const YamlNode* child = node.find(field.name)) {
      read_field(field, target, *child, join(path, field.name));
    } else if (is_required(field)) {
      if (std::find(scope.meant.begin(), scope.meant.end(), field.name) != scope.meant.end()) {
        continue;
      }
      issue(node.where,
            fmt::format("missing key '{}' in {}: {}", field.name, scope.owner, field.doc));
    } else if (field.type == FieldType::object && !field.object->choice.default_type.empty()) {
      YamlNode absent;
      absent.kind = YamlNode::Kind::map;
      absent.where = node.where;
      read_object(*field.object, field.nested(target), absent, join(path, field.name));
    }
  }
  for (const Field& field : fields) {
    if (node.find(field.name)) continue;
    if (field.follow) field.set(target, field.follow(target));
    // A config that dpt stored before the field existed gets the default of that time. A section
    // merged from the user's config gets the present default.
    if (field.stored_default && author_ == Author::dpt && node.where.file == file_) {
      field.set(target, *field.stored_default);
    }
  }
}

void Binder::read_field(const Field& field, void* target, const YamlNode& node,
                        const std::string& path) {
  const std::size_t before = issues_.size();
  read_known(field, target, node, path);
  for (std::size_t i = before; i < issues_.size(); ++i) {
    if (issues_[i].path.empty()) issues_[i].path = path;
  }
}

void Binder::read_known(const Field& field, void* target, const YamlNode& node,
                        const std::string& path) {
  origins_[path] = node.where;
  if (node.kind == YamlNode::Kind::broken) return;
  if (node.kind == YamlNode::Kind::null && field.is_optional) {
    if (field.set) field.set(target, std::monostate{});
    return;
  }
  switch (field.type) {
    case FieldType::object:
      if (!field.plain_key.empty() && !node.is_map()) {
        read_plain(field, target, node, path);
      } else {
        read_object(*field.object, field.nested(target), node, path);
      }
      return;
    case FieldType::variant:
      read_variant(*field.variants, *field.one(target), node, path);
      return;
    case FieldType::objects:
    case FieldType::variants:
      break;
    case FieldType::patch:
      return;  // already applied, or there was nothing to apply it to
    default:
      read_value(field, target, node, path);
      return;
  }
  const std::size_t n = node.children.size();
  if (!node.is_list() || (field.min_items && (n < *field.min_items || n > *field.max_items))) {
    std::string text =
        fmt::format("expected {}, found {}", expected_text(field),
                    node.is_list() && n > 0 ? fmt::format("{}", n) : found_text(node));
    const std::string most = node.is_list() ? most_text(field, n) : std::string();
    if (!most.empty()) text += "; " + most;
    issue(node.where, std::move(text));
    return;
  }
  for (std::size_t i = 0; i < n; ++i) {
    const std::string here = fmt::format("{}.{}", path, i);
    origins_[here] = node.children[i].where;
    if (field.type == FieldType::objects) {
      read_object(*field.object, field.append(target), node.children[i], here);
    } else {
      read_variant(*field.variants, field.list(target)->emplace_back(), node.children[i], here);
    }
  }
}

/// Reads a plain value in place of an object's mapping, as if it were a mapping with only the field
/// `plain_key`.
void Binder::read_plain(const Field& field, void* target, const YamlNode& node,
                        const std::string& path) {
  const bool takes_list = plain_field(field).type == FieldType::strings;
  if (const std::string fraction = fraction_of(field, node); !fraction.empty()) {
    issue(node.where,
          fmt::format(
              "{}: expected {}, found {}; for a fraction of the samples write {{fraction: {}}}",
              path, expected_text(field), found_text(node), fraction));
    return;
  }
  if (node.kind != YamlNode::Kind::scalar && !(takes_list && node.is_list())) {
    std::string text = fmt::format("expected {}, found {}", expected_text(field), found_text(node));
    if (node.where.line == 0) text = path + ": " + text;
    issue(node.where, std::move(text));
    return;
  }
  YamlNode map;
  map.kind = YamlNode::Kind::map;
  map.where = node.where;
  map.children.push_back(node);
  map.children.back().key = field.plain_key;
  map.children.back().key_where = node.where;
  read_object(*field.object, field.nested(target), map, path);
}

void Binder::read_value(const Field& field, void* target, const YamlNode& node,
                        const std::string& path) {
  for (std::size_t i = 0; i < node.children.size(); ++i) {
    origins_[fmt::format("{}.{}", path, i)] = node.children[i].where;
  }
  PlainValue value;
  const std::size_t issues_before = issues_.size();
  const bool converted =
      convert_value(field, node, value, issues_, node.where.file == file_ ? author_ : Author::user);
  // In a file, the position identifies the value; on a command line, only the path does.
  for (std::size_t i = issues_before; i < issues_.size(); ++i) {
    if (issues_[i].where.line == 0) issues_[i].text = path + ": " + issues_[i].text;
  }
  if (converted) {
    field.set(target, value);
  } else {
    origins_.erase(path);  // the default applies, as if the config did not set the field
  }
}

void Binder::read_variant(const VariantTable& table, Variant& target, const YamlNode& node,
                          const std::string& path) {
  if (node.kind == YamlNode::Kind::broken) return;
  if (!node.is_map()) {
    std::string text = fmt::format("expected a mapping with '{}' for {}, found {}", table.tag, path,
                                   found_text(node));
    if (node.kind == YamlNode::Kind::scalar) {
      text += fmt::format("; write {{{}: {}}}", table.tag, node.text);
    }
    issue(node.where, std::move(text));
    return;
  }
  const ObjectTable* chosen = choose(table, {}, node, path);
  if (!chosen) return;
  Scope scope;
  scope.owner = fmt::format("{} {}", table.what, chosen->name);
  scope.names.push_back(table.tag);
  scope.add(chosen->fields);
  report_unknown_keys(node, scope, &table);
  read_options(*chosen, target, node, path, scope);
}

const ObjectTable* Binder::choose(const VariantTable& table, const std::string& default_type,
                                  const YamlNode& node, const std::string& path) {
  const YamlNode* tag = node.find(table.tag);
  std::string type = default_type;
  if (tag) {
    if (tag->kind == YamlNode::Kind::broken) return nullptr;
    origins_[join(path, table.tag)] = tag->where;
    const Scalar<std::string> scalar = read_string(*tag);
    if (!scalar.value) {
      issue(tag->where,
            fmt::format("expected the name of a {}, found {}. Known {}: {}", table.what,
                        found_text(*tag), plural(table.what), fmt::join(names_of(table), ", ")));
      return nullptr;
    }
    type = *scalar.value;
  } else if (type.empty()) {
    issue(node.where, fmt::format("missing key '{}' in {}. Known {}: {}", table.tag, path,
                                  plural(table.what), fmt::join(names_of(table), ", ")));
    return nullptr;
  }
  for (const ObjectTable* alternative : table.alternatives) {
    if (alternative->name == type) return alternative;
  }
  issue(tag ? tag->where : node.where, unknown_kind(table, type));
  return nullptr;
}

void Binder::read_options(const ObjectTable& table, Variant& target, const YamlNode& node,
                          const std::string& path, const Scope& scope) {
  target.type = table.name;
  target.where = node.where;
  target.table = &table;
  const std::shared_ptr<void> options = table.make();
  const std::size_t issues_before = issues_.size();
  fill_defaults(table.fields, options.get());
  read_fields(table.fields, options.get(), node, path, scope);
  if (issues_.size() == issues_before) run_checks(table, options.get(), node, path, scope.owner);
  target.options = options;
}

/// Resolves default paths against the config's folder, like paths that the config sets.
void Binder::fill_defaults(const std::vector<Field>& fields, void* target) {
  for (const Field& field : fields) {
    if (field.type != FieldType::path) continue;
    const PlainValue value = field.get(target);
    if (const auto* path = std::get_if<std::string>(&value)) {
      field.set(target, resolve_path(*path, file_));
    }
  }
}

void Binder::report_unknown_keys(const YamlNode& node, Scope& scope, const VariantTable* kinds) {
  if (!scope.is_complete) return;
  for (const YamlNode& child : node.children) {
    const std::string& key = child.key;
    if (std::find(scope.names.begin(), scope.names.end(), key) != scope.names.end()) continue;
    if (const auto renamed = scope.renamed.find(key); renamed != scope.renamed.end()) {
      issue(child.key_where, fmt::format("the key {} was renamed: write '{}' in {}", in_quotes(key),
                                         renamed->second, scope.owner));
      scope.meant.push_back(renamed->second);
      continue;
    }
    std::string text = fmt::format("unknown key {} in {}", in_quotes(key), scope.owner);
    const std::vector<std::string> owners = kinds_with(kinds, key);
    std::string near = other_name(key, scope.names);
    if (near.empty()) near = longer_name(key, scope.names);
    std::string place;
    if (near.empty() && owners.empty()) place = elsewhere(root_, key);
    if (near.empty() && owners.empty() && place.empty()) near = closest(key, scope.names);
    const std::string decimal = decimal_comma(node, child);
    if (!decimal.empty()) {
      text += fmt::format(", did you mean '{}'?", decimal);
    } else if (!near.empty()) {
      text += fmt::format(", did you mean '{}'?", near);
      scope.meant.push_back(near);
    } else if (!place.empty()) {
      text += fmt::format(", did you mean {}?", place);
    } else if (!owners.empty()) {
      text += fmt::format("; it belongs to {}.", fmt::join(owners, ", "));
    } else {
      text += ".";
    }
    text += fmt::format(" Known keys: {}", fmt::join(scope.names, ", "));
    const YamlNode* kind = kinds ? node.find(kinds->tag) : nullptr;
    if (kind && kind->where.line == 0 && child.key_where.line != 0) {
      // `optimizer.type=Adam` on the command line leaves the fields of SGD in place.
      text += fmt::format(
          ". The {} comes from the command line; to replace the other fields too, give the whole "
          "mapping: {}={{{}: {}, ...}}",
          kinds->tag, node.key, kinds->tag, kind->text);
    }
    issue(child.key_where, std::move(text));
  }
}

}  // namespace dpt
