// The lock of a run folder. An flock(2) of its file .lock decides who holds it, as in every version
// of dpt. An additional lock of the open file description (F_OFD_SETLK), which can be tested
// without being taken, shows that dpt train holds it.
#pragma once

#include "kernels/base/file_handle.h"
#include "kernels/base/file_io.h"
#include "kernels/base/held_path.h"

namespace dpt {

enum class LockResult : std::uint8_t { locked, held_by_other, failed };

/// Tries to lock an open file; on failure errno gives the reason. Waits up to a second for a lock
/// that is held only briefly (as dpt runs of earlier versions did).
LockResult try_lock(const FileHandle& file);

/// Returns true if a process holds the lock of the file, false if none does or if that is unknown.
/// Takes no lock.
bool is_locked(const HeldPath& file);

}  // namespace dpt
