// Everything that can stand in a config, put together.
#pragma once

#include "engine/spec/train_spec.h"

namespace dpt {

/// All layers, optimizers, schedules, data sets and transforms that were built in.
const Catalog& catalog();

}  // namespace dpt
