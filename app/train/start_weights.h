// The initial weights of a new run, from the config's `weights` or --weights.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/train/train_options.h"
#include "app/train/weights_source.h"
#include "engine/graph/plan.h"

namespace dpt {

/// Weights to read, and the option or field that requested them.
struct StartWeights {
  WeightsSpec spec;
  std::string source;      ///< for messages: "--weights FILE", "weights.file FILE"
  bool is_strict = false;  ///< a pattern that matches nothing is an error
};

/// Replaces weights.file by the file of --weights if the config has `weights`.
void replace_weights_file(const std::string& file, TrainSpec& spec);

/// Returns the weights that the options and the config request; nothing if a new run starts from
/// initial values. Throws like resolve_pretrained.
std::optional<StartWeights> start_weights(const TrainOptions& options, const TrainSpec& spec);

/// Result of reading a file, with the lines that report it.
struct AppliedWeights {
  WeightsSource source;
  std::vector<std::string> lines;
};

/// Reads the weights, after a download if necessary, into `flat`, which holds the initial values.
/// `classes` has the same meaning as for load_weights. Throws ErrorKind::data, with the remedy, if
/// the file does not fit the model.
AppliedWeights apply_start_weights(const StartWeights& weights, const Plan& plan,
                                   const std::vector<std::string>* classes, float* flat);

}  // namespace dpt
