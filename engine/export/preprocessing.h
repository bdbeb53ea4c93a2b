// From the pixels of a picture of any size to the pixels that a network was evaluated on, in
// operations of ONNX. Opset 18 is the first whose Resize is antialiased.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "engine/layers/op_writer.h"

namespace dpt {

/// Opset of a model that begins with a preprocessing.
inline constexpr std::int64_t kPreprocessingOpset = 18;

/// Writes the transforms of an evaluation and returns the value that holds the result.
/// - `pixels`: float32 (N, channels, height, width) of integers from 0 to 255, any height and
/// width.
/// - `transforms`: the list in ExportFacts::transforms. Normalize is left to the caller.
/// - Result: float32 (N, channels, height, width) of such integers, of the last transform's size.
/// Pixels are those of Pillow and torchvision, but for a rounding by 1 where a resized value lies
/// half way between two integers.
/// Throws ErrorKind::usage for a transform that is random or that ONNX cannot express.
std::string write_preprocessing(OpWriter& writer, const std::string& pixels,
                                const nlohmann::ordered_json& transforms);

}  // namespace dpt
