// Stacks that take turns on one host thread, on Boost.Context's lowest layer, which is the only one
// that lets us tell the sanitizers of a switch.
#pragma once

#include <boost/context/detail/fcontext.hpp>
#include <cstddef>

namespace emulation {

using FiberMain = void (*)();

/// One stack and where it stopped.
struct Fiber {
  boost::context::detail::fcontext_t context = nullptr;
  std::byte* stack = nullptr;  ///< lowest address; null for the host thread's own stack
  std::size_t stack_bytes = 0;
  void* sanitizer = nullptr;  ///< the sanitizer's own record of the stack
  FiberMain main = nullptr;
};

/// Maps a stack with a page below it that may not be touched.
void make_stack(Fiber& fiber);
/// Makes the fiber start with `main` at its next turn, whatever it did before. `main` never
/// returns.
void restart(Fiber& fiber, FiberMain main);
/// Stops `from`, which is running, and goes on with `to`. Returns when something goes on with
/// `from`.
void switch_fiber(Fiber& from, Fiber& to);
/// To be called by the host thread before it switches to its first fiber.
void enter_host_fiber(Fiber& host);

}  // namespace emulation
