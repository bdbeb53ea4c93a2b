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

/// The first opset with LayerNormalization, and therefore the oldest that can express all layers.
/// Every runtime since 2022 reads it. Its IR version is 8.
inline constexpr std::int64_t kOnnxOpset = 17;

/// Order of the dimensions of images: (N,C,H,W), or (N,H,W,C), as decoders return them.
enum class ImageLayout : std::uint8_t { nchw, nhwc };

struct OnnxOptions {
  /// True if the graph begins with the operations that turn raw samples into the network's input:
  /// division by ExportFacts::scale, which must be set, then mean and std. If `raw_type` is u8, the
  /// graph then takes bytes.
  bool include_normalisation = false;
  DType raw_type = DType::u8;
  /// If set, the graph begins with ExportFacts::transforms, followed by the normalisation. It takes
  /// the bytes of images of any size in this layout. REQUIRES: raw_type u8.
  std::optional<ImageLayout> preprocessing = {};
  /// True if the graph ends with the function that turns outputs into probabilities: softmax for
  /// cross_entropy, the sigmoid for bce_with_logits. Other losses throw ErrorKind::usage.
  bool include_softmax = false;
};

/// Returns the bytes of a model that computes the same as an evaluation, in fp32: from "input"
/// (N,C,H,W) to "output" (N, outputs), for any N. `plan` is the plan of `spec`; `params` are in
/// buffer layout. Throws ErrorKind::usage with a line for each layer that cannot be expressed
/// ("file:line:col: layer ..."), for a transform that ONNX cannot express, or for a model of 2 GiB
/// (the format's limit) or more.
std::string onnx_model(const TrainSpec& spec, const Plan& plan, const std::vector<float>& params,
                       const ExportFacts& facts, const OnnxOptions& options = {});

}  // namespace dpt
