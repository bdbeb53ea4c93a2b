// The part of a config's transforms that the input kernel applies, and checks of all transforms.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/config/train_spec.h"
#include "engine/data/source.h"
#include "kernels/input_op.h"

namespace dpt {

/// Returns a description of the input kernel for the device part (host_pipeline.h) of a config's
/// "train" or "eval" transforms. `source` describes the samples after the host part. Throws one
/// ErrorKind::usage with a line for each transform that does not fit the shape or the number of
/// channels; each line begins with the transform's place.
InputDesc make_input_desc(const std::vector<Variant>& transforms, const DataSource& source,
                          SampleShape model_input, std::uint64_t seed);
/// Returns the same for samples of type `raw_type` and shape `raw` after the host part.
InputDesc make_input_desc(const std::vector<Variant>& transforms, DType raw_type, SampleShape raw,
                          SampleShape model_input, std::uint64_t seed);

/// Checks everything that needs no data: options, and sizes that do not depend on the images.
/// Throws as make_input_desc does.
void check_transforms(const std::vector<Variant>& transforms, SampleShape model_input);

/// Returns a message if evaluation has random transforms, which make its results depend on chance;
/// otherwise empty. New runs are refused with this message; stored runs may have such transforms.
std::string random_evaluation(const TransformsSpec& transforms);

/// Throws ErrorKind::usage if data.transforms.eval has a transform that is for training only.
void check_evaluation_transforms(const TransformsSpec& transforms);

}  // namespace dpt
