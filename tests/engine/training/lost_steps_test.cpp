// Steps after aborted sums: their results look normal but must not count.
#include <doctest/doctest.h>

#include "engine/job/starting_point.h"
#include "engine/training/stepper.h"
#include "tests/engine/training/run.h"

using namespace dpt;
using namespace dpt::testing;

namespace {

/// A communicator whose overlapped sums are aborted while a result is awaited.
class AbortedSums : public Communicator {
 public:
  AbortedSums(Communicator& inner, int after) : inner_(inner), left_(after) {}
  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  void all_reduce(std::int64_t shards, std::span<const PartialSum> parts, DevPtr out,
                  std::int64_t count, const SumTerms& terms) override {
    inner_.all_reduce(shards, parts, out, count, terms);
  }
  void wait_for_sums(const std::function<void()>& wait) override {
    wait();
    if (left_-- == 0) throw Error(ErrorKind::peer, "the sums were aborted");
  }
  void broadcast(std::span<std::byte> data, int root) override { inner_.broadcast(data, root); }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    inner_.all_gather(mine, all);
  }
  void barrier() override { inner_.barrier(); }
  void abort(const std::string& cause) noexcept override { inner_.abort(cause); }

 private:
  Communicator& inner_;
  int left_;  ///< number of waits that still succeed
};

}  // namespace

TEST_CASE("a step whose sums were aborted does not count, nor is anything whole after it") {
  Job job = small_job(small_config("{type: SGD, lr: 0.1}"), {cpus(1)});
  const StartingPoint start = fresh_start(job);
  for (const std::int64_t ahead : {0, 2}) {
    CAPTURE(ahead);
    job.placement.steps_ahead = ahead;
    run_ranks(job.placement.devices, job.placement.backend_options,
              [&](Backend& backend, Communicator& communicator) {
                AbortedSums aborted(communicator, 1);
                Replica replica(backend, communicator, job);
                replica.set_params(start.params);
                std::int64_t counted = 0;
                Stepper stepper(job, replica, aborted, start.state,
                                [&](const StepResult& result) { counted = result.step; });
                for (std::int64_t step = 0; step <= ahead; ++step) stepper.step(false, false);
                CHECK_THROWS_WITH_AS(stepper.step(false, false), "the sums were aborted", Error);
                CHECK(counted == 1);
                CHECK(replica.results_pending() == ahead);
                // The failure is also noticed if no further result is awaited.
                for (int again = 0; again < 2; ++again) {
                  CHECK_THROWS_WITH_AS(stepper.drain(), "the sums were aborted", Error);
                }
                CHECK(counted == 1);
              });
  }
}
