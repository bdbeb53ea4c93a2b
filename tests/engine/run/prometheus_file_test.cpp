// log.prometheus: the text of the file, the times at which it is written, and disk errors.
// tests/cli covers whole runs.
#include "engine/run/prometheus_file.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/resource.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "engine/run/run_log.h"
#include "tests/support/temp_dir.h"
#include "tests/support/text.h"

using namespace dpt;
using namespace dpt::testing;
namespace fs = std::filesystem;

namespace {

PrometheusState small_state() {
  PrometheusState state;
  state.run = "mnist";
  state.folder = "/runs/mnist";
  state.epochs = 3;
  state.steps = 30;
  return state;
}

/// A log that a Prometheus file follows. Every event updates the file if `interval` is 0.
struct Followed {
  std::vector<std::string> warnings;
  RunLog log;
  PrometheusFile file;
  RunState state;
  Followed(const TempDir& dir, std::chrono::milliseconds interval)
      : log(dir.file("metrics.jsonl")),
        file(
            dir.file("x.prom"), small_state(),
            [this](const std::string& text) { warnings.push_back(text); }, interval) {
    file.follow(log);
  }
  void step(std::int64_t step, double loss, double seconds = 0.25) {
    log.progress({1, step, loss, 0.5, 100, seconds, &state});
  }
};

/// Returns the value of a sample without its two usual labels; empty if the file lacks it.
std::string value_in(const TempDir& dir, const std::string& name, const std::string& labels = {}) {
  const std::string text = "\n" + read_whole_file(dir.file("x.prom"));
  const std::string begin = "\n" + name + R"({run="mnist",folder="/runs/mnist")" + labels + "} ";
  const std::size_t at = text.find(begin);
  if (at == std::string::npos) return {};
  const std::size_t from = at + begin.size();
  return text.substr(from, text.find('\n', from) - from);
}

}  // namespace

TEST_CASE("the file has HELP and TYPE lines, escaped labels and non-finite values") {
  PrometheusState state;
  state.run = "a\"b\\c\nd\xFF";
  state.folder = "/runs/x";
  state.epoch = 2;
  state.epochs = 3;
  state.step = 1234567890123;
  state.steps = 30;
  state.begun = 1764150000.25;
  state.last_step = 1764150060.5;
  state.loss = NAN;
  state.lr = 0.05;
  state.images_per_s = std::numeric_limits<double>::infinity();
  state.evaluations = {{"val", {{"loss", 0.25}, {"accuracy", 1.0}}},
                       {"test", {{"loss", -std::numeric_limits<double>::infinity()}}}};
  state.best = 0.9375;
  state.best_monitor = "val/accuracy";
  state.best_step = 20;
  const std::string labels = "run=\"a\\\"b\\\\c\\nd\xEF\xBF\xBD\",folder=\"/runs/x\"";
  std::string expected =
      R"(# HELP dpt_running 1 while the run trains, 0 after its end.
# TYPE dpt_running gauge
dpt_running{L} 1
# HELP dpt_status 1 for the current status of the run, 0 for the others.
# TYPE dpt_status gauge
dpt_status{L,status="running"} 1
dpt_status{L,status="ok"} 0
dpt_status{L,status="max_steps"} 0
dpt_status{L,status="stopped"} 0
dpt_status{L,status="failed"} 0
# HELP dpt_start_timestamp_seconds Unix time at which the process began to train.
# TYPE dpt_start_timestamp_seconds gauge
dpt_start_timestamp_seconds{L} 1764150000.250
# HELP dpt_last_step_timestamp_seconds Unix time at which the last step ended; before the first, that of the start.
# TYPE dpt_last_step_timestamp_seconds gauge
dpt_last_step_timestamp_seconds{L} 1764150060.500
# HELP dpt_epoch Epoch of the last step, from 1.
# TYPE dpt_epoch gauge
dpt_epoch{L} 2
# HELP dpt_epochs Epochs that the config asks for.
# TYPE dpt_epochs gauge
dpt_epochs{L} 3
# HELP dpt_step Steps completed.
# TYPE dpt_step gauge
dpt_step{L} 1234567890123
# HELP dpt_steps Steps of all epochs.
# TYPE dpt_steps gauge
dpt_steps{L} 30
# HELP dpt_train_loss Loss of the last step's batch.
# TYPE dpt_train_loss gauge
dpt_train_loss{L} NaN
# HELP dpt_learning_rate Learning rate of the last step.
# TYPE dpt_learning_rate gauge
dpt_learning_rate{L} 0.05
# HELP dpt_images_per_second Training samples per second since the last update, without evaluations and saves.
# TYPE dpt_images_per_second gauge
dpt_images_per_second{L} +Inf
# HELP dpt_evaluation Results of the last evaluation of a split.
# TYPE dpt_evaluation gauge
dpt_evaluation{L,split="val",metric="loss"} 0.25
dpt_evaluation{L,split="val",metric="accuracy"} 1
dpt_evaluation{L,split="test",metric="loss"} -Inf
# HELP dpt_best Best value of checkpoint.keep_best.monitor so far.
# TYPE dpt_best gauge
dpt_best{L,monitor="val/accuracy"} 0.9375
# HELP dpt_best_step Step of the best value.
# TYPE dpt_best_step gauge
dpt_best_step{L} 20
)";
  for (std::size_t at = 0; (at = expected.find("{L", at)) != std::string::npos;) {
    expected.replace(at, 2, "{" + labels);
  }
  CHECK(prometheus_text(state) == expected);
}

