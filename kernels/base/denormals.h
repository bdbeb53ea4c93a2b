// Denormal numbers on the CPU. Values of dead units and of momentum decay into denormals, and
// arithmetic on them is a hundred times slower, so every computing thread flushes them to zero.
#pragma once

namespace dpt {

/// Makes the calling thread's floating-point arithmetic write zero for a denormal result and read
/// zero for a denormal operand (FTZ and DAZ of x86, FPCR.FZ of aarch64). Threads that it starts
/// later inherit the setting. An OpenMP team may contain older threads, so each parallel region
/// calls this again. Takes some nanoseconds.
void flush_denormals() noexcept;

/// Returns true if the calling thread flushes denormals.
bool flushes_denormals() noexcept;

}  // namespace dpt
