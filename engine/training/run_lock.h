// The lock of a run folder: flock(2) of its .lock decides, as in every version of dpt. A lock of
// the open file description (F_OFD_SETLK), which can be asked about without being taken, says that
// dpt train holds it.
#pragma once

#include "engine/checkpoints/file_io.h"

namespace dpt {

enum class LockResult : std::uint8_t { locked, held_by_other, failed };

/// Tries to lock an open file; on failure errno says why. A lock that was taken for a moment only
/// (the dpt runs of earlier versions did) is waited for, up to a second.
LockResult try_lock(const FileHandle& file);

/// Whether a process holds the lock of the file. Takes none; false if that cannot be found out.
bool is_locked(const HeldPath& file);

}  // namespace dpt
