#include "engine/config/former_keys.h"

namespace dpt {
namespace {

void rename_fields(const std::vector<Field>& fields, YamlNode& node);

/// Renames the fields of the kind that the mapping chooses.
void rename_kind(const VariantTable& kinds, YamlNode& node) {
  const YamlNode* tag = node.find(kinds.tag);
  if (!tag) return;
  for (const ObjectTable* kind : kinds.alternatives) {
    if (kind->name == tag->text) rename_fields(kind->fields, node);
  }
}

void rename_fields(const std::vector<Field>& fields, YamlNode& node) {
  if (!node.is_map()) return;
  for (const Field& field : fields) {
    if (!field.former_name.empty() && !node.find(field.name)) {
      if (YamlNode* old = node.find(field.former_name)) old->key = field.name;
    }
    YamlNode* child = node.find(field.name);
    if (!child) continue;
    if (field.type == FieldType::object) rename_former_keys(*field.object, *child);
    if (field.type == FieldType::variant) rename_kind(*field.variants, *child);
    for (YamlNode& item : child->children) {
      if (field.type == FieldType::objects) rename_former_keys(*field.object, item);
      if (field.type == FieldType::variants) rename_kind(*field.variants, item);
    }
  }
}

}  // namespace

void rename_former_keys(const ObjectTable& table, YamlNode& node) {
  rename_fields(table.fields, node);
  if (table.choice.variants) rename_kind(*table.choice.variants, node);
}

}  // namespace dpt
