// log.prometheus: the values that a scrape finds during a run and after each way to end, and the
// settings that are refused at the start.
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/mount.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "engine/run/prometheus_file.h"
#include "tests/cli/tiny.h"
#include "tests/support/skip.h"

using namespace dpt::testing;
namespace fs = std::filesystem;

namespace {

/// Training longer than any test: a signal ends it.
constexpr const char* kEndless = "train.epochs=1000000";

/// Runs of the smallest network that write their metrics to prom/tiny.prom.
struct Watched : Tiny {
  TempDir logs;
  std::string folder = dir.file("prom"), path = folder + "/tiny.prom";
  Watched() { fs::create_directory(folder); }

  /// Returns the command of a run that logs only the first step.
  std::vector<std::string> command(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> words = {"train", "small.yaml", "log.prometheus=prom/tiny.prom",
                                      "log.every=1000000000"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  /// Returns the value of a metric whose labels after `run` and `folder` are `labels`; empty if
  /// there is none.
  std::string value(const std::string& name, const std::string& labels = {}) const {
    const std::string text = "\n" + read_file(path);
    const std::string begin = "\n" + name + "{run=\"tiny\",folder=\"";
    for (std::size_t at = 0; (at = text.find(begin, at)) != std::string::npos; ++at) {
      const std::string line = text.substr(at + 1, text.find('\n', at + 1) - at - 1);
      const std::string end = "\"" + labels + "} ";
      const std::size_t value = line.find(end);
      if (value != std::string::npos) return line.substr(value + end.size());
    }
    return {};
  }
  double number(const std::string& name) const {
    const std::string text = value(name);
    return text.empty() ? -1 : std::strtod(text.c_str(), nullptr);
  }
  void check_end(const std::string& status, int exit_code) const {
    CHECK(value("dpt_running") == "0");
    CHECK(value("dpt_status", ",status=\"" + status + "\"") == "1");
    CHECK(value("dpt_status", ",status=\"running\"") == "0");
    CHECK(value("dpt_exit_code") == std::to_string(exit_code));
    CHECK_FALSE(fs::exists(path + ".tmp"));
  }
};

}  // namespace

TEST_CASE("a scrape sees a run's progress, its stop by a signal, and the resumed run's end") {
  const Watched w;
  {
    Program program(w.command({kEndless}), w.dir.path(), w.logs);
    REQUIRE(wait_until([&] { return w.number("dpt_step") > 0; }));
    CHECK(w.value("dpt_running") == "1");
    CHECK(w.value("dpt_exit_code").empty());
    CHECK(w.value("dpt_steps") == "5000000");
    // The time of the last step advances even though the log gets no step lines.
    const double before = w.number("dpt_last_step_timestamp_seconds");
    CHECK(before >= w.number("dpt_start_timestamp_seconds"));
    REQUIRE(wait_until([&] { return w.number("dpt_last_step_timestamp_seconds") > before; }));
    CHECK(events(w.dir.file("runs/tiny/metrics.jsonl"), "step").size() == 1);
    CHECK(w.number("dpt_images_per_second") > 0);
    CHECK_FALSE(w.value("dpt_train_loss").empty());
    CHECK_FALSE(w.value("dpt_evaluation", ",split=\"val\",metric=\"accuracy\"").empty());
    CHECK_FALSE(w.value("dpt_best", ",monitor=\"val/accuracy\"").empty());
    program.send(SIGTERM);
    CHECK(program.wait().exit_code == 143);
  }
  w.check_end("stopped", 143);
  const double stopped_at = w.number("dpt_step"), epochs = w.number("dpt_epoch");
  // The run resumes although train.epochs and log.every differ.
  w.run_well({"train", "small.yaml", "train.epochs=" + std::to_string(int(epochs) + 2),
              "log.prometheus=prom/tiny.prom"});
  w.check_end("ok", 0);
  CHECK(w.number("dpt_step") > stopped_at);
  CHECK(w.number("dpt_step") == w.number("dpt_steps"));
  CHECK(w.number("dpt_epoch") == w.number("dpt_epochs"));
  const auto test = events(w.dir.file("runs/tiny/metrics.jsonl"), "eval").back();
  REQUIRE(test["split"] == "test");
  CHECK(w.value("dpt_evaluation", ",split=\"test\",metric=\"loss\"") == test["loss"].dump());
  const auto end = events(w.dir.file("runs/tiny/metrics.jsonl"), "run_end").back();
  CHECK(std::stod(w.value("dpt_best", ",monitor=\"val/accuracy\"")) == end["best"]["val/accuracy"]);
}

TEST_CASE("the exit code of a failed run, of requirements and of --max-steps") {
  const Watched w;
  CHECK(w.run(w.command({"optimizer.lr=1e38", "train.epochs=9"})).exit_code == 5);
  w.check_end("failed", 5);
  CHECK(w.run(w.command({"--overwrite", "--require", "test/loss<0"})).exit_code == 7);
  w.check_end("ok", 7);
  w.run_well(w.command({"--overwrite", "--max-steps", "3"}));
  w.check_end("max_steps", 0);
  CHECK(w.value("dpt_step") == "3");
}

TEST_CASE(
    "a second run with the file of a live one is refused; the file of a dead one is taken over") {
  const Watched w;
  const std::vector<std::string> second = w.command({"--run-dir", "other"});
  {
    Program program(w.command({kEndless}), w.dir.path(), w.logs);
    REQUIRE(wait_until([&] { return w.number("dpt_step") > 0; }));
    const Finished refused = w.run(second);
    CHECK(refused.exit_code == 2);
    check_contains(
        refused.err,
        "prom/tiny.prom belongs to a run that is still training (run=\"tiny\",folder=\"");
    check_contains(refused.err, "/runs/tiny\"): name another file, or wait until that run ends");
    CHECK_FALSE(fs::exists(w.dir.file("other")));
    CHECK(program.is_running());
    program.send(SIGKILL);
    program.wait();
  }
  CHECK(w.value("dpt_running") == "1");
  w.run_well(second);
  w.check_end("ok", 0);
  check_contains(read_file(w.path), "/other\"");
}

TEST_CASE("a removed folder costs a warning, and the file comes back with the folder") {
  const Watched w;
  Program program(w.command({kEndless}), w.dir.path(), w.logs);
  REQUIRE(wait_until([&] { return w.number("dpt_step") > 0; }));
  fs::rename(w.folder, w.folder + ".gone");
  REQUIRE(
      wait_until([&] { return program.messages().find("log.prometheus") != std::string::npos; }));
  fs::create_directory(w.folder);
  REQUIRE(wait_until([&] { return fs::exists(w.path); }));
  program.send(SIGTERM);
  const Finished stopped = program.wait();
  CHECK(stopped.exit_code == 143);
  w.check_end("stopped", 143);
  const std::string text = "No such file or directory";
  const std::size_t first = stopped.err.find(text);
  CHECK(first != std::string::npos);
  CHECK(stopped.err.find(text, first + 1) == std::string::npos);
}

TEST_CASE("a full disk costs a warning, and the run ends well") {
  const Watched w;
  if (mount("tmpfs", w.folder.c_str(), "tmpfs", 0, "size=16k") != 0) {
    return skip_test(std::string("cannot mount a small tmpfs here: ") + std::strerror(errno));
  }
  write_file(w.folder + "/filler", std::string(1 << 20, 'x'));
  const Finished full = w.run(w.command());
  fs::remove(w.folder + "/filler");
  CHECK(umount(w.folder.c_str()) == 0);
  INFO(full.err);
  CHECK(full.exit_code == 0);
  check_contains(full.err, "No space left on device");
  check_contains(full.err, "Prometheus does not see its progress (log.prometheus)");
}

TEST_CASE("a file that cannot be written is an error with line and column, before anything runs") {
  const Watched w;
  const auto check = [&](const std::string& value, const std::string& text) {
    write_file(w.dir.file("bad.yaml"), std::string(kTinyConfig) + "\n");
    std::string config = kTinyConfig;
    const std::string log = "log: {every: 1}";
    config.replace(config.find(log), log.size(), "log: {prometheus: " + value + "}");
    write_file(w.dir.file("bad.yaml"), config);
    for (const std::vector<std::string>& words :
         {std::vector<std::string>{"train", "bad.yaml"},
          std::vector<std::string>{"train", "bad.yaml", "--dry-run"},
          std::vector<std::string>{"config", "check", "bad.yaml"}}) {
      CAPTURE(words.back());
      const Finished refused = w.run(words);
      CHECK(refused.exit_code == 2);
      check_contains(refused.err, "bad.yaml:9:19: log.prometheus: ");
      check_contains(refused.err, text);
    }
    const Finished refused = w.run({"train", "small.yaml", "log.prometheus=" + value});
    CHECK(refused.exit_code == 2);
    check_contains(refused.err, "command line: log.prometheus: ");
    check_contains(refused.err, text);
    CHECK_FALSE(fs::exists(w.dir.file("runs")));
  };
  check("none/tiny.prom", "none: expected an existing folder, found none: create it first");
  check("prom/tiny.txt", "expected a file that ends in .prom, found '");
  write_file(w.folder + "/other.prom", "disk_errors 1\n");
  check("prom/other.prom", "the file exists and was not written by dpt");
  CHECK(read_file(w.folder + "/other.prom") == "disk_errors 1\n");
  // A config's folder may have a name that is not UTF-8, but the path to this file is stored as
  // text.
  check_contains(dpt::why_no_prometheus_file("\xff/tiny.prom"), "expected a path in UTF-8");
  // A smoke test does not touch the files of a run.
  w.run_well({"train", "small.yaml", "log.prometheus=prom/tiny.prom", "--smoke"});
  CHECK_FALSE(fs::exists(w.path));
}

TEST_CASE("a file in the run folder is the run's own") {
  const Tiny w;
  w.run_well({"train", "small.yaml"});
  const std::vector<std::string> words = {"train", "small.yaml", "--overwrite",
                                          "log.prometheus=runs/tiny/run.prom"};
  w.run_well(words);
  w.run_well(words);
  check_contains(read_file(w.dir.file("runs/tiny/run.prom")), "dpt_running{run=\"tiny\"");
}
