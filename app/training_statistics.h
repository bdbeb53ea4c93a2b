// Mean and standard deviation of the training samples: what `dpt data stats` prints and
// data.normalize: auto takes.
#pragma once

#include <optional>

#include "engine/data/sample_survey.h"
#include "engine/data/source.h"
#include "engine/training/process_group.h"

namespace dpt {

/// Measures the channels of the training samples, without those that val_split holds out, in
/// `workers` threads. Returns nothing if a stop was requested, unless the command is still
/// starting: then it ends with StopRequested. Throws ErrorKind::data if samples cannot be used;
/// unreadable ones are left out, with a warning, under data.on_bad_sample: skip.
std::optional<ChannelStatistics> training_statistics(const TrainSpec& spec, const DataSets& sets,
                                                     int workers);

/// Returns the numbers as a config has them: six digits, and 1 for a standard deviation of 0.
NormalizeSpec normalize_spec(const ChannelStatistics& statistics);

/// Returns "mean: [0.5], std: [0.25]".
std::string text_of(const NormalizeSpec& normalize);

/// Measures the numbers of data.normalize: auto, unless they are known; prints them on the first
/// process. Collective over `processes`, if there are any: all get the numbers of the first.
void measure_normalization(TrainSpec& spec, const DataSets& sets, ProcessGroup* processes);

/// Gives data.normalize: auto numbers that change nothing, for commands whose results do not depend
/// on them.
void skip_normalization(TrainSpec& spec);

}  // namespace dpt
