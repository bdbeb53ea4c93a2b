// Generates the JSON Schema 2020-12 of configs from the field tables, for editors and for checks
// outside dpt. A config that extends another need not be complete. Therefore `properties` describes
// what any config may contain, and `else` what a config without `extends` must have. Lists replace
// one another when configs merge, so their items are complete everywhere.
#include "engine/config/schema.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/config/json_values.h"
#include "engine/config/paths.h"
#include "engine/config/scalars.h"
#include "engine/config/spec_tables.h"
#include "kernels/base/json_text.h"

namespace dpt {
namespace {

using Json = nlohmann::ordered_json;

class SchemaMaker {
  using Fields = std::vector<const Field*>;

 public:
  Json make(const SpecTables& tables) {
    TrainSpec defaults;
    Json schema;
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema";
    schema["$id"] = "urn:dpt:config:1";
    schema["title"] = "dpt config";
    schema["$comment"] = "Printed by `dpt config schema`.";
    schema["description"] = tables.root.doc;
    Json root = object(tables.root, &defaults, false);
    Json properties;
    properties[kExtendsKey] = {{"type", "string"}, {"description", kExtendsDoc}};
    properties.update(root["properties"]);
    root["properties"] = std::move(properties);
    schema.update(root);
    schema["if"] = {{"required", Json::array({kExtendsKey})}};
    schema["else"] = requirements(tables.root);
    schema["$defs"] = std::move(defs_);
    share_repeated(schema);
    return schema;
  }

 private:
  static void add_range(const Field& field, Json& schema) {
    if (field.min)
      schema[field.min_is_exclusive ? "exclusiveMinimum" : "minimum"] = json_number(*field.min);
    if (field.max) schema["maximum"] = json_number(*field.max);
  }

  static Json element(const char* type, const Field& field) {
    Json schema = {{"type", type}};
    add_range(field, schema);
    return schema;
  }

  static Json list_of(const Field& field, Json items) {
    Json schema = {{"type", "array"}, {"items", std::move(items)}};
    if (field.min_items) schema["minItems"] = *field.min_items;
    if (field.max_items) schema["maxItems"] = *field.max_items;
    return schema;
  }

  static Json number_list(const Field& field, const Json& one) {
    Json list = list_of(field, one);
    return field.one_is_list ? Json{{"anyOf", {one, list}}} : list;
  }

  static Json string_schema(const Field& field) {
    Json schema = {{"type", "string"}};
    if (!field.choices.empty()) schema["enum"] = field.choices;
    return schema;
  }

  Json type_of(const Field& field, void* owner, bool is_item) {
    switch (field.type) {
      case FieldType::boolean:
        return {{"type", "boolean"}};
      case FieldType::integer: {
        Json schema = element("integer", field);
        if (field.zero_word.empty()) return schema;
        return {{"anyOf", {{{"enum", {field.zero_word, 0}}}, schema}}};
      }
      case FieldType::number:
        return element("number", field);
      case FieldType::string:
      case FieldType::choice:
        return string_schema(field);
      case FieldType::path:
        return field.is_required ? Json{{"type", "string"}, {"minLength", 1}}
                                 : Json{{"type", "string"}};
      case FieldType::size2: {
        const Json one = element("integer", field);
        const Json pair = {{"type", "array"}, {"items", one}, {"minItems", 2}, {"maxItems", 2}};
        if (field.size_word.empty()) return {{"anyOf", {one, pair}}};
        return {{"anyOf", {{{"const", field.size_word}}, one, pair}}};
      }
      case FieldType::numbers: {
        Json schema = number_list(field, element("number", field));
        if (field.zero_word.empty()) return schema;
        return {{"anyOf", {{{"const", field.zero_word}}, schema}}};
      }
      case FieldType::integers:
        return number_list(field, element("integer", field));
      case FieldType::strings:
        return {{"anyOf", {string_schema(field), list_of(field, string_schema(field))}}};
      case FieldType::texts:
        return {{"type", "object"}, {"additionalProperties", {{"type", "string"}}}};
      case FieldType::object: {
        Json mapping = object(*field.object, field.nested(owner), is_item);
        if (field.plain_key.empty()) return mapping;
        return {{"anyOf", {type_of(plain_field(field), field.nested(owner), is_item), mapping}}};
      }
      case FieldType::objects:
        return list_of(field, item(*field.object, field.append(owner)));
      case FieldType::variant:
        return choice(*field.variants, {}, nullptr, definition(field.variants->what));
      case FieldType::variants:
        return list_of(field,
                       item_kinds(*field.variants, {}, nullptr, definition(field.variants->what)));
      case FieldType::patch:
        return patch();
    }
    return true;
  }

