// Samples to be predicted: their labels are replaced by zeros, in the shape of the model's targets.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "datasets/dataset.h"
#include "engine/data/source.h"
#include "engine/data/unreadable_samples.h"

namespace dpt {

/// Returns the samples of `source` with the label 0 and targets of 0 for a model with `outputs`. A
/// sample that cannot be read is added to `unreadable`, and its pixels are 0.
std::shared_ptr<const DataSource> without_labels(std::shared_ptr<const DataSource> source,
                                                 const ModelOutputs& outputs,
                                                 std::shared_ptr<UnreadableSamples> unreadable);

}  // namespace dpt
