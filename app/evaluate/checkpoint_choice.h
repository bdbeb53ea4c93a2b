// The choice of a run's checkpoint, and of its weights, for commands that only read them.
#pragma once

#include <string>
#include <vector>

#include "engine/checkpoints/checkpoint.h"

namespace dpt {

/// Use of a checkpoint by a command, for its messages.
struct CheckpointUse {
  const char* command;  ///< "eval"
  const char* verb;     ///< "evaluate"
  const char* done;     ///< "evaluated"
};

/// A run folder's best checkpoint, else its newest good one; or the file itself. Throws
/// ErrorKind::data where there is none, or where the best is not the run's.
std::string find_checkpoint(const std::string& target, const CheckpointUse& use);

/// The weights themselves or their average.
struct WeightsChoice {
  std::string name;                            ///< "raw", "ema" or "swa"
  bool has_average = false;                    ///< the checkpoint has one, chosen or not
  const std::vector<float>* params = nullptr;  ///< in the checkpoint, in buffer layout

  /// Returns a message's words about an average, " (moving average)"; empty otherwise.
  const char* words() const;
};

/// `use`: "ema", "swa", "raw", or empty: the average where the checkpoint has one. `path` is its
/// file, for the message. Throws ErrorKind::usage for an average that it does not have.
WeightsChoice choose_weights(const Checkpoint& checkpoint, const std::string& use,
                             const TrainSpec& spec, const std::string& path);

}  // namespace dpt
