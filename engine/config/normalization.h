// Adds data.normalize to both lists of transforms.
#pragma once

#include <string>

#include "engine/config/train_spec.h"

namespace dpt {

/// Sets the transforms to run (TransformsSpec::train and eval) from the written ones and
/// data.normalize, once its numbers are known: a Normalize at the end, before a RandomErasing.
/// `transforms` is the catalog's table.
void apply_normalization(const VariantTable& transforms, DataSpec& data);

/// Returns the path of the first written Normalize ("data.transforms.eval.2"); empty if there is
/// none.
std::string written_normalize(const TransformsSpec& transforms);

}  // namespace dpt
