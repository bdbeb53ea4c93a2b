// Finds the file that `weights.file` and --weights name: a file, the checkpoint of a run folder, a
// download, or the pretrained weights of a network of the zoo.
#pragma once

#include <string>

#include "engine/config/train_spec.h"

namespace dpt {

/// A file of weights on this machine.
struct WeightsSource {
  std::string path;
  std::string url;     ///< source of a downloaded file; empty for a local file
  std::string sha256;  ///< hash of a downloaded or checked file, in hexadecimal
};

/// Returns the weights file that `path` names: for a run folder, its best checkpoint, as in `dpt
/// eval`; for https:// and hf://, the downloaded file. Throws ErrorKind::data for a folder without
/// a checkpoint, and as download() does.
WeightsSource weights_source(const std::string& path);

/// Does the same for the file of a config, and compares its SHA-256 if the config sets one.
WeightsSource weights_source(const WeightsSpec& spec);

/// Replaces `pretrained` by the file of the network's weights and the map of their names. Leaves
/// other files unchanged. Throws ErrorKind::usage for a model without such weights.
void resolve_pretrained(const ModelSpec& model, WeightsSpec& weights);

}  // namespace dpt
