// Metadata of an exported model.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace dpt {

struct ExportFacts {
  std::string version;     ///< "dpt 0.1.0"
  std::string run;         ///< the config's name
  std::string checkpoint;  ///< checksum of the file
  std::int64_t step = 0, epoch = 0;
  std::string weights;               ///< weights that were exported: "raw", "ema" or "swa"
  std::string loss;                  ///< type of the loss, which defines the meaning of the outputs
  std::vector<std::string> classes;  ///< names of the classes or of the outputs
  std::vector<std::int64_t> input;   ///< [channels, height, width]
  /// Divisor that is applied first to raw samples: 255 for bytes. Unset if it was not determined.
  std::optional<float> scale;
  std::vector<float> mean, stddev;  ///< by channel, applied after `scale`; empty: not applied
  /// Evaluation transforms as JSON: a list of entries such as `{"type": "Resize", "size": [256]}`.
  /// It includes the Resize that dpt adds if no transform brings images to one size.
  nlohmann::ordered_json transforms = nlohmann::ordered_json::array();
  bool turns_upright = true;  ///< true if images are turned as their Exif orientation says
  std::string other_model;    ///< difference from the checkpoint's model; empty if none
};

/// Returns the facts as texts, with lists as JSON (docs/guide/export.md). No key begins with
/// "dpt.": in a safetensors file, such a key marks a file with a checksum, which a state_dict
/// cannot contain.
std::map<std::string, std::string> metadata_of(const ExportFacts& facts);

}  // namespace dpt
