// Field tables -> JSON Schema 2020-12, for editors and for checks outside dpt.
//
// Every mapping appears twice: in full, and "partial" (nothing required) for a config that extends
// another and so need not be complete. Lists replace when configs merge, so their items are
// always full.
#include <nlohmann/json.hpp>
#include <set>

#include "engine/spec/json_values.h"
#include "engine/spec/paths.h"
#include "engine/spec/read_spec.h"
#include "engine/spec/scalars.h"
#include "engine/spec/spec_tables.h"
#include "kernels/json_text.h"

namespace dpt {
namespace {

using Json = nlohmann::ordered_json;

class SchemaMaker {
 public:
  Json make(const SpecTables& tables) {
    Json schema;
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema";
    schema["title"] = "dpt config";
    schema["description"] = tables.root.doc;
    schema["type"] = "object";
    TrainSpec defaults;
    const Json full = object(tables.root, &defaults, false);
    const Json partial = object(tables.root, &defaults, true);
    schema["if"] = {{"required", Json::array({kExtendsKey})}};
    schema["then"] = partial;
    schema["else"] = full;
    schema["then"]["properties"][kExtendsKey] = {{"type", "string"}, {"description", kExtendsDoc}};
    schema["$defs"] = defs_;
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

  Json type_of(const Field& field, void* owner, bool is_partial) {
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
        Json mapping = object(*field.object, field.nested(owner), is_partial);
        if (field.plain_key.empty()) return mapping;
        return {{"anyOf", {type_of(plain_field(field), field.nested(owner), false), mapping}}};
      }
      case FieldType::objects:
        return list_of(field, item(*field.object, field.append(owner)));
      case FieldType::variant:
        return variant(*field.variants, is_partial);
      case FieldType::variants:
        return list_of(field, variant(*field.variants, false));
      case FieldType::patch:
        return patch();
    }
    return true;
  }

  Json property(const Field& field, void* owner, bool is_partial) {
    Json schema;
    schema["description"] = field.doc;
    if (!field.is_required && field.get && !field.follow) {
      const PlainValue value = field.get(owner);
      const auto* path = std::get_if<std::string>(&value);
      const bool is_empty_text = path && path->empty();
      if (!is_empty_text) schema["default"] = json_of(field, value);
    }
    Json type = type_of(field, owner, is_partial);
    if (field.is_optional) type = {{"anyOf", {type, {{"type", "null"}}}}};
    schema.update(type);
    return schema;
  }

  /// A mapping of `fields`; `chosen` are those of its kind, or null.
  Json mapping(const std::vector<const Field*>& fields, const std::vector<void*>& owners,
               bool is_partial) {
    Json schema = {{"type", "object"}};
    Json properties = Json::object();
    Json required = Json::array();
    for (std::size_t i = 0; i < fields.size(); ++i) {
      properties[fields[i]->name] = property(*fields[i], owners[i], is_partial);
      if (fields[i]->is_required && !is_partial) required.push_back(fields[i]->name);
    }
    schema["properties"] = std::move(properties);
    if (!required.empty()) schema["required"] = std::move(required);
    schema["additionalProperties"] = false;
    return schema;
  }

  Json object(const ObjectTable& table, void* defaults, bool is_partial) {
    std::vector<const Field*> fields;
    for (const Field& field : table.fields) fields.push_back(&field);
    const std::vector<void*> owners(fields.size(), defaults);
    const FlatChoice& flat = table.choice;
    if (!flat.variants) return mapping(fields, owners, is_partial);
    if (flat.makes.empty()) {
      return choice(*flat.variants, fields, owners, is_partial, flat.default_type, table.name);
    }
    const Json plain = mapping(fields, owners, is_partial);
    if (flat.variants->alternatives.empty()) return plain;
    std::erase_if(fields, [&](const Field* field) { return field->name == flat.makes; });
    const Json chosen = choice(*flat.variants, fields, std::vector<void*>(fields.size(), defaults),
                               is_partial, {}, table.name);
    // A config that extends another may give options of a network that the other one names.
    return {{"type", "object"},
            {"if", {{"required", Json::array({flat.variants->tag})}}},
            {"then", chosen},
            {"else", is_partial ? with_keys_of(chosen, plain) : plain}};
  }

