// The Catalog of everything that a config can contain.
#pragma once

#include "engine/config/train_spec.h"

namespace dpt {

/// Returns all built-in layers, losses, optimizers, schedules, data sets, transforms and networks.
const Catalog& catalog();

}  // namespace dpt
