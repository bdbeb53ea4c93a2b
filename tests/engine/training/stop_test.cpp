// Stop requests at moments that the test chooses: during evaluations and steps, and by --max-time.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <future>
#include <iterator>

#include "engine/checkpoints/checkpoint.h"
#include "engine/job/starting_point.h"
#include "engine/run/progress.h"
#include "engine/run/run_folder.h"
#include "engine/run/run_log.h"
#include "kernels/devices.h"
#include "tests/engine/training/run.h"
#include "tests/support/text.h"

using namespace dpt;
using namespace dpt::testing;

namespace {

/// A source that is read one sample at a time and counts the reads of evaluations. Reads ahead of
/// the evaluations (AheadCheck) do not count.
class Counted final : public Unresident {
 public:
  Counted(std::shared_ptr<const DataSource> source, std::atomic<int>& reads)
      : Unresident(std::move(source)), reads_(reads) {}
  void read_in_epoch(const Occurrence& sample, std::span<std::byte> pixels,
                     std::int32_t& label) const override {
    Unresident::read_in_epoch(sample, pixels, label);
    ++reads_;
  }

 private:
  std::atomic<int>& reads_;
};

/// A run in a folder, with everything that the trainer needs.
struct Run {
  explicit Run(const std::string& path)
      : folder(path), log(folder.file("metrics.jsonl")), progress(true) {}
  TrainOutcome train(const Job& job, const StartingPoint& start, const TrainLimits& limits) {
    return dpt::train(job, start, limits, folder, log, progress);
  }
  StartingPoint newest(const Job& job) {
    return start_from_checkpoint(
        job, newest_good_checkpoint(folder.checkpoints(), [](const std::string&) {}));
  }
  RunFolder folder;
  RunLog log;
  Progress progress;
};

std::string text_of(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// Returns a job with 53 samples for training (5 steps per epoch, 4 epochs), and 64 each for
/// validation and test, in micro-batches of 8.
Job long_evaluations(int replicas) {
  Job job = small_job(small_config(kSgdWithoutDecay),
                      {cpus(replicas), "train.shards=4", "data.size=117", "data.val_split=64",
                       "data.test_size=64", "checkpoint.every_steps=0", "data.workers=1"});
  job.placement.max_micro_batch = 8;
  return job;
}

}  // namespace

TEST_CASE("a stop request during a validation is answered at once, and changes no bit") {
  for (const int replicas : {1, 3}) {
    CAPTURE(replicas);
    const TempDir whole_folder, cut_folder;
    Job job = long_evaluations(replicas);
    Run whole(whole_folder.path());
    const TrainOutcome undisturbed = whole.train(job, fresh_start(job), {});
    REQUIRE(undisturbed.end == RunEnd::complete);

    // The second validation gets the stop request when 70 of the two times 64 samples have been
    // read.
    std::atomic<int> reads{0};
    job.data.splits.val.source = std::make_shared<Counted>(job.data.splits.val.source, reads);
    job.spec.data.prefetch = 1;
    TrainLimits limits;
    limits.stop_request = [&] { return reads >= 70 ? StopReason::terminate : StopReason::none; };
    Run cut(cut_folder.path());
    const TrainOutcome stopped = cut.train(job, fresh_start(job), limits);
    CHECK(stopped.end == RunEnd::stopped);
    CHECK(stopped.reason == StopReason::terminate);
    CHECK(stopped.state.step == 10);
    // Not all samples were read, no second result was logged, and the checkpoint precedes the
    // evaluation.
    CHECK(reads < 128);
    CHECK(count_of(text_of(cut.folder.file("metrics.jsonl")), "\"split\":\"val\"") == 1);
    const StartingPoint there = cut.newest(job);
    CHECK(there.state.step == 10);
    CHECK(there.state.epoch == 1);
    CHECK(there.state.position == job.data.splits.train.size());

    const TrainOutcome rest = cut.train(job, there, {});
    CHECK(rest.end == RunEnd::complete);
    CHECK(count_of(text_of(cut.folder.file("metrics.jsonl")), "\"split\":\"val\"") == 4);
    CHECK((cut.newest(job).params == whole.newest(job).params));
    CHECK(rest.state.best == undisturbed.state.best);
    CHECK(rest.state.best_step == undisturbed.state.best_step);
    REQUIRE(rest.test);
    CHECK(rest.test->loss == undisturbed.test->loss);
    CHECK(rest.state.train_loss == undisturbed.state.train_loss);
  }
}

TEST_CASE("a stop request during the test at the end: the last checkpoint keeps the last weights") {
  const TempDir folder;
  Job job = long_evaluations(2);
  std::atomic<int> reads{0};
  job.data.splits.test.source = std::make_shared<Counted>(job.data.splits.test.source, reads);
  TrainLimits limits;
  limits.stop_request = [&] { return reads >= 8 ? StopReason::user : StopReason::none; };
  Run run(folder.path());
  const TrainOutcome stopped = run.train(job, fresh_start(job), limits);
  CHECK(stopped.end == RunEnd::stopped);
  CHECK(stopped.reason == StopReason::user);
  CHECK(!stopped.test);
  const StartingPoint last = run.newest(job);
  CHECK(last.state.step == 20);
  // A resume has nothing left to train, so only the test runs again, and is stopped again.
  reads = 0;
  CHECK(run.train(job, last, limits).end == RunEnd::stopped);
  CHECK((run.newest(job).params == last.params));
  const TrainOutcome done = run.train(job, last, {});
  CHECK(done.end == RunEnd::complete);
  CHECK(done.test);
}

TEST_CASE("--max-time counts from the start of the process") {
  const TempDir folder;
  const Job job = long_evaluations(2);
  TrainLimits limits;
  limits.max_time = std::chrono::hours(1);
  // Two hours have passed for listing and loading the data.
  limits.begun = std::chrono::steady_clock::now() - std::chrono::hours(2);
  Run run(folder.path());
  const TrainOutcome outcome = run.train(job, fresh_start(job), limits);
  CHECK(outcome.end == RunEnd::stopped);
  CHECK(outcome.reason == StopReason::time_is_up);
  CHECK(outcome.state.step < 20);
}

TEST_CASE("data.workers auto: the cores that replicas leave free, at least one for each") {
  const auto devices = [](const std::vector<std::string>& names) {
    std::vector<DeviceName> list;
    for (const std::string& name : names) list.push_back(parse_device(name));
    return list;
  };
  CHECK(auto_workers(1, devices({"cpu"})) == 1);
  CHECK(auto_workers(2, devices({"cpu", "cpu"})) == 2);
  CHECK(auto_workers(8, devices({"cpu"})) == 7);
  CHECK(auto_workers(8, devices({"cpu:4"})) == 4);
  CHECK(auto_workers(8, devices({"cpu", "cpu", "cpu"})) == 5);
  CHECK(auto_workers(4, devices({"cpu", "cpu", "cpu"})) == 3);
  CHECK(auto_workers(4, devices({"cpu:16"})) == 1);
  CHECK(auto_workers(64, devices({"cuda:0", "cuda:1"})) == 62);
  const std::string config = small_config("{type: SGD, lr: 0.05}");
  CHECK(small_job(config, {cpus(2), "data.workers=5"}).placement.decoders->threads() == 5);
  CHECK(small_job(config, {cpus(1)}).placement.decoders->threads() ==
        std::max(1, cpu_info().logical_allowed - 1));
}

TEST_CASE("denormals: replicas and their decoders flush them") {
  // A source that multiplies, so that its result shows the decoder's floating-point mode.
  struct Multiplying final : Unresident {
    Multiplying(std::shared_ptr<const DataSource> source, std::atomic<int>& denormals)
        : Unresident(std::move(source)), denormals_(denormals) {}
    void read(std::int64_t index, std::span<std::byte> pixels, std::int32_t& label) const override {
      Unresident::read(index, pixels, label);
      const volatile float small = 1e-20F;
      if (small * small != 0.0F) ++denormals_;
    }
    std::atomic<int>& denormals_;
  };
  for (const int replicas : {1, 2}) {
    CAPTURE(replicas);
    const TempDir folder;
    Job job = long_evaluations(replicas);
    std::atomic<int> in_decoders{0}, in_replicas{0};
    job.data.splits.train.source =
        std::make_shared<Multiplying>(job.data.splits.train.source, in_decoders);
    TrainLimits limits;
    limits.stop_request = [&] {
      const volatile float small = 1e-20F;
      if (small * small != 0.0F) ++in_replicas;
      return StopReason::none;
    };
    Run run(folder.path());
    CHECK(run.train(job, fresh_start(job), limits).end == RunEnd::complete);
    CHECK(in_decoders == 0);
    CHECK(in_replicas == 0);
  }
}

namespace {

/// Returns a function that requests no stop in its first `questions` calls, and a stop in all later
/// ones.
std::function<StopReason()> stop_after(int questions) {
  const auto asked = std::make_shared<std::atomic<int>>(0);
  return [=] { return (*asked)++ >= questions ? StopReason::terminate : StopReason::none; };
}

/// Returns a config whose steps change weights, optimizer state and running statistics. Its tests
/// use three micro-batches or four shards.
std::string stepped_config(const std::string& sync) {
  std::string config = small_config("{type: AdamW, lr: 0.01}", 2);
  const std::string after = "name: conv1, out_channels: 5, kernel_size: 3, padding: 1}\n";
  config.insert(config.find(after) + after.size(),
                "    - {type: BatchNorm2d, name: bn, sync: " + sync + "}\n");
  return config;
}

}  // namespace

TEST_CASE("a stop during a step gives it up between its micro-batches, and changes no bit") {
  const Job job = small_job(small_config(kSgdWithoutDecay, 2), {"train.accumulate=3", cpus(1)});
  const TempDir whole_folder;
  Run whole(whole_folder.path());
  REQUIRE(whole.train(job, fresh_start(job), {}).end == RunEnd::complete);
  // The trainer asks once before each step, and twice during it.
  for (int questions = 0; questions < 9; ++questions) {
    CAPTURE(questions);
    const TempDir folder;
    Run cut(folder.path());
    TrainLimits limits;
    limits.stop_request = stop_after(questions);
    const TrainOutcome stopped = cut.train(job, fresh_start(job), limits);
    CHECK(stopped.end == RunEnd::stopped);
    CHECK(stopped.reason == StopReason::terminate);
    CHECK(stopped.state.step == questions / 3);
    CHECK(stopped.state.position == questions / 3 * 12);
    // A run without a completed step saves nothing: it starts anew.
    const bool is_saved = !list_checkpoints(cut.folder.checkpoints()).empty();
    CHECK(is_saved == (questions >= 3));
    const StartingPoint there = is_saved ? cut.newest(job) : fresh_start(job);
    CHECK(there.state.step == questions / 3);
    CHECK(cut.train(job, there, {}).end == RunEnd::complete);
    CHECK((cut.newest(job).params == whole.newest(job).params));
    CHECK((cut.newest(job).optimizer == whole.newest(job).optimizer));
  }
}

TEST_CASE("a step that is given up: replicas, shards, batch norms, averages, rollbacks") {
  struct Case {
    std::string sync;
    int replicas;
    std::vector<std::string> overrides;
  };
  const Case cases[] = {
      {"false", 1, {"train.accumulate=3", "train.ema={decay: 0.9}"}},
      {"false", 2, {"train.accumulate=3"}},
      {"true", 2, {"train.accumulate=2"}},
      {"false", 1, {"train.shards=4"}},
      {"true", 3, {"train.shards=4", "train.ema={decay: 0.9}"}},
      {"false", 2, {"train.shards=4", "train.on_divergence={policy: rollback}"}},
      {"true", 1, {"train.shards=3", "train.accumulate=2", "log.noise_scale=true"}},
  };
  for (const Case& each : cases) {
    CAPTURE(each.sync);
    CAPTURE(each.replicas);
    CAPTURE(each.overrides);
    std::vector<std::string> overrides = each.overrides;
    overrides.push_back(cpus(each.replicas));
    const Job job = small_job(stepped_config(each.sync), overrides);
    const TempDir whole_folder, cut_folder;
    Run whole(whole_folder.path());
    const TrainOutcome undisturbed = whole.train(job, fresh_start(job), {});
    REQUIRE(undisturbed.end == RunEnd::complete);
    Run cut(cut_folder.path());
    int stops = 0;
    TrainOutcome outcome;
    // The run is stopped again and again, each time a little later in a step.
    for (int questions = 7;; questions += 2, ++stops) {
      REQUIRE(stops < 100);
      TrainLimits limits;
      limits.stop_request = stop_after(questions);
      const bool is_saved = !list_checkpoints(cut.folder.checkpoints()).empty();
      outcome = cut.train(job, is_saved ? cut.newest(job) : fresh_start(job), limits);
      if (outcome.end == RunEnd::complete) break;
    }
    CHECK(stops > 2);
    CHECK((cut.newest(job).params == whole.newest(job).params));
    CHECK((cut.newest(job).optimizer == whole.newest(job).optimizer));
    CHECK(outcome.state.train_loss == undisturbed.state.train_loss);
    CHECK(outcome.state.val_loss == undisturbed.state.val_loss);
    REQUIRE(outcome.test);
    CHECK(outcome.test->loss == undisturbed.test->loss);
  }
}

TEST_CASE("--max-time lets a step of several micro-batches end") {
  const Job job = small_job(small_config(kSgdWithoutDecay, 2), {"train.accumulate=3", cpus(1)});
  const TempDir folder;
  TrainLimits limits;
  limits.max_time = std::chrono::seconds(0);
  limits.begun = std::chrono::steady_clock::now() - std::chrono::hours(1);
  Run run(folder.path());
  CHECK(run.train(job, fresh_start(job), limits).state.step == 1);
}

TEST_CASE("a watch calls once a stop is requested and its patience over, unless it ends before") {
  // A stop request applies to a whole process, so each request is made in a separate one.
  const auto calls_in_child = [](std::chrono::milliseconds patience, bool requests) {
    const pid_t pid = fork();
    REQUIRE(pid >= 0);
    if (pid == 0) {
      std::promise<StopReason> called;
      auto reason = called.get_future();
      bool is_called = false;
      {
        const StopWatch watch(patience, [&](StopReason why) { called.set_value(why); });
        if (requests) request_stop(StopReason::user2);
        const bool comes = requests && patience < std::chrono::hours(1);
        if (comes) is_called = reason.get() == StopReason::user2;
      }
      if (!is_called) {
        is_called = reason.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
      }
      _exit(is_called ? 1 : 0);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  };
  CHECK(calls_in_child(std::chrono::milliseconds(0), true) == 1);
  CHECK(calls_in_child(std::chrono::milliseconds(1), true) == 1);
  CHECK(calls_in_child(std::chrono::hours(1), true) == 0);
  CHECK(calls_in_child(std::chrono::milliseconds(0), false) == 0);
}