TEST_CASE("the file follows steps, evaluations and the end of a run") {
  const TempDir dir;
  Followed run(dir, std::chrono::milliseconds(0));
  std::vector<std::string> also_followed;
  run.log.follow([&](const char* name, const Json&) { also_followed.emplace_back(name); });
  CHECK_FALSE(fs::exists(dir.file("x.prom")));
  run.log.event("run_start", {{"step", 0}});
  CHECK(value_in(dir, "dpt_step") == "0");
  CHECK(value_in(dir, "dpt_running") == "1");
  CHECK(value_in(dir, "dpt_status", R"(,status="running")") == "1");
  const std::string begun = value_in(dir, "dpt_start_timestamp_seconds");
  CHECK(std::stod(begun) > 1.7e9);
  // A run that never reaches its first step counts as stalled, too.
  CHECK(value_in(dir, "dpt_last_step_timestamp_seconds") == begun);
  for (const char* absent : {"dpt_train_loss", "dpt_best", "dpt_exit_code", "dpt_evaluation"}) {
    CHECK(read_whole_file(dir.file("x.prom")).find(absent) == std::string::npos);
  }
  run.step(7, 0.5);
  CHECK(value_in(dir, "dpt_step") == "7");
  CHECK(value_in(dir, "dpt_epoch") == "1");
  CHECK(value_in(dir, "dpt_train_loss") == "0.5");
  CHECK(value_in(dir, "dpt_learning_rate") == "0.5");
  CHECK(value_in(dir, "dpt_images_per_second") == "400");
  run.step(8, 0.5, 0.5);
  CHECK(value_in(dir, "dpt_images_per_second") == "200");
  CHECK(std::stod(value_in(dir, "dpt_last_step_timestamp_seconds")) >= std::stod(begun));
  run.log.event("eval", {{"epoch", 1},
                         {"step", 7},
                         {"split", "val"},
                         {"n", 5},
                         {"unreadable", 1},
                         {"loss", 0.25},
                         {"accuracy", NAN},
                         {"per_class_f1_of", {{"cat", 1.0}}},
                         {"launches", "calls"}});
  CHECK(value_in(dir, "dpt_evaluation", R"(,split="val",metric="loss")") == "0.25");
  CHECK(value_in(dir, "dpt_evaluation", R"(,split="val",metric="accuracy")") == "NaN");
  for (const char* other : {"epoch", "step", "n", "unreadable", "launches", "per_class_f1_of"}) {
    CHECK(
        value_in(dir, "dpt_evaluation", fmt::format(R"(,split="val",metric="{}")", other)).empty());
  }
  run.state.best = 0.25;
  run.state.best_step = 7;
  run.state.best_monitor = "val/loss min";
  const std::string last_step = value_in(dir, "dpt_last_step_timestamp_seconds");
  run.log.progress({1, 7, 0, 0, 0, 0, &run.state});  // after the epoch
  CHECK(value_in(dir, "dpt_best", R"(,monitor="val/loss")") == "0.25");
  CHECK(value_in(dir, "dpt_best_step") == "7");
  CHECK(value_in(dir, "dpt_train_loss") == "0.5");
  CHECK(value_in(dir, "dpt_last_step_timestamp_seconds") == last_step);
  run.log.event("eval", {{"split", "test"}, {"loss", 0.125}});
  run.log.event("eval", {{"split", "val"}, {"loss", 0.0625}});
  CHECK(value_in(dir, "dpt_evaluation", R"(,split="val",metric="loss")") == "0.0625");
  CHECK(value_in(dir, "dpt_evaluation", R"(,split="val",metric="accuracy")").empty());
  CHECK(value_in(dir, "dpt_evaluation", R"(,split="test",metric="loss")") == "0.125");
  run.log.event("run_end", {{"status", "ok"}, {"exit_code", 0}});
  run.file.end(7);  // --require is judged after run_end
  CHECK(value_in(dir, "dpt_running") == "0");
  CHECK(value_in(dir, "dpt_status", R"(,status="running")") == "0");
  CHECK(value_in(dir, "dpt_status", R"(,status="ok")") == "1");
  CHECK(value_in(dir, "dpt_exit_code") == "7");
  CHECK(also_followed.front() == "run_start");
  CHECK(also_followed.back() == "run_end");
  CHECK(run.warnings.empty());
}

