// Adds data.normalize to both lists of transforms.
#pragma once

#include <string>

#include "engine/config/train_spec.h"

namespace dpt {

/// Sets the transforms to run (TransformsSpec::train and eval) to the written ones. Once the
/// numbers of data.normalize are known, adds a Normalize at the end, or before a RandomErasing.
/// `transforms` is the catalog's table.
void apply_normalization(const VariantTable& transforms, DataSpec& data);

/// Returns the path of the first written Normalize ("data.transforms.eval.2"); empty if there is
/// none.
std::string written_normalize(const TransformsSpec& transforms);

}  // namespace dpt
