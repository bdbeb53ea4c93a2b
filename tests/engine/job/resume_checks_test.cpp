// The values that a resumed run is checked against: counters, learning rates, the optimizer, the
// devices.
#include "engine/job/resume_checks.h"

#include <doctest/doctest.h>

#include <filesystem>

#include "engine/checkpoints/checkpoint.h"
#include "engine/job/starting_point.h"
#include "kernels/devices.h"
#include "tests/engine/training/run.h"
#include "tests/support/text.h"

using namespace dpt;
using namespace dpt::testing;

namespace {

std::string misfit(const Job& job, std::int64_t step, std::int64_t epoch, std::int64_t position) {
  RunState state;
  state.step = step;
  state.epoch = epoch;
  state.position = position;
  try {
    check_fits("ckpt", state, job);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::data);
    return error.what();
  }
  return {};
}

/// Returns a job with five steps per epoch.
Job job_of(std::int64_t epochs, const std::string& schedule) {
  return small_job(small_config(kSgd),
                   {cpus(1), "train.epochs=" + std::to_string(epochs), "lr_schedule=" + schedule});
}

}  // namespace

TEST_CASE("counters at and past the bounds of a run of 53 samples in batches of 12") {
  const Job job = job_of(4, "{type: constant}");
  CHECK(misfit(job, 0, 0, 0).empty());
  CHECK(misfit(job, 10, 2, 0).empty());
  CHECK(misfit(job, 14, 2, 48).empty());
  CHECK(misfit(job, 15, 2, 53).empty());
  CHECK(misfit(job, 11, 2, 12).empty());
  CHECK(misfit(job, 3, 2, 12).empty());  // the count may leave out skipped steps
  const std::string samples =
      "ckpt: metadata 'dpt.position': expected 0 to 53, the number of training samples, found ";
  CHECK(misfit(job, 15, 2, 54) == samples + "54");
  CHECK(misfit(job, 15, 2, -12) == samples + "-12");
  CHECK(misfit(job, 15, 2, 52) ==
        "ckpt: metadata 'dpt.position': expected a multiple of data.batch_size (12), or 53, found "
        "52");
  CHECK(misfit(job, 12, 2, 12) ==
        "ckpt: metadata 'dpt.step': expected 0 to 11 (2 epochs of 5 steps, and 12 samples of the "
        "next), found 12");
  CHECK(misfit(job, 16, 2, 53).find("expected 0 to 15 ") != std::string::npos);
  CHECK(misfit(job, -1, 0, 0).find("expected 0 to 0 ") != std::string::npos);
}

TEST_CASE(
    "a learning rate that differs from that of the run so far is reported with its first step") {
  const auto change = [](std::int64_t epochs, std::int64_t before, const std::string& schedule,
                         std::int64_t step) {
    RunState state;
    state.step = step;
    return learning_rate_change(job_of(epochs, schedule), job_of(before, schedule).spec, state);
  };
  const std::string cosine = "{type: cosine}";
  CHECK(change(4, 4, cosine, 0).empty());
  CHECK(change(4, 4, cosine, 20).empty());
  CHECK(change(4, 8, "{type: constant}", 7).empty());
  // Step 1 has the full rate with any schedule.
  CHECK(change(4, 8, cosine, 0).rfind("the learning rate of step 2 is ", 0) == 0);
  CHECK(change(4, 8, cosine, 5).rfind("the learning rate of step 6 is ", 0) == 0);
  check_contains(change(4, 8, cosine, 5),
                 "train.epochs was 8 and is now 4, and the schedule cosine spans");
  // The warm-up is the same. The schedules differ after it, if the run gets that far.
  const std::string warm = "{type: cosine, warmup: {steps: 10}}";
  CHECK(change(4, 8, warm, 2).rfind("the learning rate of step 12 is ", 0) == 0);
  CHECK(change(2, 8, warm, 2).empty());
  // If there are more epochs, continue_schedule reports the change.
  CHECK(change(8, 4, cosine, 5).empty());
  // There are no steps left to train.
  CHECK(change(2, 4, cosine, 10).empty());
  CHECK(change(2, 4, cosine, 12).empty());
  CHECK(change(2, 4, cosine, 9).rfind("the learning rate of step 10 is ", 0) == 0);
}

