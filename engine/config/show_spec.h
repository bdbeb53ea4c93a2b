// Conversion of a TrainSpec to YAML text.
#pragma once

#include <string>

#include "engine/config/train_spec.h"

namespace dpt {

/// Returns the resolved config as YAML that reads back to the same spec. With `origins`, each line
/// carries a comment saying where the value came from (file:line, command line, default). Paths are
/// absolute.
std::string show_spec(const Catalog& catalog, const TrainSpec& spec, bool origins = false);

/// Returns the same spec with each block replaced by the layers that it stands for, under their
/// full names.
TrainSpec with_explicit_layers(const TrainSpec& spec);

}  // namespace dpt
