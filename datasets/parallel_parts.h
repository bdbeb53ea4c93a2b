// Runs many short calls to a file system concurrently. On a network file system, each call may take
// a millisecond, and a data set may have millions of files.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

namespace dpt {

/// Calls `body(i)` once for each i in 0 .. count-1, on several threads. Keeps the heartbeat of the
/// calling thread's replica going. If calls fail, throws the error of the smallest `i` that failed,
/// and may skip larger `i`. `what` names the threads in messages.
void for_each_part(std::size_t count, const std::string& what,
                   const std::function<void(std::size_t)>& body);

}  // namespace dpt
