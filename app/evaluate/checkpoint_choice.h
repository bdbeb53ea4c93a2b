// The choice of a run's checkpoint, and of its weights, for commands that only read them.
#pragma once

#include <string>
#include <vector>

#include "engine/checkpoints/checkpoint.h"

namespace dpt {

/// Words for the messages of a command that uses a checkpoint.
struct CheckpointUse {
  const char* command;  ///< "eval"
  const char* verb;     ///< "evaluate"
  const char* done;     ///< "evaluated"
};

/// Returns `target` if it is a file. For a run folder, returns the best checkpoint, or the newest
/// good one if the run keeps no best. Throws ErrorKind::data if there is no such checkpoint, or if
/// best.safetensors belongs to another run.
std::string find_checkpoint(const std::string& target, const CheckpointUse& use);

/// Weights of a checkpoint: the raw weights or their average.
struct WeightsChoice {
  std::string name;                            ///< "raw", "ema" or "swa"
  bool has_average = false;                    ///< true if the checkpoint has one, even if unused
  const std::vector<float>* params = nullptr;  ///< the checkpoint's values, in buffer layout

  /// Returns " (moving average)" for messages if an average was chosen; otherwise empty.
  const char* words() const;
};

/// Chooses the weights that `use` names: "ema", "swa" or "raw". If `use` is empty, chooses the
/// average if there is one, otherwise the raw weights. `path` is the checkpoint, for messages.
/// Throws ErrorKind::usage for an average that the checkpoint does not have.
WeightsChoice choose_weights(const Checkpoint& checkpoint, const std::string& use,
                             const TrainSpec& spec, const std::string& path);

}  // namespace dpt
