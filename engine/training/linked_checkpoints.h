// The folder to which `checkpoints` of a run folder leads if it is a link, perhaps to another disk.
// Two run folders may lead to one: a lock and the file .dpt-checkpoints in it make sure that only
// one run saves, resumes and removes checkpoints there.
#pragma once

#include <string_view>

#include "engine/checkpoints/file_io.h"

namespace dpt {

/// Throws ErrorKind::usage if `checkpoints` of a run folder is a link to a folder that holds the
/// checkpoints of another run. Changes nothing.
void check_linked_checkpoints(const HeldPath& run);

/// Locks the folder to which `checkpoints` of a run folder leads and records there that it is this
/// run's. Returns the lock, which is not open if `checkpoints` is no link to a folder. Throws
/// ErrorKind::usage if another process holds the lock or check_linked_checkpoints() throws it, and
/// ErrorKind::data if the folder cannot be written. REQUIRES: the run folder is locked and marked.
FileHandle hold_linked_checkpoints(const HeldPath& run);

/// Returns true for the names of the lock and the record.
bool is_record_of_checkpoints(std::string_view name);

}  // namespace dpt
