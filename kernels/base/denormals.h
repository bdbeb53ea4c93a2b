// Denormal numbers on the CPU. Values of dead units and of momentum decay into denormals.
// Arithmetic on denormals is a hundred times slower, so every computing thread flushes them to
// zero.
#pragma once

namespace dpt {

/// Makes the calling thread's floating-point arithmetic write zero for a denormal result, and read
/// zero for a denormal operand (FTZ and DAZ of x86, FPCR.FZ of aarch64). Threads that it starts
/// later inherit the setting. An OpenMP team may contain older threads, so each parallel region
/// must call this again. Takes a few nanoseconds.
void flush_denormals() noexcept;

/// Returns true if the calling thread flushes denormals.
bool flushes_denormals() noexcept;

}  // namespace dpt
