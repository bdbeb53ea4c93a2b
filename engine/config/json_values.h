// Values of a config as JSON, in the form that users write.
#pragma once

#include <nlohmann/json.hpp>

#include "engine/config/fields.h"

namespace dpt {

/// Returns a whole number as an integer: 0, not 0.0.
nlohmann::ordered_json json_number(double value);

/// Returns a value of `field` as JSON.
nlohmann::ordered_json json_of(const Field& field, const PlainValue& value);

/// Returns all options of `chosen`, including defaults: `{"type": "CenterCrop", "size": 224}`.
/// REQUIRES: the alternative has fields of simple types only.
nlohmann::ordered_json json_of(const Variant& chosen);

}  // namespace dpt
