// The schema with shared properties expanded, for tests.
#pragma once

#include <cstring>
#include <nlohmann/json.hpp>
#include <string>

#include "engine/config/schema.h"
#include "tests/engine/config/small_catalog.h"

namespace dpt::testing {

/// Replaces references to the definitions of properties in `value`. References to kinds (`layer`,
/// `data.images`) remain, because kinds may contain each other.
inline void write_out(nlohmann::json& value, const nlohmann::json& defs) {
  if (!value.is_structured()) return;
  for (auto& [key, below] : value.items()) {
    if (key == "properties" && below.is_object()) {
      for (auto& [name, property] : below.items()) {
        if (!property.contains("$ref")) continue;
        const std::string def = property["$ref"].get<std::string>().substr(std::strlen("#/$defs/"));
        property = defs.at(def);
      }
    }
    write_out(below, defs);
  }
}

inline nlohmann::json resolved_schema(const Catalog& catalog) {
  nlohmann::json schema = nlohmann::json::parse(config_schema(catalog));
  const nlohmann::json defs = schema["$defs"];
  write_out(schema, defs);
  return schema;
}

}  // namespace dpt::testing
