// Messages of dpt train --overwrite about the replaced run, and its restoration if the new run
// fails early.
#pragma once

#include <string>

#include "engine/run/progress.h"
#include "engine/run/run_folder.h"

namespace dpt {

/// Returns the message that a run was restored when its folder was opened, because the --overwrite
/// that was replacing it had been killed. Includes the place of the data that the new run had
/// saved.
std::string restored_text(const RunFolder& folder);

/// Returns how to undo the replacement, for a user who replaced the wrong run and stopped the new
/// one.
std::string replaced_text(const RunFolder& folder);

/// Returns true if this process still holds the folder. Otherwise, it must not write there.
bool is_held(RunFolder& folder);

/// Restores the replaced run on destruction if the new run has saved no checkpoint.
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