TEST_CASE("more epochs: refused if the rate would change and train.on_more_epochs is not set") {
  const std::string cosine = "{type: cosine}";
  RunState state;
  state.step = 20;
  const auto more = [&](const std::string& schedule, const char* choice, std::int64_t epochs = 8) {
    Job job = job_of(epochs, schedule);
    if (*choice) job.spec.train.on_more_epochs = enum_of<MoreEpochs>(choice);
    continue_schedule(job, job_of(4, schedule).spec, state);
    return job;
  };
  const Job before = job_of(4, cosine);
  CHECK_THROWS_WITH(
      more(cosine, ""),
      "train.epochs was 4 and is 8, and the schedule cosine spans all of the run's epochs: with 8 "
      "epochs, the learning rate of step 21 is 0.025, where the run so far would have used 0. "
      "Choose one: train.on_more_epochs=stretch (the schedule is fitted to all epochs), hold (the "
      "learning rate of its last step, 0.000307791, is kept) or restart (after epoch 4 it begins "
      "again and spans the new epochs)");
  // No choice is needed if the schedule does not depend on the number of epochs, or if their number
  // does not grow.
  CHECK(more("{type: exponential, gamma: 0.5}", "").update.schedule_segments.empty());
  CHECK(more(cosine, "", 4).update.schedule_segments.empty());
  CHECK(more(cosine, "", 3).update.schedule_segments.empty());

  const Job stretched = more(cosine, "stretch");
  CHECK(stretched.update.schedule_segments.empty());
  CHECK(stretched.update.schedule(20) == doctest::Approx(0.025).epsilon(1e-14));
  const Job held = more(cosine, "hold");
  CHECK(held.update.schedule_segments == ScheduleSegments{0, 4});
  for (const std::int64_t step : {20, 39})
    CHECK(held.update.schedule(step) == before.update.schedule(19));
  const Job again = more(cosine, "restart");
  CHECK(again.update.schedule_segments == ScheduleSegments{0, 4, 4, 0});
  CHECK(again.update.schedule(19) == before.update.schedule(19));
  for (const std::int64_t step : {20, 27, 39}) {
    CHECK(again.update.schedule(step) == before.update.schedule(step - 20));
  }

  // The number of epochs is raised a second time: a schedule that was held or restarted can
  // continue in each way.
  state.schedule_segments = {0, 4, 4, 0};
  state.step = 33;
  const auto twice = [&](const char* choice) {
    Job job = job_of(10, cosine);
    job.spec.train.on_more_epochs = enum_of<MoreEpochs>(choice);
    continue_schedule(job, job_of(8, cosine).spec, state);
    return job.update.schedule_segments;
  };
  CHECK(twice("stretch") == ScheduleSegments{0, 4, 4, 0});
  CHECK(twice("hold") == ScheduleSegments{0, 4, 4, 4});
  CHECK(twice("restart") == ScheduleSegments{0, 4, 4, 4, 8, 0});
  state.schedule_segments = {0, 4};
  CHECK(twice("stretch").empty());
  CHECK(twice("hold") == ScheduleSegments{0, 4});
  CHECK(twice("restart") == ScheduleSegments{0, 4, 8, 0});
}

TEST_CASE("a schedule that begins again does so in a run that is stopped anywhere") {
  const auto job = [](int epochs) {
    return small_job(small_config(kSgd, epochs),
                     {cpus(1), "train.shards=8", "log.every=1", "train.on_more_epochs=restart"});
  };
  const auto resume = [&](const TempDir& folder, std::int64_t step, int epochs, int before,
                          std::int64_t stop) {
    Job more = job(epochs);
    const StartingPoint start =
        start_from_checkpoint(more, folder.file("checkpoints/" + checkpoint_name(step)));
    continue_schedule(more, job(before).spec, start.state);
    return train_small(more, folder.path(), &start, stop);
  };
  const TempDir folder;
  train_small(job(2), folder.path());
  const FinalState one = resume(folder, 10, 4, 2, 0);
  CHECK(one.step == 20);
  const auto steps = events(folder, "step");
  REQUIRE(steps.size() == 20);
  for (std::size_t i = 0; i < 10; ++i) CHECK(steps[i]["lr"] == steps[i + 10]["lr"]);
  // The number of epochs is raised in the middle of the run. The run then stops before, at or after
  // step 10, where the schedule begins again.
  for (const std::int64_t stop : {8, 10, 13}) {
    CAPTURE(stop);
    const TempDir other;
    train_small(job(2), other.path(), nullptr, 6);
    resume(other, 6, 4, 2, stop);
    CHECK((resume(other, stop, 4, 4, 0) == one));
  }
}

