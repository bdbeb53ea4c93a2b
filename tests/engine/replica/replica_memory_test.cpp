// A replica's use of device memory, its message if there is not enough, and the location of the
// samples.
#include <doctest/doctest.h>

#include "engine/collectives/local_group.h"
#include "engine/data/loader.h"
#include "engine/graph/param_places.h"
#include "engine/job/starting_point.h"
#include "engine/training/stepper.h"
#include "kernels/base/text.h"
#include "tests/engine/training/counting_backend.h"
#include "tests/engine/training/run.h"
#include "tests/support/text.h"

using namespace dpt;
using namespace dpt::testing;

namespace {

/// A backend that counts the allocated bytes; the test sets the number of free bytes.
class MeasuredBackend : public CountingBackend {
 public:
  MeasuredBackend() { live() = 0; }
  DeviceMemory allocate(std::size_t bytes, const std::string& what) override {
    live() += bytes;
    DeviceMemory memory = CountingBackend::allocate(bytes, what);
    // `owner` frees the bytes with the backend; the release of the returned memory only counts
    // them.
    auto* owner = new DeviceMemory(std::move(memory));
    owners().emplace_back(owner);
    return {owner->ptr(), bytes, [](DevPtr, std::size_t freed) { live() -= freed; }};
  }
  DeviceMemory make_resident(std::span<const std::byte> host, const std::string& what) override {
    live() += host.size();
    resident.push_back(what);
    return {CountingBackend::make_resident(host, what).ptr(), host.size(),
            [](DevPtr, std::size_t freed) { live() -= freed; }};
  }
  std::uint64_t free_bytes() override { return free; }

  static std::size_t& live() {
    static std::size_t bytes = 0;
    return bytes;
  }
  std::uint64_t free = std::uint64_t{1} << 40;
  std::vector<std::string> resident;

 private:
  std::vector<std::unique_ptr<DeviceMemory>>& owners() { return owners_; }
  std::vector<std::unique_ptr<DeviceMemory>> owners_;
};

/// One replica on a device that computes nothing.
struct Alone {
  explicit Alone(const Job& a_job) : job(a_job) {
    communicator = group.join(0, backend);
    replica.emplace(backend, *communicator, job);
    stepper.emplace(job, *replica, *communicator, fresh_start(job).state, [](const StepResult&) {});
  }
  void epoch() {
    while (!stepper->epoch_done()) stepper->step(false, true);
    stepper->drain();
    stepper->finish_epoch();
  }
  const Job& job;
  MeasuredBackend backend;
  LocalGroup group{1};
  std::unique_ptr<Communicator> communicator;
  std::optional<Replica> replica;
  std::optional<Stepper> stepper;
};

std::string memory_error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::device);
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("the memory that a replica reports is the memory that it has allocated") {
  for (const char* optimizer : {"{type: SGD, lr: 0.1}", kAdam}) {
    for (const bool is_staged : {false, true}) {
      CAPTURE(optimizer);
      CAPTURE(is_staged);
      Job job = small_job(small_config(optimizer), {cpus(1), "train.shards=3"});
      if (is_staged) {
        job.data.splits.train.source = std::make_shared<Unresident>(job.data.splits.train.source);
      }
      {
        Alone one(job);
        const std::size_t flat = static_cast<std::size_t>(job.model.plan.param_floats) * 4;
        CHECK(one.replica->memory_bytes() == one.backend.live());
        CHECK(one.replica->memory_bytes() ==
              flat * (1 + job.update.optimizer.states.size()) + sizeof(UpdateGuard));
        one.epoch();
        CHECK(one.replica->memory_bytes() == one.backend.live());
        CHECK(one.replica->data_placement() == (is_staged ? "staged" : "resident"));
        evaluate_split(*one.replica, job, job.data.splits.test, "test");
        one.epoch();
        CHECK(one.replica->memory_bytes() == one.backend.live());
        // Exact mode has three shards, two of which wait for their sum.
        CHECK(one.replica->memory_bytes() > flat * 3);
      }
      CHECK(MeasuredBackend::live() == 0);
    }
  }
}

TEST_CASE("a replica holds no gradients and no optimizer state of a frozen front") {
  const auto bytes_of = [](const std::vector<std::string>& more) {
    std::vector<std::string> overrides = {cpus(1), "train.shards=3"};
    overrides.insert(overrides.end(), more.begin(), more.end());
    const Job job = small_job(small_config(kAdam), overrides);
    Alone one(job);
    const std::size_t before = one.replica->memory_bytes();
    one.epoch();
    return std::pair(before, gradient_begin(job.model.plan));
  };
  const auto [all, none] = bytes_of({});
  const auto [some, begin] = bytes_of({"train.freeze=[conv*]"});
  CHECK(none == 0);
  CHECK(begin > 0);
  // Adam has two states.
  CHECK(some == all - 2 * static_cast<std::size_t>(begin) * 4);
  // The average of the weights (train.ema) covers frozen parameters too.
  const auto [averaged, same] = bytes_of({"train.freeze=[conv*]", "train.ema={decay: 0.9}"});
  const auto [all_averaged, zero] = bytes_of({"train.ema={decay: 0.9}"});
  CHECK(averaged == all_averaged - 2 * static_cast<std::size_t>(begin) * 4);
}

