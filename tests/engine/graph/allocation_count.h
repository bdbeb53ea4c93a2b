// Counts the calls of operator new in this program.
#pragma once

namespace dpt::testing {

void start_counting_allocations();
/// The allocations since the start, of all threads.
int stop_counting_allocations();

}  // namespace dpt::testing
