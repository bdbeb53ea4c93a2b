#pragma once

#include <string>
#include <vector>

#include "engine/config/train_spec.h"

namespace dpt {

/// A value of a config that a command line may replace, for completion.
struct ConfigPath {
  std::string path;                ///< "optimizer.lr"
  std::vector<std::string> words;  ///< the possible values that are words, such as "true"
};
/// Returns the paths of all kinds (such as those of every optimizer), sorted. Leaves out items of
/// lists, such as layers, because each config names them differently.
std::vector<ConfigPath> config_paths(const Catalog& catalog);

}  // namespace dpt
