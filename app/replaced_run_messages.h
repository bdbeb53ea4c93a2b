// dpt train --overwrite: what is said of the run that is replaced, and its return when the new one
// fails early.
#pragma once

#include <string>

#include "engine/training/progress.h"
#include "engine/training/run_folder.h"

namespace dpt {

/// Opening the folder has restored the run that a killed --overwrite was to replace: says so, and
/// where what the new run had saved is kept.
std::string restored_text(const RunFolder& folder);

/// For a user who has replaced the wrong run, and has stopped the new one for it: how to undo that.
std::string replaced_text(const RunFolder& folder);

/// Whether the folder is this process' still: else nothing more may be written there.
bool is_held(RunFolder& folder);

/// While the new run has saved no checkpoint, the one that it replaces comes back when this ends.
class Replacement {
 public:
  Replacement(RunFolder& folder, Progress& progress) : folder_(folder), progress_(progress) {}
  Replacement(const Replacement&) = delete;
  ~Replacement();

 private:
  RunFolder& folder_;
  Progress& progress_;
};

}  // namespace dpt
