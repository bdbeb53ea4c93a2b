// A step allocates nothing. This test program replaces the heap's entry points to count the
// allocations of the calling thread, including those of libraries. oneDNN builds a small argument
// table on the heap in every call, and its matrix multiplication packs into heap memory; neither
// can be disabled, so the test allows exactly these.
#include <doctest/doctest.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "kernels/devices.h"
#include "tests/kernels/cases.h"
#include "tests/support/op_runner.h"
#include "tests/support/skip.h"

namespace {

struct Allocations {
  std::int64_t count = 0;
  std::int64_t freed = 0;
  std::size_t largest = 0;
};
thread_local Allocations allocations;

[[maybe_unused]] void note(std::size_t bytes) {
  ++allocations.count;
  if (bytes > allocations.largest) allocations.largest = bytes;
}

}  // namespace

// Sanitizers have their own replacement of the heap, which this one must not disturb.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
extern "C" {
void* __libc_malloc(std::size_t bytes);
void* __libc_calloc(std::size_t count, std::size_t bytes);
void* __libc_realloc(void* old, std::size_t bytes);
void* __libc_memalign(std::size_t alignment, std::size_t bytes);
void __libc_free(void* memory);

void* malloc(std::size_t bytes) {
  note(bytes);
  return __libc_malloc(bytes);
}
void* calloc(std::size_t count, std::size_t bytes) {
  note(count * bytes);
  return __libc_calloc(count, bytes);
}
void* realloc(void* old, std::size_t bytes) {
  note(bytes);
  return __libc_realloc(old, bytes);
}
void* memalign(std::size_t alignment, std::size_t bytes) {
  note(bytes);
  return __libc_memalign(alignment, bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  note(bytes);
  return __libc_memalign(alignment, bytes);
}
void free(void* memory) {
  if (memory) ++allocations.freed;
  __libc_free(memory);
}
int posix_memalign(void** memory, std::size_t alignment, std::size_t bytes) {
  note(bytes);
  *memory = __libc_memalign(alignment, bytes);
  return *memory ? 0 : ENOMEM;
}
}
constexpr bool kCounting = true;
#else
constexpr bool kCounting = false;
#endif

namespace dpt::testing {
namespace {

Allocations count_allocations(const std::function<void()>& step) {
  allocations = {};
  step();
  return allocations;
}

/// Runs forward and backward with two sets of addresses, once to warm up and once to count.
Allocations count_in_step(Backend& backend, Op& op, std::int64_t x, std::int64_t weight,
                          std::int64_t bias, std::int64_t y) {
  OpRunner first(backend, op, random_values(x, 1), random_values(weight, 2), random_values(bias, 3),
                 y);
  OpRunner second(backend, op, random_values(x, 1), random_values(weight, 2),
                  random_values(bias, 3), y);
  const OpArgs a = first.args();
  OpArgs b = second.args();
  b.write = GradWrite::add;
  op.forward(a);
  op.backward(a);
  op.forward(b);
  op.backward(b);
  return count_allocations([&] {
    op.forward(a);
    op.backward(a);
    op.forward(b);
    op.backward(b);
  });
}

TEST_CASE("the counter counts") {
  if (!kCounting) {
    testing::skip_test("a sanitizer owns the heap");
    return;
  }
  const Allocations seen = count_allocations([] {
    char* volatile memory = new char[12345];
    delete[] memory;
  });
  CHECK(seen.count == 1);
  CHECK(seen.freed == 1);
  CHECK(seen.largest == 12345);
}

/// Size limit for a node of oneDNN's argument table; a buffer for numbers would be larger.
constexpr std::size_t kTableNode = 512;
/// Size of the memory for packed operands of oneDNN's matrix multiplication, independent of the
/// batch.
constexpr std::size_t kPackedOperands = std::size_t{1} << 21;

void check_allocations(const Op& op, const Allocations& seen) {
  const std::string name = op.implementation();
  INFO(name);
  // dpt's own kernels have simple names; a composite of oneDNN lists its passes.
  const bool uses_onednn = name.find("forward ") != std::string::npos;
  const bool multiplies = name.find("gemm") != std::string::npos;
  if (!uses_onednn) CHECK(seen.count == 0);
  CHECK(seen.largest <= (!uses_onednn ? 0 : multiplies ? kPackedOperands : kTableNode));
  CHECK(seen.count == seen.freed);
}

TEST_CASE("running an operation a second time allocates no memory") {
  const auto backend = make_backend(parse_device("cpu"));
  for (Conv2dDesc d :
       {conv_case(8, {28, 28, 1}, 20, {3, 3}), conv_case(8, {13, 13, 20}, 50, {5, 5}),
        conv_case(8, {8, 8, 16}, 32, {3, 3}, {2, 2}, {1, 1}),
        conv_case(8, {7, 7, 8}, 12, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 4),
        conv_case(8, {9, 9, 6}, 4, {3, 3}, {1, 1}, {2, 2}, {2, 2}, 2)}) {
    d.relu = true;
    for (const bool pooled : {false, true}) {
      const Conv2dDesc c = pooled ? with_pool(d, PoolKind::average, {2, 2}, {2, 2}) : d;
      INFO(text(c));
      const auto op = backend->make(c);
      check_allocations(*op,
                        count_in_step(*backend, *op, c.batch * c.in.elements(), weight_count(c),
                                      c.conv_out.c, c.batch * c.out.elements()));
    }
  }
  for (const std::int64_t batch : {1, 32}) {
    LinearDesc d;
    d.batch = batch;
    d.in = 800;
    d.out = 128;
    d.relu = true;
    const auto op = backend->make(d);
    check_allocations(
        *op, count_in_step(*backend, *op, batch * d.in, d.in * d.out, d.out, batch * d.out));
  }
  for (const PoolKind kind : {PoolKind::max, PoolKind::average}) {
    const Pool2dDesc d = pool_case(kind, 4, {9, 9, 5}, {3, 3}, {2, 2}, {1, 1});
    const auto op = backend->make(d);
    check_allocations(*op, count_in_step(*backend, *op, d.batch * d.in.elements(), 0, 0,
                                         d.batch * d.out.elements()));
  }
}

}  // namespace
}  // namespace dpt::testing
