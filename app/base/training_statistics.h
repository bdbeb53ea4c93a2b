// Mean and standard deviation of the training samples, for `dpt data stats` and data.normalize:
// auto.
#pragma once

#include <optional>

#include "engine/data/data_sets.h"
#include "engine/data/sample_survey.h"
#include "engine/processes/process_group.h"

namespace dpt {

/// Measures the channels of the training samples in `workers` threads. Leaves out the samples that
/// val_split holds out. If a stop was requested, returns nothing, or throws StopRequested if the
/// command is still starting. Throws ErrorKind::data if samples cannot be used. With
/// data.on_bad_sample: skip, leaves out unreadable samples with a warning.
std::optional<ChannelStatistics> training_statistics(const TrainSpec& spec, const DataSets& sets,
                                                     int workers);

/// Returns the numbers in the form of a config: six digits, and 1 for a standard deviation of 0.
NormalizeSpec normalize_spec(const ChannelStatistics& statistics);

/// Returns "mean: [0.5], std: [0.25]".
std::string text_of(const NormalizeSpec& normalize);

/// Measures the numbers of data.normalize: auto, unless they are known, and prints them on rank 0.
/// Collective over `processes`, if not null: all get rank 0's numbers.
void measure_normalization(TrainSpec& spec, const DataSets& sets, ProcessGroup* processes);

/// Sets neutral numbers for data.normalize: auto, for commands whose results do not depend on them.
void skip_normalization(TrainSpec& spec);

}  // namespace dpt
