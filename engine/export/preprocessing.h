// Writes evaluation transforms as ONNX operations. They turn an image of any size into the
// network's input pixels.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "engine/layers/op_writer.h"

namespace dpt {

/// Writes the evaluation transforms and returns the value that holds the result.
/// - `pixels`: float32 (N, channels, height, width) of integers from 0 to 255, any height and
/// width.
/// - `transforms`: the list in ExportFacts::transforms. Normalize is left to the caller.
/// - Result: float32 (N, channels, height, width) of integers from 0 to 255, of the size after the
/// last transform.
/// Pixels equal those of Pillow and torchvision bit for bit.
/// Throws ErrorKind::usage for a transform that is random or that ONNX cannot express.
std::string write_preprocessing(OpWriter& writer, const std::string& pixels,
                                const nlohmann::ordered_json& transforms);

}  // namespace dpt
