#include "fibers.h"

#include <sys/mman.h>
#include <unistd.h>

#include <new>

#include "races.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace emulation {
namespace {

namespace context = boost::context::detail;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::size_t kStackBytes = 512 << 10;
#else
constexpr std::size_t kStackBytes = 128 << 10;
#endif

/// The information that the resumed fiber needs about the stopped one.
struct Turn {
  Fiber* from;
  Fiber* to;
};

/// Completes a switch. Must be called on the stack of `turn.to` as soon as it runs.
void arrive(context::transfer_t transfer, [[maybe_unused]] void* fake_stack) {
  Turn& turn = *static_cast<Turn*>(transfer.data);
  turn.from->context = transfer.fctx;
#if defined(__SANITIZE_ADDRESS__)
  const void* bottom = nullptr;
  std::size_t size = 0;
  __sanitizer_finish_switch_fiber(fake_stack, &bottom, &size);
  if (!turn.from->stack) {  // The host thread's stack: only the sanitizer knows its bounds.
    turn.from->stack_bytes = size;
    turn.from->sanitizer = const_cast<void*>(bottom);
  }
#endif
}

void entry(context::transfer_t transfer) {
  const FiberMain main = static_cast<Turn*>(transfer.data)->to->main;
  arrive(transfer, nullptr);
  main();
  __builtin_trap();  // There is nothing to return to.
}

}  // namespace

void make_stack(Fiber& fiber) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  void* memory = mmap(nullptr, kStackBytes + page, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED || mprotect(memory, page, PROT_NONE) != 0) throw std::bad_alloc();
  // Staggers the stacks: the busy ends of hundreds of stacks must not map to the same few cache
  // lines.
  static std::size_t stacks = 0;
  fiber.stack = static_cast<std::byte*>(memory) + page;
  fiber.stack_bytes = kStackBytes - stacks++ * 5 % 64 * 64;
#if defined(__SANITIZE_THREAD__)
  fiber.sanitizer = __tsan_create_fiber(0);
#endif
}

void restart(Fiber& fiber, FiberMain main) {
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(fiber.stack, fiber.stack_bytes);
#endif
  fiber.main = main;
  fiber.context = context::make_fcontext(fiber.stack + fiber.stack_bytes, fiber.stack_bytes, entry);
}

void enter_host_fiber([[maybe_unused]] Fiber& host) {
#if defined(__SANITIZE_THREAD__)
  host.sanitizer = __tsan_get_current_fiber();
#endif
}

void switch_fiber(Fiber& from, Fiber& to) {
  Turn turn{&from, &to};
  void* fake_stack = nullptr;
  races::use_stack(to.stack, to.stack_bytes);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&fake_stack, to.stack ? to.stack : to.sanitizer, to.stack_bytes);
#endif
#if defined(__SANITIZE_THREAD__)
  __tsan_switch_to_fiber(to.sanitizer, 0);
#endif
  arrive(context::jump_fcontext(to.context, &turn), fake_stack);
}

}  // namespace emulation
