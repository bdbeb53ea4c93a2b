// Synthetic samples in the place of a data set that need not be there: of its shape, type and kind
// of targets, read as its samples are. They carry nothing to learn; `synthetic` has what does.
#pragma once

#include "engine/data/data_sets.h"

namespace dpt {

struct SmokeSamples {
  SampleShape shape;  ///< shape of the samples; images are resized to it
  /// PNG files that are decoded when they are read, of unlike sizes from `image` on, up to a
  /// quarter more.
  bool images = false;
  Size2 image{};
  DType type = DType::u8;    ///< u8, or f32 from -1 to 1
  TargetShape targets;       ///< `values` is that of the model's outputs, where targets are rows
  std::int64_t classes = 0;  ///< or outputs
  std::int64_t train = 0, test = 0;  ///< samples
};

/// Every value is a pure function of (sample, position). Images have 1 or 3 channels, else throws
/// ErrorKind::data; `salvage` as in DataRequirements.
DataSets make_up_samples(const SmokeSamples& asked, bool salvage);

}  // namespace dpt
