// Random samples that replace a data set for `dpt train --smoke`, which does not need the data.
// They have its shape, type and kind of targets and are read in the same way, but cannot be learned
// (those of `synthetic` can).
#pragma once

#include "engine/data/data_sets.h"

namespace dpt {

struct SmokeSamples {
  SampleShape shape;  ///< shape of the samples; images are resized to it
  /// True for PNG files, which are decoded when they are read. Their sizes range from `image` to a
  /// quarter more.
  bool images = false;
  Size2 image{};
  DType type = DType::u8;            ///< u8, or f32 from -1 to 1
  TargetShape targets;               ///< rows have `values` floats, one per output of the model
  std::int64_t classes = 0;          ///< number of classes, or of outputs
  std::int64_t train = 0, test = 0;  ///< numbers of samples
};

/// Makes the samples. Every value is a pure function of (sample, position). Images have 1 or 3
/// channels; throws ErrorKind::data for other numbers. `salvage` is DataRequirements::salvage.
DataSets make_up_samples(const SmokeSamples& asked, bool salvage);

}  // namespace dpt