TEST_CASE("an end without run_end has the status of its exit code") {
  for (const auto& [exit_code, status] : {std::pair{143, "stopped"}, std::pair{3, "failed"}}) {
    const TempDir dir;
    Followed run(dir, std::chrono::milliseconds(0));
    run.log.event("run_start", {{"step", 0}});
    run.file.end(exit_code);
    CHECK(value_in(dir, "dpt_status", fmt::format(",status=\"{}\"", status)) == "1");
  }
}

TEST_CASE("between start and end, the file is replaced only once an interval") {
  const TempDir dir;
  Followed run(dir, std::chrono::hours(1));
  run.log.event("run_start", {{"step", 0}});
  run.step(1, 0.5, 0.5);
  run.step(2, 0.25, 1.5);
  run.log.event("eval", {{"split", "val"}, {"loss", 0.125}});
  CHECK(value_in(dir, "dpt_step") == "0");
  run.log.event("run_end", {{"status", "max_steps"}, {"exit_code", 0}});
  run.file.end(0);
  CHECK(value_in(dir, "dpt_step") == "2");
  CHECK(value_in(dir, "dpt_train_loss") == "0.25");
  CHECK(value_in(dir, "dpt_images_per_second") == "100");
  CHECK(value_in(dir, "dpt_evaluation", R"(,split="val",metric="loss")") == "0.125");
  CHECK(value_in(dir, "dpt_status", R"(,status="max_steps")") == "1");
}

