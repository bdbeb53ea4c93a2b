// Everything that a config can contain, in one Catalog.
#pragma once

#include "engine/config/train_spec.h"

namespace dpt {

/// All layers, optimizers, schedules, data sets and transforms that were built in.
const Catalog& catalog();

}  // namespace dpt
