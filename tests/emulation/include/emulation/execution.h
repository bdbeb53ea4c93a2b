// The execution model as a kernel sees it: its place in the grid, barriers, warp operations and
// shared memory. The threads of a block are fibers. They switch only inside the functions below
// that wait. tests/emulation/README.md lists the faults that this finds and those that it cannot
// find.
//
// Every function that waits takes the source location of the call. Threads that wait at different
// places of the source do not wait for each other; this is a fault of the kernel.
#pragma once

#include <cstdint>
#include <cstring>
#include <source_location>
#include <span>
#include <type_traits>

#include "emulation/types.h"

// Kernels read these variables; only the emulation writes them.
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
inline constexpr int warpSize = 32;

namespace emulation {

inline constexpr unsigned kFullMask = 0xffffffffU;

/// Returns the dynamic shared memory of the running block, 256-byte aligned. Every byte is 0xFF (a
/// NaN as float or bf16) when a block starts.
void* dynamic_shared_memory();

/// Ends the running kernel with an error that makes its device unusable, as a trap instruction
/// does.
[[noreturn]] void fault(const char* message,
                        const std::source_location& where = std::source_location::current());

namespace detail {

/// A function that is called once with the addresses that the 32 lanes passed; null for lanes that
/// take no part.
using WarpFunction = void (*)(const void* const* inputs, void* const* outputs, void* context);

void block_barrier(const std::source_location& where);
/// Waits until every lane of `mask` has come to the same place. The last lane runs `function`.
void warp_arrive(unsigned mask, const void* input, void* output, WarpFunction function,
                 void* context, const std::source_location& where);
unsigned lane_index();

// Tell the race detector (in builds with it) about a fence of the running thread, and about a
// barrier of these lanes of its warp.
void order_fence();
void order_warp(unsigned lanes);

template <class T>
inline constexpr bool kShuffles = std::is_arithmetic_v<T>;

template <class T>
struct ShuffleInput {
  T value;
  int source;  ///< the lane whose value is wanted, or -1 for the lane itself
};

/// Gives each lane the value of its source lane, or all bits one if that lane takes no part.
template <class T>
T shuffle(unsigned mask, T value, int source, const std::source_location& where) {
  static_assert(kShuffles<T>, "shuffles move arithmetic types and bf16");
  const ShuffleInput<T> input{value, source};
  T output;
  warp_arrive(
      mask, &input, &output,
      [](const void* const* inputs, void* const* outputs, void*) {
        for (int lane = 0; lane < warpSize; ++lane) {
          if (!inputs[lane]) continue;
          int from = static_cast<const ShuffleInput<T>*>(inputs[lane])->source;
          if (from < 0) from = lane;
          if (inputs[from]) {
            std::memcpy(outputs[lane], &static_cast<const ShuffleInput<T>*>(inputs[from])->value,
                        sizeof(T));
          } else {
            std::memset(outputs[lane], 0xff, sizeof(T));
          }
        }
      },
      nullptr, where);
  return output;
}

template <class Combine>
unsigned vote(unsigned mask, bool predicate, Combine combine, const std::source_location& where) {
  const unsigned input = predicate ? 1 : 0;
  unsigned output = 0;
  warp_arrive(
      mask, &input, &output,
      [](const void* const* inputs, void* const* outputs, void* context) {
        unsigned present = 0, ballot = 0;
        for (unsigned lane = 0; lane < 32; ++lane) {
          if (!inputs[lane]) continue;
          present |= 1U << lane;
          if (*static_cast<const unsigned*>(inputs[lane])) ballot |= 1U << lane;
        }
        const unsigned result = (*static_cast<Combine*>(context))(present, ballot);
        for (unsigned lane = 0; lane < 32; ++lane) {
          if (outputs[lane]) *static_cast<unsigned*>(outputs[lane]) = result;
        }
      },
      &combine, where);
  return output;
}

}  // namespace detail

/// Runs an operation of a whole warp, such as a matrix multiplication. Every lane passes a value.
/// When all 32 lanes have come here, compute(std::span<const In, 32>, std::span<Out, 32>) runs
/// once, on any lane. Each lane then finds its element of the outputs in `output`. The block must
/// consist of whole warps. `compute` may use only its two arguments and constants, because it is
/// undefined which lane's copy of it runs.
template <class In, class Out, class Compute>
void warp_collective(const In& input, Out& output, Compute compute,
                     const std::source_location& where = std::source_location::current()) {
  static_assert(std::is_trivially_copyable_v<In> && std::is_trivially_copyable_v<Out>);
  detail::warp_arrive(
      kFullMask, &input, &output,
      [](const void* const* inputs, void* const* outputs, void* context) {
        In in[32];
        Out out[32];
        for (int lane = 0; lane < 32; ++lane) {
          if (!inputs[lane]) fault("a warp operation of all 32 lanes in a warp that has fewer");
          std::memcpy(&in[lane], inputs[lane], sizeof(In));
          std::memcpy(&out[lane], outputs[lane], sizeof(Out));
        }
        (*static_cast<Compute*>(context))(std::span<const In, 32>(in), std::span<Out, 32>(out));
        for (int lane = 0; lane < 32; ++lane) std::memcpy(outputs[lane], &out[lane], sizeof(Out));
      },
      &compute, where);
}

}  // namespace emulation

