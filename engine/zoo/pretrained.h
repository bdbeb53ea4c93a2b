// Weights on the Hugging Face hub for networks of the zoo: their files, and the map from tensor
// names to layers. tests/golden/make_pretrained_names.py compares names, shapes and outputs with
// timm's networks.
#pragma once

#include <string>
#include <vector>

#include "engine/config/fields.h"

namespace dpt {

/// Weights of one network.
struct PretrainedWeights {
  std::string network;  ///< name in the zoo
  std::string file;     ///< hf://OWNER/REPO
  TextPairs map;        ///< prefixes of names in the file -> prefixes in the network
};

/// Returns the weights of a network; null if none are known.
const PretrainedWeights* pretrained_weights(const std::string& network);

/// Returns true if the table of pretrained weights contains the file.
bool is_pretrained_file(const std::string& file);

/// Returns the names of the networks that have weights, in the order of the table.
std::vector<std::string> pretrained_networks();

}  // namespace dpt
