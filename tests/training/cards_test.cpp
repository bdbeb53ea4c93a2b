// What only runs on cards show: sums beside backward, and steps as graphs.
#include <doctest/doctest.h>

#include <cmath>

#include "engine/training/stepper.h"
#include "tests/training/run.h"

using namespace dpt;
using namespace dpt::testing;

namespace {

constexpr const char* kSgd = "{type: SGD, lr: 0.05, momentum: 0.9}";

bool emulated() {
  return cuda_info().unavailable.empty() &&
         cuda_info().devices[0].name.find("mulated") != std::string::npos;
}

}  // namespace

TEST_CASE("gradients summed beside backward, in buckets, follow those summed behind it") {
  if (!have_card("sums beside backward")) return;
  if (!emulated() && cuda_info().devices.size() < 2) {
    std::printf("skipped: sums beside backward: NCCL needs two cards\n");
    return;
  }
  const std::string devices =
      emulated() ? "devices=[cuda:0,cuda:0,cuda:1]" : "devices=[cuda:0,cuda:1]";
  Job job = small_job(small_config(kSgd), {devices});
  const TempDir plain, folder;
  const FinalState behind = train_small(job, plain.path());
  job.sum_beside_from_bytes = 0;
  for (const std::int64_t bytes : {std::int64_t{1}, std::int64_t{1000}, std::int64_t{1} << 20}) {
    CAPTURE(bytes);
    job.bucket_bytes = bytes;
    const TempDir each;
    const FinalState beside = train_small(job, each.path());
    double worst = 0;
    for (std::size_t i = 0; i < behind.params.size(); ++i) {
      worst = std::max(worst, std::abs(static_cast<double>(behind.params[i]) - beside.params[i]));
    }
    // Another order of additions, 20 steps: see the test of fast mode.
    CHECK(worst < 1e-5);
  }
}

TEST_CASE("buckets cover the gradients from their end, whatever their size") {
  const Job job = small_job(small_config(kSgd), {cpus(1)});
  for (const std::int64_t bytes : {1, 100, 1000, 3000, 1 << 20}) {
    CAPTURE(bytes);
    std::int64_t end = job.plan.grad_floats();
    int node = static_cast<int>(job.plan.nodes.size());
    const auto buckets = gradient_buckets(job.plan, bytes);
    for (const GradientBucket& bucket : buckets) {
      CHECK(bucket.end == end);
      CHECK(bucket.begin < bucket.end);
      CHECK(bucket.node < node);
      const bool last = &bucket == &buckets.back();
      CHECK((last || (bucket.end - bucket.begin) * 4 >= bytes));
      // All that stands in it belongs to this node or a later one.
      for (const Param& param : job.plan.params) {
        if (param.offset >= bucket.begin && param.offset < bucket.end) {
          CHECK(param.node >= bucket.node);
        }
      }
      end = bucket.begin;
      node = bucket.node;
    }
    CHECK(end == 0);
  }
}

TEST_CASE("a step on a card is one graph; with several replicas, two") {
  if (!have_card("steps as graphs")) return;
  for (const int replicas : {1, 2}) {
    const Job job = small_job(small_config(kSgd), {replicas_on("cuda:0", replicas)});
    const StartingPoint start = fresh_start(job);
    run_ranks(job.devices, job.backend_options, [&](Backend& backend, Communicator& communicator) {
      Replica replica(backend, communicator, job);
      replica.set_params(start.params);
      Stepper stepper(job, replica, communicator, start.state, [](const StepResult&) {});
      while (!stepper.epoch_done()) stepper.step(false, false);
      stepper.drain();
      CHECK(replica.launches() == (replicas == 1 ? "graph" : "graphs"));
      CHECK(replica.data_placement() == "resident");
    });
  }
}
