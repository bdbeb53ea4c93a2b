// Values of a config as JSON, in the form in which users write them.
#pragma once

#include <nlohmann/json.hpp>

#include "engine/spec/fields.h"

namespace dpt {

/// An integer where the number is one: 0, not 0.0.
nlohmann::ordered_json json_number(double value);

/// A value that `field` holds.
nlohmann::ordered_json json_of(const Field& field, const PlainValue& value);

/// All options, defaults included: `{"type": "CenterCrop", "size": 224}`.
/// REQUIRES: the alternative has fields of simple types only.
nlohmann::ordered_json json_of(const Variant& chosen);

}  // namespace dpt
