// Builds a Variant from JSON: golden files store the options of a case as JSON.
#pragma once

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "engine/config/fields.h"

namespace dpt::testing {

inline Variant json_variant(const VariantTable& kinds, const std::string& type,
                            const nlohmann::json& options) {
  const auto table = std::find_if(kinds.alternatives.begin(), kinds.alternatives.end(),
                                  [&](const ObjectTable* each) { return each->name == type; });
  if (table == kinds.alternatives.end()) throw std::runtime_error("no " + type);
  const std::shared_ptr<void> made = (*table)->make();
  for (const auto& [key, value] : options.items()) {
    const auto& fields = (*table)->fields;
    const auto field = std::find_if(fields.begin(), fields.end(),
                                    [&](const Field& each) { return each.name == key; });
    if (field == fields.end()) throw std::runtime_error("no field " + key);
    if (value.is_boolean()) {
      field->set(made.get(), value.get<bool>());
    } else if (value.is_string()) {
      field->set(made.get(), value.get<std::string>());
    } else if (value.is_array()) {
      field->set(made.get(), value.get<std::vector<double>>());
    } else if (field->type == FieldType::integer) {
      field->set(made.get(), value.get<std::int64_t>());
    } else {
      field->set(made.get(), value.get<double>());
    }
  }
  return {type, {"test.yaml", 7, 3}, *table, made};
}

}  // namespace dpt::testing