TEST_CASE("comparing the learning rates of a run of five million steps looks at some thousand") {
  Job job = job_of(1'000'000, "{type: cosine}");
  std::int64_t asked = 0;
  job.update.schedule = [&asked, schedule = job.update.schedule](std::int64_t step) {
    ++asked;
    return schedule(step);
  };
  RunState state;
  state.step = 20;
  CHECK(learning_rate_change(job, job.spec, state).empty());
  CHECK(asked < 20'000);
  // A difference that shows only after a long warm-up is detected too.
  const std::string warm = "{type: cosine, warmup: {steps: 1000000}}";
  const std::string change =
      learning_rate_change(job_of(500'000, warm), job_of(1'000'000, warm).spec, state);
  check_contains(change, "train.epochs was 1000000 and is now 500000");
  const auto first = std::stoll(change.substr(std::string("the learning rate of step ").size()));
  CHECK(first > 1'000'000);
  CHECK(first < 1'002'000);
}

TEST_CASE("a checkpoint of exact mode says how many shards and which devices made it") {
  const TempDir folder;
  train_small(small_job(small_config(kSgd), {cpus(2), "train.shards=3"}), folder.path(), nullptr,
              1);
  const CheckpointHeader header =
      read_checkpoint_header(folder.file("checkpoints/" + checkpoint_name(1)));
  CHECK(header.shards == 3);
  CHECK(header.devices == std::vector<std::string>{"cpu", "cpu"});
}

TEST_CASE("where runs start: at zero, or with what a checkpoint holds") {
  const TempDir folder;
  const Job job = small_job(small_config(kSgd), {cpus(1), "train.epochs=2"});
  const StartingPoint fresh = fresh_start(job);
  CHECK(fresh.state.step == 0);
  CHECK(fresh.state.rollback_step == 0);
  CHECK(fresh.state.rollback_candidate == -1);
  CHECK(fresh.folder.empty());
  CHECK(fresh.optimizer.empty());
  CHECK_FALSE(fresh.is_saved);
  train_small(job, folder.path());

  const std::string path = folder.file("checkpoints/" + checkpoint_name(5));
  const StartingPoint start = start_from_checkpoint(job, path);
  CHECK(start.state.step == 5);
  CHECK(start.folder == folder.file("checkpoints"));
  CHECK(start.config == job.resolved_config);
  CHECK(start.checksum == read_checkpoint_header(path).checksum);
  CHECK(start.params != fresh.params);
  REQUIRE(start.optimizer.size() == 1);
  CHECK(start.optimizer[0].first == "momentum_buffer");
  // The first epoch is the best so far, but the file does not say so: it cannot contain its own
  // checksum.
  CHECK(read_checkpoint_header(path).state.best_checksum.empty());
  CHECK(start.state.best_step == 5);
  CHECK(start.state.best_checksum == start.checksum);
  const StartingPoint next =
      start_from_checkpoint(job, folder.file("checkpoints/" + checkpoint_name(6)));
  CHECK(next.state.best_step == 5);
  CHECK(next.state.best_checksum == start.checksum);

  const CheckpointHeader header = read_checkpoint_header(path);
  CHECK(header.classes == job.data.splits.train.source->classes());
  CHECK(header.dataset_fingerprint == job.data.splits.train.source->fingerprint());
  CHECK(header.shards == 0);
  CHECK(header.devices == std::vector<std::string>{"cpu"});
  CHECK(header.made_by == made_by(job));
  CHECK(made_by(job) == fmt::format("{}; {}{}; 1 x cpu", backends_built_in(),
                                    cpu_info().instruction_set,
                                    cpu_info().maker.empty() ? "" : " (" + cpu_info().maker + ")"));
  CHECK(start.made_by == made_by(job));

  const Job adam = small_job(small_config(kAdam), {cpus(1)});
  CHECK_THROWS_WITH_AS(
      start_from_checkpoint(adam, path),
      (path + " holds the optimizer state [momentum_buffer], but the config's optimizer Adam keeps "
              "[exp_avg, exp_avg_sq]: resume with the optimizer of the checkpoint, or start a new "
              "run from its weights with --weights")
          .c_str(),
      Error);
}

TEST_CASE("exact mode: other libraries, instruction sets or makers of processors are reported") {
  const auto told = [](const std::string& before, const std::string& now,
                       const std::string& shards = "4") {
    return inexact_makers(small_job(small_config(kSgd), {cpus(2), "train.shards=" + shards}),
                          before, now);
  };
  const std::string amd = "oneDNN 3.4.0, CUDA 12.4; avx512_core (AMD); 2 x cpu";
  CHECK(told(amd, amd).empty());
  CHECK(told(amd, "oneDNN 3.4.0, no CUDA; avx512_core (AMD); 1 x cpu:2").empty());
  CHECK(told(amd, "oneDNN 3.4.0, CUDA 12.4; avx512_core (Intel); 2 x cpu") ==
        "exact mode: the run was trained with oneDNN 3.4.0 on avx512_core (AMD) and continues with "
        "oneDNN 3.4.0 on avx512_core (Intel), which may compute different bits");
  CHECK(told(amd, "oneDNN 3.4.0, CUDA 12.4; avx512_core (Intel); 2 x cpu", "auto").empty());
  CHECK_FALSE(told(amd, "oneDNN 3.4.0, CUDA 12.4; avx2 (AMD); 2 x cpu").empty());
  CHECK_FALSE(told(amd, "oneDNN 3.5.0, CUDA 12.4; avx512_core (AMD); 2 x cpu").empty());
  // Older checkpoints do not record the vendor of the CPU.
  const std::string older = "oneDNN 3.4.0, CUDA 12.4; avx512_core; 2 x cpu";
  CHECK(told(older, amd).empty());
  CHECK_FALSE(told(older, "oneDNN 3.4.0, CUDA 12.4; avx2 (AMD); 2 x cpu").empty());
  // The texts of a job on GPUs have a part that describes the GPUs.
  const auto on_gpu = [](const std::string& gpu) {
    return "oneDNN 3.4.0, CUDA 12.4; avx512_core (AMD); 2 x cuda:0; " + gpu;
  };
  CHECK(told(on_gpu("A (9.0)"), on_gpu("B (9.0)")).empty());  // the replicas are CPUs
  CHECK(told("", amd).empty());
  CHECK(told("dpt 0.1.0", amd).empty());
}

TEST_CASE("exact mode: replicas of several kinds, or of another kind than before, are reported") {
  const std::string config = small_config(kSgd);
  const auto told = [&](const std::string& devices, const std::vector<std::string>& before,
                        const std::string& shards = "4") {
    return inexact_devices(small_job(config, {"devices=" + devices, "train.shards=" + shards}),
                           before);
  };
  CHECK(told("[cpu, cpu]", {}).empty());
  CHECK(told("[cpu, cpu]", {"cpu"}).empty());
  CHECK(told("[cpu:2]", {"cpu:2", "cpu:2"}).empty());
  CHECK(told("[cpu, cpu:2, cpu]", {"cpu"}) ==
        "exact mode: replicas of cpu and cpu:2 compute different bits, so the weights depend on "
        "the number of replicas and on device_weights. Give all the same number of threads for "
        "equal bits");
  CHECK(told("[cpu:2]", {"cpu", "cpu"}) ==
        "exact mode: the run was trained on cpu and continues on cpu:2, which computes different "
        "bits");
  CHECK(told("[cpu]", {"cuda:0", "cuda:1"}) ==
        "exact mode: the run was trained on cuda and continues on cpu, which computes different "
        "bits");
  CHECK(told("[cpu, cpu:2]", {"cpu"}, "auto").empty());
}
