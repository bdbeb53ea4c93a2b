// Many short waits for a file system, several at a time: of a network file system each may take a
// millisecond, and a data set has millions of files.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

namespace dpt {

/// Calls `body(i)` for 0 .. count-1 on several threads, each once. Beats for the calling thread's
/// replica. Throws the error of the least `i` that failed, whatever the threads' order; after an
/// error, later ones may be left out. `what` names the threads in messages.
void for_each_part(std::size_t count, const std::string& what,
                   const std::function<void(std::size_t)>& body);

}  // namespace dpt
