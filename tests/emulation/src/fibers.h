// Stacks that take turns on one host thread. Uses Boost.Context's lowest layer, the only one that
// lets us announce a switch to the sanitizers.
#pragma once

#include <boost/context/detail/fcontext.hpp>
#include <cstddef>

namespace emulation {

using FiberMain = void (*)();

/// A stack and the point at which it stopped.
struct Fiber {
  boost::context::detail::fcontext_t context = nullptr;
  std::byte* stack = nullptr;  ///< lowest address; null for the host thread's own stack
  std::size_t stack_bytes = 0;
  void* sanitizer = nullptr;  ///< the sanitizer's record of the stack
  FiberMain main = nullptr;
};

/// Maps a stack with a guard page below it.
void make_stack(Fiber& fiber);
/// Makes the fiber start with `main` at its next turn, whatever it did before. `main` must not
/// return.
void restart(Fiber& fiber, FiberMain main);
/// Stops `from`, which is running, and continues `to`. Returns when another fiber switches back to
/// `from`.
void switch_fiber(Fiber& from, Fiber& to);
/// Registers the host thread; it must call this before it switches to its first fiber.
void enter_host_fiber(Fiber& host);

}  // namespace emulation
