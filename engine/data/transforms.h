// The part of a config's transforms that the input kernel applies, and checks of all transforms.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/config/train_spec.h"
#include "engine/data/source.h"
#include "kernels/input_op.h"

namespace dpt {

/// Returns the device's part of the transforms of a config ("train" or "eval" list;
/// host_pipeline.h) as a description of the input kernel. `source`, or `raw`, describes the result
/// of the host's part. Throws one ErrorKind::usage with a line, beginning with the transform's
/// place, for each transform whose shape or number of channels does not fit.
InputDesc make_input_desc(const std::vector<Variant>& transforms, const DataSource& source,
                          SampleShape model_input, std::uint64_t seed);
/// Returns the same for samples of that type and shape.
InputDesc make_input_desc(const std::vector<Variant>& transforms, DType raw_type, SampleShape raw,
                          SampleShape model_input, std::uint64_t seed);

/// Checks everything that needs no data: options, and sizes that do not depend on the images.
/// Throws as make_input_desc does.
void check_transforms(const std::vector<Variant>& transforms, SampleShape model_input);

/// Returns a message if evaluations have random transforms, so that their results depend on chance;
/// otherwise empty. New runs are refused with it; stored ones may have them.
std::string random_evaluation(const TransformsSpec& transforms);

/// Throws ErrorKind::usage if the list of evaluation has a transform that is for training only.
void check_evaluation_transforms(const TransformsSpec& transforms);

}  // namespace dpt
