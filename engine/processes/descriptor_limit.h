// Descriptors (open files and connections) that the processes of a world need, and the limit that
// the system imposes (RLIMIT_NOFILE, `ulimit -n`).
#pragma once

#include <string>

namespace dpt {

/// Returns an upper bound on the descriptors that process `rank` of `size` uses to join the others,
/// in addition to those that are already open.
int descriptors_to_join(int rank, int size);
/// Returns an upper bound for a whole run: connections to all others, and the run's own files.
int descriptors_to_run(int rank, int size);

/// Raises this process's soft limit if `more` descriptors need it and the hard limit allows it.
/// Returns an empty string, or an error that begins with `who` and states the need and the limit.
std::string make_room_for_descriptors(int more, const std::string& who);

}  // namespace dpt
