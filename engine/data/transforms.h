// The part of the transforms of a config that the input kernel does, and checks of the whole.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/config/train_spec.h"
#include "engine/data/source.h"
#include "kernels/input_op.h"

namespace dpt {

/// The device's part of the transforms of a config ("train" or "eval" list; host_pipeline.h) as a
/// description of the input kernel. `source`, or `raw`, is what the host's part leaves.
/// Throws one ErrorKind::usage with a line, the transform's place first, for each one whose shape
/// or number of channels does not fit.
InputDesc make_input_desc(const std::vector<Variant>& transforms, const DataSource& source,
                          SampleShape model_input, std::uint64_t seed);
/// The same of images of that type and shape.
InputDesc make_input_desc(const std::vector<Variant>& transforms, DType raw_type, SampleShape raw,
                          SampleShape model_input, std::uint64_t seed);

/// Checks all that needs no data: options, and sizes where they do not follow from the images'.
/// Throws as make_input_desc.
void check_transforms(const std::vector<Variant>& transforms, SampleShape model_input);

/// Returns a message for random transforms of evaluations, which then depend on chance; empty if
/// there are none. New runs are refused with it; stored ones may have them.
std::string random_evaluation(const TransformsSpec& transforms);

/// Throws ErrorKind::usage where the list of evaluation has a transform that only training has.
void check_evaluation_transforms(const TransformsSpec& transforms);

}  // namespace dpt