  Json property(const Field& field, void* owner, bool is_item) {
    Json schema;
    schema["description"] = field.doc;
    if (!field.is_required && field.get && !field.follow) {
      const PlainValue value = field.get(owner);
      const auto* path = std::get_if<std::string>(&value);
      const bool is_empty_text = path && path->empty();
      if (!is_empty_text) schema["default"] = json_of(field, value);
    }
    Json type = type_of(field, owner, is_item);
    if (field.is_optional) type = {{"anyOf", {type, {{"type", "null"}}}}};
    schema.update(type);
    return schema;
  }

  /// Returns the schema of a mapping of `fields`. An item of a list must have the required fields.
  Json mapping(const Fields& fields, const std::vector<void*>& owners, bool is_item) {
    Json schema = {{"type", "object"}};
    Json properties = Json::object();
    Json required = Json::array();
    for (std::size_t i = 0; i < fields.size(); ++i) {
      properties[fields[i]->name] = property(*fields[i], owners[i], is_item);
      if (fields[i]->is_required && is_item) required.push_back(fields[i]->name);
    }
    schema["properties"] = std::move(properties);
    if (!required.empty()) schema["required"] = std::move(required);
    schema["additionalProperties"] = false;
    return schema;
  }

  static Fields fields_of(const ObjectTable& table) {
    Fields fields;
    for (const Field& field : table.fields) fields.push_back(&field);
    return fields;
  }

  /// Returns the fields that all kinds have, at the same level as the tag.
  static Fields common_fields(const ObjectTable& table) {
    Fields fields = fields_of(table);
    std::erase_if(fields, [&](const Field* field) { return field->name == table.choice.makes; });
    return fields;
  }

  static bool has_choice(const ObjectTable& table) {
    const FlatChoice& flat = table.choice;
    return flat.variants && (flat.makes.empty() || !flat.variants->alternatives.empty());
  }

  Json object(const ObjectTable& table, void* defaults, bool is_item) {
    const Fields fields = fields_of(table);
    if (!has_choice(table)) {
      return mapping(fields, std::vector<void*>(fields.size(), defaults), is_item);
    }
    const VariantTable& kinds = *table.choice.variants;
    if (is_item) return item_kinds(kinds, fields, defaults, table.name);
    Json schema = choice(kinds, common_fields(table), defaults, table.name);
    for (const Field* field : fields) {
      if (field->name != table.choice.makes) continue;
      schema["else"]["properties"][field->name] = property(*field, defaults, false);
      schema["else"]["propertyNames"]["enum"].push_back(field->name);
    }
    return schema;
  }

  /// Returns the schema of a list of changes to named layers. The fields that `change` may set
  /// depend on the layer.
  static Json patch() {
    const Json name = {{"type", "string"}};
    const Json layers = {
        {"type", "array"}, {"items", {{"$ref", "#/$defs/layer"}}}, {"minItems", 1}};
    Json kinds = Json::array();
    kinds.push_back({{"type", "object"},
                     {"properties", {{"change", name}}},
                     {"required", Json::array({"change"})},
                     {"minProperties", 2}});
    for (const char* verb : {"insert_before", "insert_after"}) {
      kinds.push_back({{"type", "object"},
                       {"properties", {{verb, name}, {"layers", layers}}},
                       {"required", Json::array({verb, "layers"})},
                       {"additionalProperties", false}});
    }
    kinds.push_back({{"type", "object"},
                     {"properties", {{"delete", name}}},
                     {"required", Json::array({"delete"})},
                     {"additionalProperties", false}});
    return {{"type", "array"}, {"items", {{"oneOf", kinds}}}};
  }

  /// Returns the schema of an item of a list. If the item chooses a kind, the schema refers to a
  /// definition, because it is recursive: a block has such items too.
  Json item(const ObjectTable& table, void* defaults) {
    return table.choice.variants
               ? item_kinds(*table.choice.variants, fields_of(table), defaults, table.name)
               : object(table, defaults, true);
  }

  /// Returns a reference to the definition `name`. The first call creates that definition.
  Json item_kinds(const VariantTable& table, const Fields& common, void* defaults,
                  const std::string& name) {
    if (!defs_.contains(name)) {
      defs_[name] = nullptr;
      Json schema = {{"type", "object"}};
      schema["properties"][table.tag] = {{"enum", names_of(table)}};
      schema["required"] = Json::array({table.tag});
      schema["allOf"] = cases(table, common, defaults, true, name);
      defs_[name] = std::move(schema);
    }
    return reference(name);
  }

