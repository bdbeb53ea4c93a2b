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
  std::string weights;               ///< "raw", "ema" or "swa"
  std::string loss;                  ///< its type: what the outputs mean
  std::vector<std::string> classes;  ///< or names of the outputs
  std::vector<std::int64_t> input;   ///< [channels, height, width]
  /// Raw samples are divided by it first: 255 for bytes. Unset where that was not looked up.
  std::optional<float> scale;
  std::vector<float> mean, stddev;  ///< by channel; then (x - mean) / std; empty: not done
  /// Evaluation transforms as JSON, a list of `{"type": "Resize", "size": [256]}`, including the
  /// Resize that dpt adds if they do not give images a size.
  nlohmann::ordered_json transforms = nlohmann::ordered_json::array();
  bool turns_upright = true;  ///< images are turned by their Exif orientation
  std::string other_model;    ///< difference from the checkpoint's model; empty if none
};

/// The facts as texts, lists as JSON (docs/guide/export.md). No key begins with "dpt.": in a
/// safetensors file that is the mark of one with a checksum, which a state_dict has no place for.
std::map<std::string, std::string> metadata_of(const ExportFacts& facts);

}  // namespace dpt
