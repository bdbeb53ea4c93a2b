#pragma once

#include <string>

#include "engine/config/train_spec.h"

namespace dpt {

/// Returns the reference page docs/reference/config.md.
std::string config_reference(const Catalog& catalog);

}  // namespace dpt