  /// Returns the schema of a mapping whose kind may come from the extended config. The keys of all
  /// kinds are then allowed.
  Json choice(const VariantTable& table, const Fields& common, void* defaults,
              const std::string& name) {
    std::set<std::string> keys;
    for (const ObjectTable* kind : table.alternatives) {
      for (const Field& field : kind->fields) keys.insert(field.name);
    }
    Json schema = {{"type", "object"}};
    schema["properties"][table.tag] = {{"enum", names_of(table)}};
    for (const Field* field : common) {
      schema["properties"][field->name] = property(*field, defaults, false);
      keys.insert(field->name);
    }
    schema["if"] = has_key(table.tag);
    schema["then"]["allOf"] = cases(table, common, defaults, false, name);
    schema["else"]["propertyNames"] = {{"enum", keys}};
    return schema;
  }

  static Json has_key(const std::string& key) { return {{"required", Json::array({key})}}; }

  /// Returns a name that a URI may contain: batch_transform for a batch transform.
  static std::string definition(std::string name) {
    std::replace(name.begin(), name.end(), ' ', '_');
    return name;
  }

  static Json reference(const std::string& name) { return {{"$ref", "#/$defs/" + name}}; }

  static Json names_of(const VariantTable& table) {
    Json names = Json::array();
    for (const ObjectTable* kind : table.alternatives) names.push_back(kind->name);
    return names;
  }

  /// Returns a test of the tag. Unless `has_tag`, the tag may be missing.
  static Json is_kind(const VariantTable& table, const ObjectTable& kind, bool has_tag) {
    Json test = {{"properties", {{table.tag, {{"const", kind.name}}}}}};
    if (!has_tag) test.update(has_key(table.tag));
    return test;
  }

  /// Adds one definition per kind, chosen by the tag. Uses if/then rather than oneOf, so that a
  /// validator reports the one wrong key and not a mismatch with every kind.
  Json cases(const VariantTable& table, const Fields& common, void* defaults, bool is_item,
             const std::string& name) {
    Json all = Json::array();
    for (const ObjectTable* kind : table.alternatives) {
      const std::string def = name + "." + kind->name;
      if (!defs_.contains(def)) define(def, table, *kind, common, defaults, is_item);
      all.push_back({{"if", is_kind(table, *kind, !is_item)}, {"then", reference(def)}});
    }
    return all;
  }

  void define(const std::string& def, const VariantTable& table, const ObjectTable& kind,
              const Fields& common, void* defaults, bool is_item) {
    defs_[def] = nullptr;
    const std::shared_ptr<void> options = kind.make();
    Fields fields;
    for (const Field* field : common) {
      if (!kind.is_block || !field->not_of_blocks) fields.push_back(field);
    }
    std::vector<void*> owners(fields.size(), defaults);
    for (const Field& field : kind.fields) {
      fields.push_back(&field);
      owners.push_back(options.get());
    }
    Json schema = mapping(fields, owners, is_item);
    schema["properties"][table.tag] = {{"const", kind.name}};
    schema["description"] = kind.doc;
    schema.erase("type");  // the referring schema states it
    if (kind.least_inputs > 1) {
      schema["required"].push_back("from");
      schema["properties"]["from"]["type"] = "array";
      schema["properties"]["from"]["minItems"] = kind.least_inputs;
    }
    defs_[def] = std::move(schema);
  }

  // Requirements on a config that extends no other:

  /// Returns the keys that `fields` require, including those on all levels below; empty if there
  /// are none.
  static Json requirements(const Fields& fields, bool is_zoo = false) {
    Json required = Json::array();
    Json below = Json::object();
    for (const Field* field : fields) {
      // The data set may give a network of the zoo its input.
      if (field->is_required && !(is_zoo && field->data_gives)) required.push_back(field->name);
      Json needs = Json::object();
      if (field->type == FieldType::object) needs = requirements(*field->object);
      if (field->type == FieldType::variant) needs = requirements(*field->variants, {}, {}, "");
      if (!needs.empty()) below[field->name] = std::move(needs);
    }
    Json schema = Json::object();
    if (!required.empty()) schema["required"] = std::move(required);
    if (!below.empty()) schema["properties"] = std::move(below);
    return schema;
  }

  static Json requirements(const ObjectTable& table) {
    const Fields fields = fields_of(table);
    if (!has_choice(table)) return requirements(fields);
    const FlatChoice& flat = table.choice;
    Json schema = requirements(*flat.variants, common_fields(table), flat.default_type, table.name);
    if (flat.makes.empty()) return schema;
    schema["if"] = has_key(flat.variants->tag);
    Json keys = Json::array();
    for (const Field* field : fields) keys.push_back(field->name);
    schema["else"] = requirements(fields);
    schema["else"]["propertyNames"] = {{"enum", keys}};
    schema["required"].erase(schema["required"].begin());
    if (schema["required"].empty()) schema.erase("required");
    return schema;
  }

