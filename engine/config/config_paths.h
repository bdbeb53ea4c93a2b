#pragma once

#include <string>
#include <vector>

#include "engine/config/train_spec.h"

namespace dpt {

/// A value of a config that a command line may replace, for completion.
struct ConfigPath {
  std::string path;                ///< "optimizer.lr"
  std::vector<std::string> words;  ///< the values that it may have, where these are words
};
/// All of them, sorted; those of every kind there is (`optimizer.type`) together. Items of lists,
/// such as layers, have names of their own and are not among them.
std::vector<ConfigPath> config_paths(const Catalog& catalog);

}  // namespace dpt
