// The race detector: finds two accesses to the same bytes by two threads of a kernel if at least
// one of them is a write and CUDA does not order them. Builds with DPT_EMULATED_RACES have it; in
// all others, these functions are empty.
//
// The sources of kernels are compiled with -fsanitize=thread, which calls a function before every
// access to memory (race_callbacks.cpp). No part of ThreadSanitizer is linked: a detector that
// knows a kernel's blocks, warps and barriers can be exact, yet simpler and faster.
#pragma once

#include <cstddef>
#include <cstdint>

namespace emulation {
struct GridLaunch;
}

namespace emulation::races {

enum class Access : std::uint8_t { read, write, atomic };

#ifdef DPT_EMULATED_RACES

/// Mark the part of a host thread's work in which a kernel runs. `dynamic_shared` is the block's
/// dynamic shared memory.
void begin_kernel(const GridLaunch& launch, const void* dynamic_shared);
void end_kernel();
/// Must be called before each block, with its index in the grid.
void begin_block(std::uint64_t block);

/// Turn the recording of accesses by this host thread on and off.
void resume();
void pause();

/// Sets which thread of the block runs from now on.
void run_thread(unsigned thread);
/// Sets the stack of that thread. Accesses to it are not recorded, because no other thread may use
/// it.
void use_stack(const void* stack, std::size_t bytes);

/// Orders all accesses of the block that precede the barrier before all that follow it.
void block_barrier();

/// Records an access of the running thread. `place` is the address of the code after it.
void record(const void* address, std::size_t bytes, Access access, const void* place);

#else

inline void begin_kernel(const GridLaunch&, const void*) {}
inline void end_kernel() {}
inline void begin_block(std::uint64_t) {}
inline void resume() {}
inline void pause() {}
inline void run_thread(unsigned) {}
inline void use_stack(const void*, std::size_t) {}
inline void block_barrier() {}

#endif

}  // namespace emulation::races
