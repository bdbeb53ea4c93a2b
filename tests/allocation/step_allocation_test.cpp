// A training step allocates no memory after the first one. The test is a separate program because
// it replaces malloc, which sanitizers do too.
#include <doctest/doctest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "engine/job/run_ranks.h"
#include "engine/job/starting_point.h"
#include "engine/training/stepper.h"
#include "tests/engine/training/run.h"

extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);
}

namespace {

std::atomic<long> g_allocations{0};
thread_local bool t_counts = false;

void count() {
  if (t_counts) g_allocations.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

// Replaces the allocator in the way that glibc documents. operator new calls it, too.
extern "C" {
void* malloc(std::size_t size) {
  count();
  return __libc_malloc(size);
}
void* calloc(std::size_t n, std::size_t size) {
  count();
  return __libc_calloc(n, size);
}
void* realloc(void* old, std::size_t size) {
  count();
  return __libc_realloc(old, size);
}
void* aligned_alloc(std::size_t alignment, std::size_t size) {
  count();
  return __libc_memalign(alignment, size);
}
int posix_memalign(void** out, std::size_t alignment, std::size_t size) {
  count();
  *out = __libc_memalign(alignment, size);
  return *out ? 0 : 12;
}
}

using namespace dpt;
using namespace dpt::testing;

namespace {

/// Returns the number of allocations in `steps` steps of all replicas, after an epoch of warm-up.
long allocations(const std::vector<std::string>& overrides, int steps) {
  const Job job = small_job(small_config(kSgdWithoutDecay), overrides);
  const StartingPoint start = fresh_start(job);
  g_allocations = 0;
  run_ranks(job.placement.devices, job.placement.backend_options,
            [&](Backend& backend, Communicator& communicator) {
              Replica replica(backend, communicator, job);
              replica.set_params(start.params);
              Stepper stepper(job, replica, communicator, start.state, [](const StepResult&) {});
              while (!stepper.epoch_done()) stepper.step(false, true);
              stepper.drain();
              stepper.finish_epoch();
              stepper.step(false,
                           true);  // Announces the epoch's order to the loader, which allocates.
              t_counts = true;
              for (int i = 0; i < steps; ++i) stepper.step(false, true);
              t_counts = false;
              stepper.drain();
            });
  return g_allocations;
}

}  // namespace

TEST_CASE("the counter counts") {
  g_allocations = 0;
  t_counts = true;
  std::vector<float> something(100);
  t_counts = false;
  CHECK(something.size() == 100);
  CHECK(g_allocations == 1);
}

TEST_CASE("steps allocate nothing, the ragged last batch included") {
  CHECK(allocations({"devices=[cpu]"}, 4) == 0);
  CHECK(allocations({"devices=[cpu,cpu]"}, 4) == 0);
  CHECK(allocations({"devices=[cpu,cpu,cpu]", "train.shards=8"}, 4) == 0);
}
