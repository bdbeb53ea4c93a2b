// A network with its weights as an ONNX model.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/export/facts.h"
#include "engine/export/preprocessing.h"
#include "engine/graph/plan.h"

namespace dpt {

/// The first opset with LayerNormalization, and so the oldest that says all layers: what reads it
/// is every runtime since 2022. Its IR version is 8.
inline constexpr std::int64_t kOnnxOpset = 17;

/// Order of the dimensions of images: (N,C,H,W), or (N,H,W,C), the order of decoders.
enum class ImageLayout : std::uint8_t { nchw, nhwc };

struct OnnxOptions {
  /// The graph begins with what turns raw samples into the network's input: division by
  /// ExportFacts::scale, which must be set, mean and std. Bytes (u8) are then read as such.
  bool include_normalisation = false;
  DType raw_type = DType::u8;
  /// The graph begins with ExportFacts::transforms, then the normalisation: it takes the bytes of
  /// images of any size in this layout. REQUIRES: raw_type u8.
  std::optional<ImageLayout> preprocessing = {};
  /// The graph ends with the function that turns outputs into probabilities: softmax for
  /// cross_entropy, the sigmoid for bce_with_logits. Throws ErrorKind::usage for other losses.
  bool include_softmax = false;
};

/// The bytes of the model, which computes what an evaluation does, in fp32: "input" (N,C,H,W) to
/// "output" (N, outputs), any N. `plan` is that of `spec`, `params` are in buffer layout. Throws
/// ErrorKind::usage with a line for each layer that cannot be written ("file:line:col: layer ..."),
/// for a transform that ONNX cannot express, or for a model of 2 GiB and more, the format's limit.
std::string onnx_model(const TrainSpec& spec, const Plan& plan, const std::vector<float>& params,
                       const ExportFacts& facts, const OnnxOptions& options = {});

}  // namespace dpt
