// Denormal numbers on the CPU. Dead units and momentum decay into them, and arithmetic on them
// takes a hundred times as long: so every thread that computes flushes them to zero.
#pragma once

namespace dpt {

/// From now on the calling thread's floating-point arithmetic writes zero for a denormal result and
/// reads zero for a denormal operand: FTZ and DAZ of x86, FPCR.FZ of aarch64. Threads that it
/// starts later inherit that; an OpenMP team may have threads from before, which is why each region
/// of ours calls it again. Takes some nanoseconds.
void flush_denormals() noexcept;

/// Returns true if the calling thread flushes denormals.
bool flushes_denormals() noexcept;

}  // namespace dpt
