// The weights that a new run starts from: the config's `weights`, and --weights.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/commands.h"
#include "engine/graph/plan.h"

namespace dpt {

/// What is read, and who asked for it.
struct StartWeights {
  WeightsSpec spec;
  std::string source;      ///< for messages: "--weights FILE", "weights.file FILE"
  bool is_strict = false;  ///< a pattern that matches nothing is an error
};

/// `--weights FILE` takes the place of weights.file where the config has `weights`.
void replace_weights_file(const std::string& file, TrainSpec& spec);

/// Returns the weights file that `path` names: for a run folder, its best checkpoint, as in `dpt
/// eval`. Throws ErrorKind::data for a folder without one.
std::string weights_file_of(const std::string& path);

/// What the options and the config ask for; nothing, if a new run starts from initial values.
std::optional<StartWeights> start_weights(const TrainOptions& options, const TrainSpec& spec);

/// Reads them into `flat`, which holds the initial values, and returns the lines that report it.
/// `classes`: as load_weights. Throws ErrorKind::data when the file does not fit the model, and
/// says what to write if that is intended.
std::vector<std::string> apply_start_weights(const StartWeights& weights, const Plan& plan,
                                             const std::vector<std::string>* classes, float* flat);

}  // namespace dpt