  /// `plain` with the keys of `chosen` allowed too.
  static Json with_keys_of(const Json& chosen, Json plain) {
    plain.erase("additionalProperties");
    Json names = chosen["propertyNames"];
    for (const auto& [key, value] : plain["properties"].items()) names["enum"].push_back(key);
    plain["propertyNames"] = std::move(names);
    return plain;
  }

  /// A list of changes to named layers; what `change` may change depends on the layer.
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

  /// An item of a list; where its kind is a choice, a definition, for a block's items are of its
  /// own sort again.
  Json item(const ObjectTable& table, void* defaults) {
    if (!table.choice.variants) return object(table, defaults, false);
    if (!defs_.contains(table.name)) {
      defs_[table.name] = nullptr;
      defs_[table.name] = object(table, defaults, false);
    }
    return {{"$ref", "#/$defs/" + table.name}};
  }

  Json variant(const VariantTable& table, bool is_partial) {
    return choice(table, {}, {}, is_partial, {}, table.what);
  }

  /// One definition per kind, chosen by the tag. Spelled as if/then rather than oneOf, so that a
  /// validator complains about the one key that is wrong and not about every kind in turn.
  Json choice(const VariantTable& table, const std::vector<const Field*>& common,
              const std::vector<void*>& common_owners, bool is_partial,
              const std::string& default_type, const std::string& name) {
    Json names = Json::array();
    Json cases = Json::array();
    std::set<std::string> keys{table.tag};
    for (const Field* field : common) keys.insert(field->name);
    for (const ObjectTable* kind : table.alternatives) {
      names.push_back(kind->name);
      for (const Field& field : kind->fields) keys.insert(field.name);
      const std::string def = (is_partial ? "partial." : "") + name + "." + kind->name;
      if (!defs_.contains(def)) {
        define(def, table, *kind, common, common_owners, is_partial);
        if (table.tag == kZooTag) allow_from_data(*kind, common, defs_[def]);
      }
      Json test = {{"properties", {{table.tag, {{"const", kind->name}}}}}};
      if (kind->name != default_type || is_partial) test["required"] = Json::array({table.tag});
      cases.push_back({{"if", test}, {"then", {{"$ref", "#/$defs/" + def}}}});
    }
    Json schema = {{"type", "object"}};
    schema["properties"][table.tag] = {{"enum", names}};
    if (default_type.empty() && !is_partial) schema["required"] = Json::array({table.tag});
    if (is_partial) schema["propertyNames"] = {{"enum", keys}};
    schema["allOf"] = std::move(cases);
    return schema;
  }

  void define(const std::string& def, const VariantTable& table, const ObjectTable& kind,
              const std::vector<const Field*>& common, const std::vector<void*>& common_owners,
              bool is_partial) {
    defs_[def] = nullptr;
    const std::shared_ptr<void> options = kind.make();
    std::vector<const Field*> fields;
    std::vector<void*> owners;
    for (std::size_t i = 0; i < common.size(); ++i) {
      if (kind.is_block && common[i]->not_of_blocks) continue;
      fields.push_back(common[i]);
      owners.push_back(common_owners[i]);
    }
    for (const Field& field : kind.fields) {
      fields.push_back(&field);
      owners.push_back(options.get());
    }
    Json schema = mapping(fields, owners, is_partial);
    schema["properties"][table.tag] = {{"const", kind.name}};
    schema["description"] = kind.doc;
    if (kind.least_inputs > 1) {
      schema["required"].push_back("from");
      schema["properties"]["from"]["type"] = "array";
      schema["properties"]["from"]["minItems"] = kind.least_inputs;
    }
    defs_[def] = std::move(schema);
  }

  /// What the data set may give is not required next to `zoo`.
  static void allow_from_data(const ObjectTable& kind, const std::vector<const Field*>& common,
                              Json& schema) {
    std::set<std::string> given;
    for (const Field* field : common) {
      if (field->data_gives) given.insert(field->name);
    }
    for (const Field& field : kind.fields) {
      if (field.data_gives) given.insert(field.name);
    }
    Json required = Json::array();
    for (const Json& name : schema.value("required", Json::array())) {
      if (!given.contains(name.get<std::string>())) required.push_back(name);
    }
    schema.erase("required");
    if (!required.empty()) schema["required"] = std::move(required);
  }

  Json defs_ = Json::object();
};

}  // namespace

std::string config_schema(const Catalog& catalog) {
  const SpecTables tables(catalog);
  return json_text(SchemaMaker().make(tables), 2);
}

}  // namespace dpt
