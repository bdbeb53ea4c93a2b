// The device calls of a step: upload the scalars and the sample numbers, launch once, download the
// results.
#include "engine/replica/input_staging.h"

#include <doctest/doctest.h>

#include <cstring>
#include <numeric>
#include <thread>

#include "engine/collectives/local_group.h"
#include "engine/data/loader.h"
#include "engine/job/starting_point.h"
#include "engine/training/stepper.h"
#include "kernels/base/heartbeat.h"
#include "tests/engine/training/counting_backend.h"
#include "tests/engine/training/run.h"

using namespace dpt;
using namespace dpt::testing;

namespace {

template <class T>
T at(DevPtr from, std::size_t index) {
  T value;
  std::memcpy(&value, reinterpret_cast<const T*>(from.address) + index, sizeof(T));
  return value;
}

/// The last `count` samples of a resident data set, in reverse order.
struct Backwards {
  Backwards(const DataSource& source, std::int64_t count)
      : ids(static_cast<std::size_t>(count)), slots(ids.size()) {
    std::iota(ids.rbegin(), ids.rend(), source.size() - count);
    std::copy(ids.begin(), ids.end(), slots.begin());
    batch.ids = ids;
    batch.slots = slots;
    if (const auto samples = source.resident()) {
      batch.pixels = samples->pixels;
      batch.labels = samples->labels;
    }
  }
  std::vector<std::int64_t> ids;
  std::vector<std::int32_t> slots;
  HostBatch batch;
};

}  // namespace

TEST_CASE("a step uploads no more than its own samples' numbers, after an evaluation too") {
  const Job job = small_job(small_config("{type: SGD, lr: 0.05}"), {"data.size=2000", cpus(1)});
  const DataSource& source = *job.data.splits.train.source;
  CountingBackend backend;
  InputStaging staging(backend);
  StepScalars scalars;
  scalars.inverse_count = 0.25F;
  StepMetrics metrics;
  metrics.stop_votes = 1;
  const auto step = [&](int slot, std::int64_t samples) {
    const Backwards given(source, samples);
    const StagedBatch staged = staging.stage(slot, scalars, metrics, given.batch, source);
    // Scalars and metrics take 192 bytes. Each sample takes 64 bits for its id and 32 for its slot.
    CHECK(backend.take_calls().uploaded_bytes == 192 + static_cast<std::size_t>(samples) * 12);
    CHECK(at<StepScalars>(staged.batch.scalars, 0).inverse_count == 0.25F);
    CHECK(at<StepMetrics>(staged.metrics, 0).stop_votes == 1);
    for (std::size_t k = 0; k < given.ids.size(); ++k) {
      CHECK(at<std::int64_t>(staged.batch.ids, k) == given.ids[k]);
      CHECK(at<std::int32_t>(staged.batch.slots, k) == given.slots[k]);
    }
    return staged;
  };
  step(0, 12);
  step(1, 5);
  step(0, 1500);  // an evaluation's micro-batch
  const std::int64_t moves = staging.moves();
  const StagedBatch before = step(1, 12);
  step(2, 1000);
  step(3, 0);
  // Captured graphs contain the addresses, which depend only on the number of samples.
  const StagedBatch after = step(4, 12);
  CHECK(staging.moves() == moves);
  CHECK(before.batch.ids == after.batch.ids);
  CHECK(before.batch.slots == after.batch.slots);
}

TEST_CASE("a step is one copy to the device, one launch and one copy back") {
  const std::string plain = "train.grad_clip_norm=null", clipped = "train.grad_clip_norm=1.0";
  for (const std::string& clip : {plain, clipped}) {
    CAPTURE(clip);
    const Job job = small_job(small_config("{type: SGD, lr: 0.05}"), {cpus(1), clip});
    const StartingPoint start = fresh_start(job);
    CountingBackend backend;
    LocalGroup group(1);
    const auto communicator = group.join(0, backend);
    Replica replica(backend, *communicator, job);
    Stepper stepper(job, replica, *communicator, start.state, [](const StepResult&) {});
    const auto epochs = [&](int count, bool want_grad_norm) {
      for (int epoch = 0; epoch < count; ++epoch) {
        while (!stepper.epoch_done()) stepper.step(false, want_grad_norm);
        stepper.drain();
        stepper.finish_epoch();
      }
    };
    CHECK(replica.launches() == "calls");
    epochs(3, false);  // the ragged last batch is also captured in the second epoch
    CHECK(replica.launches() == "graph");
    epochs(3, true);
    evaluate_split(replica, job, job.data.splits.test, "test");
    epochs(2, false);
    epochs(2, true);
    backend.take_calls();
    const int steps = static_cast<int>(job.data.steps_per_epoch);
    const std::size_t bytes = static_cast<std::size_t>(steps) * (192 + sizeof(UpdateStep)) +
                              static_cast<std::size_t>(job.data.splits.train.size()) * 12;
    epochs(1, false);
    CHECK((backend.take_calls() == CountingBackend::Calls{steps, steps, steps, 0, bytes}));
    // Requesting the norm costs one more download per step.
    epochs(1, true);
    CHECK((backend.take_calls() == CountingBackend::Calls{steps, steps, 2 * steps, 0, bytes}));
  }
}

