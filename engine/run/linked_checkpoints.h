// The folder that holds a run's checkpoints if `checkpoints` in the run folder is a link, perhaps
// to another disk. Several run folders may link to the same folder. A lock and the file
// .dpt-checkpoints in it make sure that only one run saves, resumes and removes checkpoints there.
#pragma once

#include <optional>
#include <string>

#include "kernels/base/file_handle.h"
#include "kernels/base/file_io.h"
#include "kernels/base/held_path.h"

namespace dpt {

/// The folder to which `checkpoints` of a run folder leads. It is locked, and it is held open so
/// that writes reach it even if the link changes.
struct LinkedCheckpoints {
  HeldPath place;
  std::string real_path;  ///< path without links, for messages
  FileHandle lock;
};

/// Checks the link without changing anything. Throws ErrorKind::data if `checkpoints` of a run
/// folder is a link that leads to no folder, and ErrorKind::usage if it leads to a folder that
/// holds the checkpoints of another run.
void check_linked_checkpoints(const HeldPath& run);

/// Locks the folder to which `checkpoints` of a run folder leads and records there that it belongs
/// to this run. Returns nothing if `checkpoints` is not a link to a folder. Throws ErrorKind::usage
/// if another process holds the lock or check_linked_checkpoints() throws it, and ErrorKind::data
/// if the folder cannot be written. REQUIRES: the run folder is locked and marked.
std::optional<LinkedCheckpoints> hold_linked_checkpoints(const HeldPath& run);

/// Throws ErrorKind::data if `checkpoints` of a run folder no longer leads where it led when the
/// run opened the folder. `held`: result of hold_linked_checkpoints(). `path`: the run folder, for
/// messages.
void check_same_checkpoints(const HeldPath& run, const std::optional<LinkedCheckpoints>& held,
                            const std::string& path);

/// Returns true if `checkpoints` of a run folder leads to a folder with this run's record.
bool has_record_of_run(const HeldPath& run);

}  // namespace dpt
