// Samples to be predicted: whatever their data set says of labels, the model's outputs are what
// counts.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "datasets/dataset.h"
#include "engine/data/source.h"
#include "engine/data/unreadable_samples.h"

namespace dpt {

/// The samples of `source` with the label 0 and targets of 0, as a model with `outputs` asks for. A
/// sample that cannot be read is added to `unreadable`, and is 0 in all pixels.
std::shared_ptr<const DataSource> without_labels(std::shared_ptr<const DataSource> source,
                                                 const ModelOutputs& outputs,
                                                 std::shared_ptr<UnreadableSamples> unreadable);

}  // namespace dpt