TEST_CASE("a replica's heartbeat tells the step that it is at, counted over epochs") {
  const Job job = small_job(small_config("{type: SGD, lr: 0.05}"), {cpus(1), "train.epochs=2"});
  CountingBackend backend;
  LocalGroup group(1);
  const auto communicator = group.join(0, backend);
  Replica replica(backend, *communicator, job);
  Stepper stepper(job, replica, *communicator, fresh_start(job).state, [](const StepResult&) {});
  const auto heartbeat = std::make_shared<Heartbeat>();
  const auto usual = heartbeat_of_thread();
  set_heartbeat_of_thread(heartbeat);
  std::vector<std::string> told;
  for (int epoch = 0; epoch < 2; ++epoch) {
    while (!stepper.epoch_done()) {
      stepper.step(false, false);
      told.push_back(heartbeat->text().substr(0, heartbeat->text().find(',')));
    }
    stepper.drain();
    stepper.finish_epoch();
  }
  set_heartbeat_of_thread(usual);
  REQUIRE(told.size() == 10);
  for (std::size_t i = 0; i < told.size(); ++i) CHECK(told[i] == fmt::format("step {}", i + 1));
}

TEST_CASE("captured graphs are discarded when memory whose addresses they hold moves") {
  const Job job = small_job(small_config("{type: SGD, lr: 0.05}"),
                            {cpus(1), "data.size=15", "data.test_size=60", "data.batch_size=8"});
  const StartingPoint start = fresh_start(job);
  CountingBackend backend;
  LocalGroup group(1);
  const auto communicator = group.join(0, backend);
  Replica replica(backend, *communicator, job);
  Stepper stepper(job, replica, *communicator, start.state, [](const StepResult&) {});
  const auto is_replayed = [&] {
    backend.take_calls();
    stepper.step(false, false);
    const CountingBackend::Calls calls = backend.take_calls();
    stepper.drain();
    stepper.finish_epoch();
    CHECK((calls.launches == 0) == (calls.singles > 0));
    return calls.launches == 1;
  };
  // The first step runs as calls, the second is captured and replayed, later ones are replayed.
  CHECK_FALSE(is_replayed());
  CHECK(is_replayed());
  CHECK(is_replayed());
  // 60 samples at once need more activation memory than 8, but no more memory for their numbers.
  const EvalResult first = evaluate_split(replica, job, job.data.splits.test, "test");
  CHECK_FALSE(first.samples.replayed);
  CHECK_FALSE(is_replayed());
  CHECK(is_replayed());
  CHECK(is_replayed());
  evaluate_split(replica, job, job.data.splits.test, "test");
  CHECK(evaluate_split(replica, job, job.data.splits.test, "test").samples.replayed);
  CHECK(is_replayed());
}

TEST_CASE("between ranks the sums stand between two graphs") {
  const Job job = small_job(small_config("{type: SGD, lr: 0.05}"), {cpus(2)});
  LocalGroup group(2);
  std::string launches[2];
  const auto rank = [&](int which) {
    CountingBackend backend;
    const auto communicator = group.join(which, backend);
    Replica replica(backend, *communicator, job);
    Stepper stepper(job, replica, *communicator, fresh_start(job).state, [](const StepResult&) {});
    for (int epoch = 0; epoch < 2; ++epoch) {
      while (!stepper.epoch_done()) stepper.step(false, false);
      stepper.drain();
      stepper.finish_epoch();
    }
    launches[which] = replica.launches();
    communicator->barrier();
  };
  std::thread other(rank, 1);
  rank(0);
  other.join();
  CHECK(launches[0] == "graphs");
  CHECK(launches[1] == "graphs");
}
