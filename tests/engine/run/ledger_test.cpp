// The time accounting of a run: every moment belongs to exactly one part, and the log and the
// summary report it.
#include "engine/run/ledger.h"

#include <doctest/doctest.h>

#include <chrono>
#include <cmath>
#include <thread>

#include "app/train/train_report.h"
#include "engine/job/starting_point.h"
#include "engine/run/progress.h"
#include "engine/run/run_folder.h"
#include "engine/run/run_log.h"
#include "engine/training/stepper.h"
#include "kernels/devices.h"
#include "tests/engine/training/run.h"

using namespace dpt;
using namespace dpt::testing;

namespace {

using Scope = Ledger::Scope;

void spend(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

double total_of(const nlohmann::json& ledger) {
  double total = 0;
  for (const auto& [name, seconds] : ledger["parts"].items()) total += seconds.get<double>();
  return total;
}

LedgerTotals totals_with(std::vector<std::pair<LedgerPart, double>> parts) {
  LedgerTotals totals;
  for (const auto& [part, seconds] : parts) totals[part] = seconds;
  return totals;
}

}  // namespace

TEST_CASE("nested parts of the time are not counted twice") {
  const auto begun = std::chrono::steady_clock::now();
  Ledger ledger;
  spend(2);
  {
    const Scope saving(&ledger, LedgerPart::saving);
    spend(3);
    {
      const Scope logging(&ledger, LedgerPart::logging);
      spend(5);
    }
    spend(4);
  }
  const Scope nothing(nullptr, LedgerPart::data);
  const LedgerTotals totals = ledger.whole();
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begun;
  CHECK(totals[LedgerPart::other] >= 0.002);
  CHECK(totals[LedgerPart::saving] >= 0.007);
  CHECK(totals[LedgerPart::logging] >= 0.005);
  CHECK(totals[LedgerPart::data] == 0);
  CHECK(totals.sum() >= 0.014);
  CHECK(totals.sum() <= passed.count());
}

TEST_CASE("the device's time is divided as the phases of the timed steps are") {
  Ledger ledger;
  const auto device_works = [&] {
    const Ledger::DeviceScope device(&ledger);
    spend(8);
  };
  device_works();
  // No step has been timed yet, so the time of its parts is unknown.
  LedgerTotals first = ledger.take_interval();
  CHECK(first[LedgerPart::other] >= 0.008);
  CHECK(first[LedgerPart::forward] == 0);

  device_works();
  ledger.phases({1, 2, 0, 1});
  const LedgerTotals second = ledger.take_interval();
  CHECK(second[LedgerPart::backward] >= 0.004);
  CHECK(second[LedgerPart::backward] == doctest::Approx(2 * second[LedgerPart::forward]));
  CHECK(second[LedgerPart::update] == second[LedgerPart::forward]);
  CHECK(second[LedgerPart::sum] == 0);

  device_works();  // as in the rest of the run
  const LedgerTotals third = ledger.take_interval();
  CHECK(third[LedgerPart::backward] == doctest::Approx(2 * third[LedgerPart::forward]));
  CHECK(third[LedgerPart::forward] >= 0.002);

  const LedgerTotals whole = ledger.whole();
  CHECK(whole.sum() == doctest::Approx(first.sum() + second.sum() + third.sum()).epsilon(0.05));
  CHECK(whole[LedgerPart::backward] >= 0.012);
}

TEST_CASE("waiting for the data of other ranks is taken from the time of sums, and no other") {
  Ledger ledger;
  {
    const Ledger::DeviceScope device(&ledger);
    spend(8);
  }
  ledger.phases({1, 1, 2, 0});
  ledger.waited_for_data_of_others(0.001);
  const LedgerTotals first = ledger.take_interval();
  CHECK(first[LedgerPart::data] == doctest::Approx(0.001));
  CHECK(first[LedgerPart::sum] == doctest::Approx(2 * first[LedgerPart::forward] - 0.001));
  {
    const Ledger::DeviceScope device(&ledger);
    spend(8);
  }
  ledger.waited_for_data_of_others(100);
  const LedgerTotals second = ledger.take_interval();
  CHECK(second[LedgerPart::sum] == 0);
  CHECK(second[LedgerPart::data] == doctest::Approx(2 * second[LedgerPart::forward]));
}

namespace {

/// A source in which only the second replica's samples of each batch are slow.
class SlowForOne : public Unresident {
 public:
  using Unresident::Unresident;
  void read(std::int64_t index, std::span<std::byte> pixels, std::int32_t& label) const override {
    if (index % 12 >= 6) spend(3);
    Unresident::read(index, pixels, label);
  }
};

}  // namespace

TEST_CASE("a run whose other replica waits for data is bound by data, not by sums") {
  Job job = small_job(small_config(kSgd, 1),
                      {cpus(2), "data.val_split=0", "data.shuffle=false", "data.workers=1",
                       "data.prefetch=1", "checkpoint.every_steps=0"});
  job.data.splits.train.source = std::make_shared<SlowForOne>(job.data.splits.train.source);
  const TempDir folder;
  RunFolder run(folder.path());
  RunLog log(run.file("metrics.jsonl"));
  Progress progress(true);
  train(job, fresh_start(job), {}, run, log, progress);
  const std::vector<nlohmann::json> ledgers = events(folder, "ledger");
  REQUIRE(ledgers.size() == 1);
  // 5 steps with 6 samples each.
  CHECK(ledgers[0]["parts"]["data"] > 0.05);
  CHECK(ledgers[0]["parts"]["data"] > ledgers[0]["parts"]["sum"]);
}

TEST_CASE("the verdict names the largest part, with advice if that is not computing") {
  const Job job = small_job(small_config(kSgd), {cpus(1), "data.workers=1000"});
  using P = LedgerPart;
  const LedgerVerdict data = verdict_of(
      totals_with({{P::data, 62}, {P::forward, 10}, {P::backward, 20}, {P::other, 8}}), job);
  CHECK(data.bound_by == "data");
  CHECK(data.share == doctest::Approx(0.62));
  // There are already more decoding threads than cores.
  CHECK(data.advice ==
        "keep decoded images (data.cache) or see which stage is slow: dpt bench CONFIG --data");
  if (cpu_info().logical_allowed > 1) {
    const Job few = small_job(small_config(kSgd), {cpus(1), "data.workers=1"});
    CHECK(ledger_text(totals_with({{P::data, 62}, {P::forward, 38}}), few) ==
          "time: data 62 %, forward 38 %; bound by data: 62 %; raise data.workers, keep decoded "
          "images (data.cache), or see which stage is slow: dpt bench CONFIG --data");
  }

  const LedgerVerdict compute = verdict_of(
      totals_with({{P::forward, 30}, {P::backward, 40}, {P::update, 5}, {P::saving, 25}}), job);
  CHECK(compute.bound_by == "compute");
  CHECK(compute.share == doctest::Approx(0.75));
  CHECK(compute.advice ==
        "saving takes 25 %: save less often (checkpoint.every, checkpoint.every_steps)");

  const LedgerVerdict good =
      verdict_of(totals_with({{P::forward, 30}, {P::backward, 65}, {P::logging, 5}}), job);
  CHECK(good.advice.empty());
  CHECK(ledger_text(totals_with({{P::forward, 30}, {P::backward, 65}, {P::logging, 5}}), job) ==
        "time: forward 30 %, backward 65 %, logging 5 %; bound by compute: 95 %");

  CHECK(verdict_of(totals_with({{P::evaluation, 1}}), job).advice ==
        "validate on fewer samples (data.val_split)");
  const Job unvalidated = small_job(small_config(kSgd), {cpus(1), "data.val_split=0"});
  CHECK(verdict_of(totals_with({{P::evaluation, 1}}), unvalidated).advice ==
        "it is the test at the end of the run, which takes a smaller share of a longer run");

  CHECK(verdict_of(LedgerTotals(), job).bound_by.empty());
  CHECK(ledger_text(LedgerTotals(), job).empty());
  CHECK(ledger_json(LedgerTotals(), job).size() == 2);
  for (int i = 0; i < kLedgerParts; ++i) {
    const auto part = static_cast<P>(i);
    const bool computes = part == P::forward || part == P::backward || part == P::update;
    CHECK(verdict_of(totals_with({{part, 1}}), job).bound_by ==
          (computes ? "compute" : name_of(part)));
    CHECK(verdict_of(totals_with({{part, 1}}), job).advice.empty() == computes);
  }
}

TEST_CASE("the log has a ledger of each epoch, and the summary one of the run") {
  for (const std::string& device : backend_names()) {
    CAPTURE(device);
    const int epochs = 2;
    const Job job = small_job(
        small_config(kSgd, epochs),
        {"devices=[" + device + "]", "checkpoint.every_steps=0", "log.every=2", "data.workers=1"});
    const TempDir folder;
    RunFolder run(folder.path());
    RunLog log(run.file("metrics.jsonl"));
    Progress progress(true);
    const TrainOutcome outcome = train(job, fresh_start(job), {}, run, log, progress);
    const std::vector<nlohmann::json> ledgers = events(folder, "ledger");
    REQUIRE(ledgers.size() == epochs);
    double seconds = 0;
    for (int i = 0; i < epochs; ++i) {
      const nlohmann::json& ledger = ledgers[i];
      CHECK(ledger["epoch"] == i + 1);
      CHECK(ledger["step"] == kStepsPerEpoch * (i + 1));
      CHECK(ledger["parts"].size() == kLedgerParts);
      for (const char* part : {"forward", "backward", "update", "evaluation", "logging"}) {
        CHECK_MESSAGE(ledger["parts"][part] > 0, part);
      }
      CHECK(total_of(ledger) == doctest::Approx(ledger["seconds"].get<double>()));
      CHECK(ledger["share"] > 0);
      CHECK(ledger["share"] <= 1);
      seconds += ledger["seconds"].get<double>();
    }
    const Json summary = summary_of(job, run, outcome);
    const nlohmann::json whole = nlohmann::json::parse(summary["ledger"].dump());
    CHECK(total_of(whole) == doctest::Approx(whole["seconds"].get<double>()));
    // The total includes the last save and the test.
    CHECK(whole["seconds"] > seconds);
    CHECK(whole["seconds"] >= outcome.seconds);
    CHECK(whole["parts"]["saving"] > 0);
  }
}

TEST_CASE("a ledger changes no bit of a run") {
  for (const std::string& device : backend_names()) {
    const Job job = small_job(small_config(kAdam, 1), {"devices=[" + device + "]"});
    std::vector<std::vector<float>> params;
    for (const bool timed : {false, true}) {
      run_ranks(job, [&](Backend& backend, Communicator& communicator) {
        Replica replica(backend, communicator, job);
        Ledger ledger;
        const StartingPoint start = fresh_start(job);
        replica.set_params(start.params);
        Stepper stepper(
            job, replica, communicator, start.state, [](const StepResult&) {},
            timed ? &ledger : nullptr);
        while (!stepper.epoch_done()) stepper.step(false, stepper.state().step % 2 == 0);
        stepper.drain();
        params.push_back(replica.params());
        if (timed) CHECK(ledger.whole()[LedgerPart::forward] > 0);
      });
    }
    CHECK(params[0] == params[1]);
  }
}
