// data.normalize: how it becomes a transform of both lists.
#pragma once

#include <string>

#include "engine/spec/train_spec.h"

namespace dpt {

/// Makes the transforms that run (TransformsSpec::train and eval) from those that were written and
/// data.normalize, once its numbers are known: a Normalize at the end, before a RandomErasing.
/// `transforms` are the catalog's.
void apply_normalization(const VariantTable& transforms, DataSpec& data);

/// Returns the path of the first Normalize that was written ("data.transforms.eval.2"); empty if
/// there is none.
std::string written_normalize(const TransformsSpec& transforms);

}  // namespace dpt