inline void __syncthreads(const std::source_location& where = std::source_location::current()) {
  emulation::detail::block_barrier(where);
}
inline void __syncwarp(unsigned mask = emulation::kFullMask,
                       const std::source_location& where = std::source_location::current()) {
  emulation::detail::warp_arrive(
      mask, &mask, nullptr,
      []([[maybe_unused]] const void* const* inputs, void* const*, void*) {
#ifdef __SANITIZE_THREAD__
        unsigned lanes = 0;
        for (unsigned lane = 0; lane < 32; ++lane) lanes |= inputs[lane] ? 1U << lane : 0;
        emulation::detail::order_warp(lanes);
#endif
      },
      nullptr, where);
}

template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = warpSize,
              const std::source_location& where = std::source_location::current()) {
  const int lane = static_cast<int>(emulation::detail::lane_index());
  return emulation::detail::shuffle(mask, value, (lane & ~(width - 1)) | (source & (width - 1)),
                                    where);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = warpSize,
                 const std::source_location& where = std::source_location::current()) {
  const int lane = static_cast<int>(emulation::detail::lane_index());
  const int source = lane - static_cast<int>(delta);
  return emulation::detail::shuffle(mask, value, source < (lane & ~(width - 1)) ? -1 : source,
                                    where);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = warpSize,
                   const std::source_location& where = std::source_location::current()) {
  const int lane = static_cast<int>(emulation::detail::lane_index());
  const int source = lane + static_cast<int>(delta);
  return emulation::detail::shuffle(mask, value, source > (lane | (width - 1)) ? -1 : source,
                                    where);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = warpSize,
                  const std::source_location& where = std::source_location::current()) {
  const int lane = static_cast<int>(emulation::detail::lane_index());
  const int source = lane ^ lane_mask;
  return emulation::detail::shuffle(mask, value, source > (lane | (width - 1)) ? -1 : source,
                                    where);
}

inline unsigned __ballot_sync(unsigned mask, int predicate,
                              const std::source_location& where = std::source_location::current()) {
  return emulation::detail::vote(
      mask, predicate != 0, [](unsigned, unsigned ballot) { return ballot; }, where);
}
inline int __any_sync(unsigned mask, int predicate,
                      const std::source_location& where = std::source_location::current()) {
  return static_cast<int>(emulation::detail::vote(
      mask, predicate != 0, [](unsigned, unsigned ballot) { return ballot != 0 ? 1U : 0U; },
      where));
}
inline int __all_sync(unsigned mask, int predicate,
                      const std::source_location& where = std::source_location::current()) {
  return static_cast<int>(emulation::detail::vote(
      mask, predicate != 0,
      [](unsigned present, unsigned ballot) { return ballot == present ? 1U : 0U; }, where));
}
