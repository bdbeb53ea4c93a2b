// Messages of dpt train --overwrite about the run that is replaced, and the return of that run if
// the new one fails early.
#pragma once

#include <string>

#include "engine/run/progress.h"
#include "engine/run/run_folder.h"

namespace dpt {

/// Returns the message that opening the folder has restored the run that a killed --overwrite was
/// to replace, and where the data that the new run had saved is kept.
std::string restored_text(const RunFolder& folder);

/// Returns how to undo the replacement, for a user who replaced the wrong run and stopped the new
/// one.
std::string replaced_text(const RunFolder& folder);

/// Returns true if the folder is still this process'. Otherwise nothing more may be written there.
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