  static Json requirements(const VariantTable& table, const Fields& common,
                           const std::string& default_type, const std::string& name) {
    const bool is_zoo = table.tag == kZooTag;
    Json schema = requirements(common, is_zoo);
    if (default_type.empty()) {
      Json required = Json::array({table.tag});
      for (const Json& key : schema.value("required", Json::array())) required.push_back(key);
      schema["required"] = std::move(required);
    } else {
      schema["if"] = {{"not", has_key(table.tag)}};
      schema["then"] = reference(name + "." + default_type);
    }
    Json all = Json::array();
    for (const ObjectTable* kind : table.alternatives) {
      Json needs = requirements(fields_of(*kind), is_zoo);
      if (!needs.empty()) all.push_back({{"if", is_kind(table, *kind, false)}, {"then", needs}});
    }
    if (!all.empty()) schema["allOf"] = std::move(all);
    return schema;
  }

  // Shared definitions:

  /// Creates definitions of properties that several kinds share, such as `data.batch_size`.
  static void share_repeated(Json& schema) {
    constexpr std::size_t kMinSize = 60;  // below this, a property is not longer than a reference
    Json& defs = schema["$defs"];
    std::map<std::string, int> counts;
    for (const auto& [def, kind] : defs.items()) {
      // Count the parts of a repeated property only once.
      each_property(kind,
                    [&](const auto&, const Json& value) { return ++counts[value.dump()] == 1; });
    }
    std::map<std::string, std::string> names;  // text of a property -> name of its definition
    Json shared = Json::object();
    for (const auto& [def, kind] : defs.items()) {
      each_property(kind, [&, &whole = def](const std::string& key, const Json& value) {
        const std::string text = value.dump();
        if (counts[text] < 2 || text.size() < kMinSize || names.contains(text)) return true;
        std::string name = whole.substr(0, whole.find('.')) + "." + key;
        if (shared.contains(name) || defs.contains(name)) name = whole + "." + key;
        if (shared.contains(name) || defs.contains(name)) return true;
        names[text] = name;
        shared[name] = value;
        return true;
      });
    }
    replace(schema, names);
    for (auto& [name, value] : shared.items()) {
      replace(value, names);
      defs[name] = value;
    }
  }

  /// Calls use(key, property) for the properties on all levels of `schema`. If `use` returns false,
  /// skips the levels below that property.
  template <class Use>
  static void each_property(const Json& schema, const Use& use) {
    if (!schema.is_structured()) return;
    for (const auto& [key, value] : schema.items()) {
      if (key != "properties" || !value.is_object()) {
        each_property(value, use);
        continue;
      }
      for (const auto& [name, property] : value.items()) {
        if (use(name, property)) each_property(property, use);
      }
    }
  }

  /// Replaces each property that has a definition by a reference to it, on all levels below
  /// `schema`.
  static void replace(Json& schema, const std::map<std::string, std::string>& names) {
    if (!schema.is_structured()) return;
    for (auto& [key, value] : schema.items()) {
      if (key == "properties" && value.is_object()) {
        for (auto& [property, text] : value.items()) {
          const auto found = names.find(text.dump());
          if (found != names.end()) {
            text = reference(found->second);
          } else {
            replace(text, names);
          }
        }
      } else {
        replace(value, names);
      }
    }
  }

  Json defs_ = Json::object();
};

/// Returns `value` as text with a line for each property (such as `$defs`, `layer.Conv2d`,
/// `properties`, `bias`). Indents by one space per level, because full indentation would double the
/// size.
std::string folded(const Json& value, std::size_t depth = 0) {
  constexpr std::size_t kColumns = 120, kMaxDepth = 4;
  const std::string line = json_text(value);
  if (!value.is_structured() || line.size() < kColumns || depth == kMaxDepth) return line;
  const std::string begin = "\n" + std::string(depth + 1, ' ');
  std::string text;
  for (const auto& [key, below] : value.items()) {
    text += (text.empty() ? "" : ",") + begin;
    if (value.is_object()) text += json_text(Json(key)) + ":";
    text += folded(below, depth + 1);
  }
  const std::string end = "\n" + std::string(depth, ' ');
  return value.is_object() ? "{" + text + end + "}" : "[" + text + end + "]";
}

}  // namespace

std::string config_schema(const Catalog& catalog) {
  const SpecTables tables(catalog);
  return folded(SchemaMaker().make(tables));
}

}  // namespace dpt
