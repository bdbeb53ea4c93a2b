// Counts the calls of operator new in this program.
#pragma once

namespace dpt::testing {

void start_counting_allocations();
/// Returns the number of allocations since the start, over all threads.
int stop_counting_allocations();

}  // namespace dpt::testing