TEST_CASE("a full disk and a removed folder cost updates, not the old file and not the run") {
  const TempDir dir;
  Followed run(dir, std::chrono::milliseconds(0));
  run.log.event("run_start", {{"step", 0}});
  rlimit usual{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &usual) == 0);
  const auto old_handler = ::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{100, usual.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
  run.step(1, 0.5);
  run.step(2, 0.5);
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &usual) == 0);
  ::signal(SIGXFSZ, old_handler);
  CHECK(value_in(dir, "dpt_step") == "0");
  CHECK_FALSE(fs::exists(dir.file("x.prom.tmp")));
  REQUIRE(run.warnings.size() == 1);
  check_contains(run.warnings[0], dir.file("x.prom") + ": cannot write (after 0 bytes): File too");
  check_contains(run.warnings[0], "; the run continues, but ");
  run.step(3, 0.5);
  CHECK(value_in(dir, "dpt_step") == "3");
  // There is only one warning.
  fs::rename(dir.path(), dir.path() + ".gone");
  run.step(4, 0.5);
  fs::rename(dir.path() + ".gone", dir.path());
  CHECK(value_in(dir, "dpt_step") == "3");
  run.step(5, 0.5);
  CHECK(value_in(dir, "dpt_step") == "5");
  CHECK(run.warnings.size() == 1);
}

TEST_CASE("a resumed run begins with the results that its checkpoint has") {
  RunState from;
  PrometheusState state = small_state();
  state.take_results(from);
  CHECK(prometheus_text(state).find("dpt_evaluation") == std::string::npos);
  from.val_loss = 0.5;
  from.val_accuracy = 0.75;
  from.val_metrics = {{"accuracy_top5", 1.0}};
  from.best = 0.75;
  from.best_monitor = "val/accuracy max";
  from.best_step = 9;
  state.take_results(from);
  const std::string text = prometheus_text(state);
  for (const char* line :
       {R"(,split="val",metric="loss"} 0.5)", R"(,split="val",metric="accuracy"} 0.75)",
        R"(,split="val",metric="accuracy_top5"} 1)", R"(,monitor="val/accuracy"} 0.75)"}) {
    check_contains(text, line);
  }
}

TEST_CASE("a file that cannot be written is known at the start") {
  const TempDir dir;
  CHECK(why_no_prometheus_file(dir.file("x.prom")).empty());
  check_contains(why_no_prometheus_file(dir.file("none/x.prom")),
                 dir.file("none") + ": expected an existing folder, found none");
  write_file_atomically(dir.file("file"), "");
  check_contains(why_no_prometheus_file(dir.file("file/x.prom")),
                 dir.file("file") + ": expected an existing folder, found a file");
  fs::create_directory(dir.file("folder.prom"));
  check_contains(why_no_prometheus_file(dir.file("folder.prom")),
                 "expected a file, found a folder");
  // An existing file is replaced if dpt wrote it or if it is empty; otherwise it stays.
  write_file_atomically(dir.file("own.prom"), prometheus_text(small_state()));
  CHECK(why_no_prometheus_file(dir.file("own.prom")).empty());
  write_file_atomically(dir.file("empty.prom"), "");
  CHECK(why_no_prometheus_file(dir.file("empty.prom")).empty());
  write_file_atomically(dir.file("other.prom"), "# HELP disk_errors By a cron job.\n");
  check_contains(why_no_prometheus_file(dir.file("other.prom")), "was not written by dpt");
}

TEST_CASE("a file is locked from before its first write on, and again after each") {
  const TempDir dir;
  const std::string path = dir.file("x.prom");
  const auto is_free = [&] {
    try {
      return lock_prometheus_file(path).is_open();
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::usage);
      check_contains(error.what(), path + " belongs to a run that is still training");
      return false;
    }
  };
  std::optional<FileHandle> held = lock_prometheus_file(path);
  CHECK_FALSE(is_free());
  {
    Followed run(dir, std::chrono::milliseconds(0));
    for (const int step : {1, 2}) {
      run.step(step, 0.5);
      held.reset();
      CHECK_FALSE(is_free());
    }
  }
  CHECK(is_free());
  CHECK_FALSE(lock_prometheus_file(dir.file("none/x.prom")).is_open());
}
