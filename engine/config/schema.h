#pragma once

#include <string>

#include "engine/config/train_spec.h"

namespace dpt {

/// Returns the JSON Schema 2020-12 of a config file.
std::string config_schema(const Catalog& catalog);

}  // namespace dpt