TEST_CASE("a batch too large for the memory: the message says how many samples fit") {
  // Exact mode, because fast mode would use smaller micro-batches instead.
  const Job job = small_job(small_config("{type: SGD, lr: 0.1}"), {cpus(1), "train.shards=1"});
  MeasuredBackend measure;
  const std::size_t training =
      Executor(measure, job.model.plan, job.data.train_input, job.model.loss, 12, true)
          .arena_bytes();
  const std::size_t evaluating =
      Executor(measure, job.model.plan, job.data.eval_input, job.model.loss, 23, false)
          .arena_bytes();
  const auto largest = std::max_element(
      job.model.plan.rows.begin(), job.model.plan.rows.end(),
      [](const LayerRow& a, const LayerRow& b) { return a.activation_bytes < b.activation_bytes; });
  {
    Alone one(job);
    one.backend.free = training / 2;
    CHECK(memory_error_of([&] { one.epoch(); }) ==
          fmt::format(
              "counting: out of memory: 12 samples at once need {} for activations and their "
              "gradients, but {} are free; the largest layer is '{}'. {} fit: set train.accumulate "
              "to {} or more, which divides a batch into micro-batches, or use more devices",
              mebibytes(training), mebibytes(training / 2), largest->name, 6 - training % 2,
              2 + training % 2));
  }
  const auto with = [&](std::size_t free, bool trains) {
    Alone one(job);
    one.backend.free = free;
    return memory_error_of([&] {
      if (trains) {
        one.epoch();
      } else {
        evaluate_split(*one.replica, job, job.data.splits.test, "test");
      }
    });
  };
  check_contains(with(training - 1, true), ". 11 fit: set train.accumulate to 2 or more");
  check_contains(with(training / 13, true), "'. Not even one fits: use a smaller network");
  CHECK(with(training, true) == "no error");
  check_contains(
      with(evaluating - 1, false),
      fmt::format("23 samples at once need {} for activations, but", mebibytes(evaluating)));
  CHECK(with(evaluating, false) == "no error");
  // Memory that will be replaced already counts as free.
  REQUIRE(training > evaluating);
  Alone one(job);
  evaluate_split(*one.replica, job, job.data.splits.test, "test");
  one.backend.free = training - evaluating;
  CHECK(memory_error_of([&] { one.epoch(); }) == "no error");
}

TEST_CASE("fast mode makes micro-batches that there is memory for") {
  const std::string config = small_config("{type: SGD, lr: 0.1}");
  // The epoch has only full batches of 12.
  const auto job_with = [&](std::vector<std::string> overrides) {
    overrides.insert(overrides.end(), {cpus(1), "data.size=55"});
    return small_job(config, overrides);
  };
  const Job job = job_with({});
  MeasuredBackend measure;
  const std::size_t five =
      Executor(measure, job.model.plan, job.data.train_input, job.model.loss, 5, true)
          .arena_bytes();
  // GradientPass keeps two buffers of samples, the gradients, and an eighth of the memory free.
  const std::size_t sample =
      static_cast<std::size_t>(job.data.splits.train.source->shape().elements()) +
      sizeof(std::int32_t);
  const std::size_t beside =
      2 * 12 * sample + static_cast<std::size_t>(job.model.plan.grad_floats()) * sizeof(float);
  const std::size_t room = (five + beside) * 8 / 7 + 8;
  const auto micro_batch = [](const Job& a_job, std::size_t free, bool is_short) {
    Alone one(a_job);
    one.backend.free = free;
    one.epoch();
    CHECK(one.replica->is_short_of_memory() == is_short);
    return one.replica->micro_batch();
  };
  CHECK(micro_batch(job, std::size_t{1} << 40, false) == 12);
  CHECK(micro_batch(job, room, true) == 4);
  CHECK(micro_batch(job_with({"train.accumulate=3"}), room, false) == 4);
  CHECK(micro_batch(job_with({"train.accumulate=12"}), room, false) == 1);
  CHECK(micro_batch(job_with({"train.accumulate=100"}), room, false) == 1);
  CHECK(memory_error_of([&] { micro_batch(job, five / 7, true); }).find("Not even one fits") !=
        std::string::npos);
}

TEST_CASE("a data set goes to the device when it takes no more than half of what is free") {
  const Job job = small_job(small_config("{type: SGD, lr: 0.1}"), {cpus(1)});
  const DataSource& source = *job.data.splits.train.source;
  const std::size_t bytes = source.resident()->pixels.size_bytes();
  const auto placement = [&](std::uint64_t free) {
    MeasuredBackend backend;
    InputStaging staging(backend);
    CHECK(staging.placement().empty());
    backend.free = free;
    std::vector<std::int64_t> ids = {3};
    std::vector<std::int32_t> slots = {3};
    HostBatch batch;
    batch.ids = ids;
    batch.slots = slots;
    batch.pixels = source.resident()->pixels;
    batch.labels = source.resident()->labels;
    staging.stage(0, StepScalars{}, StepMetrics{}, batch, source);
    CHECK(staging.memory_bytes() == backend.live());
    // A batch of another source changes neither the memory nor the placement.
    const Unresident other(job.data.splits.train.source);
    staging.stage(1, StepScalars{}, StepMetrics{}, batch, other);
    CHECK(staging.memory_bytes() == backend.live());
    CHECK(backend.resident.size() == (staging.placement() == "resident" ? 2 : 0));
    return staging.placement();
  };
  CHECK(placement(2 * bytes) == "resident");
  CHECK(placement(2 * bytes - 2) == "staged");
}
