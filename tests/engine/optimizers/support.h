// Makes a Variant as the config reader would: defaults, then fields set through the table.
#pragma once

#include <initializer_list>
#include <string>
#include <utility>

#include "engine/config/fields.h"

namespace dpt {

inline const ObjectTable& alternative(const VariantTable& table, const std::string& type) {
  for (const ObjectTable* one : table.alternatives) {
    if (one->name == type) return *one;
  }
  throw std::runtime_error("no " + type);
}

inline Variant make_variant(const VariantTable& alternatives, const std::string& type,
                            std::initializer_list<std::pair<const char*, PlainValue>> values = {}) {
  const ObjectTable& table = alternative(alternatives, type);
  const std::shared_ptr<void> options = table.make();
  for (const auto& [name, value] : values) {
    bool found = false;
    for (const Field& field : table.fields) {
      if (field.name != name) continue;
      field.set(options.get(), value);
      found = true;
    }
    if (!found) throw std::runtime_error(std::string("no field ") + name);
  }
  return {type, {"test.yaml", 7, 3}, &table, options};
}

/// Returns the message of the table's cross-field check; empty if it passes.
inline std::string check_of(const Variant& variant) {
  return variant.table->check ? variant.table->check(variant.options.get()) : std::string();
}

}  // namespace dpt
