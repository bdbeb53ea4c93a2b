// Baselines that --baseline accepts and refuses.
#include <doctest/doctest.h>

#include <filesystem>

#include "tests/app/gate/gates.h"

using namespace dpt::testing;
using dpt::Json;
namespace fs = std::filesystem;

TEST_CASE("a baseline is a run folder, its summary or the output of an evaluation") {
  const Gates w;
  const std::string summary = "runs/tiny/summary.json";
  write_file(w.dir.file("eval.json"), w.run_well({"eval", "runs/tiny", "--json"}).out);
  // The same config gives the same result, to the bit.
  for (const std::string& baseline :
       {std::string("runs/tiny"), summary, std::string("eval.json")}) {
    CAPTURE(baseline);
    CHECK(w.eval({"--baseline", baseline, "--require", "test/loss<=baseline"}).exit_code == 0);
    CHECK(w.eval({"--baseline", baseline, "--require", "test/loss<baseline"}).exit_code == 7);
    CHECK(w.eval({"--baseline", baseline, "--require", "test/loss<=baseline-1e-6"}).exit_code == 7);
    CHECK(w.eval({"--baseline", baseline, "--require", "test/loss<=baseline*1.01"}).exit_code == 0);
  }
  const Finished trained =
      w.train({"--baseline", "runs/tiny", "--require", "test/loss<=baseline", "--require",
               "val/accuracy>=baseline-0.001", "--require", "test/loss<baseline*0.5"});
  CHECK(trained.exit_code == 7);
  check_contains(
      trained.err,
      fmt::format("dpt: error: --require test/loss<baseline*0.5: not met: the value is "
                  "{0:.6g}; expected < {1:.6g}, because the value of the baseline runs/tiny is "
                  "{0:.6g}\n",
                  w.loss(), w.loss() / 2));
}

TEST_CASE("a file that cannot be a baseline is refused, and the message says what to do") {
  const Gates w;
  const auto refusal = [&](const std::string& baseline, int code) {
    const Finished finished = w.train({"--baseline", baseline, "--require", "test/loss<=baseline"});
    CHECK(finished.exit_code == code);
    // The baseline is refused before the run begins.
    CHECK_FALSE(fs::exists(w.dir.file("new")));
    return finished.err;
  };
  check_contains(refusal("nowhere", 3),
                 "--baseline nowhere: no such file: expected a run folder, its summary.json");
  fs::create_directory(w.dir.file("empty"));
  check_contains(refusal("empty", 3),
                 "--baseline empty: expected a run folder, found no config.yaml in it");
  check_contains(refusal("small.yaml", 3),
                 "or the output of dpt eval --json; found text that is not JSON");
  write_file(w.dir.file("list.json"), "[1]");
  check_contains(refusal("list.json", 3), "found JSON that is not an object");
  write_file(w.dir.file("other.json"), "{\"loss\":1}");
  check_contains(refusal("other.json", 3), "found an object without 'status' or 'split'");
  // A run that was stopped has a summary, and one that was killed has none.
  CHECK(w.run({"train", "small.yaml", "--run-dir", "part", "--max-time", "0s"}).exit_code == 75);
  const std::string advice =
      "let it finish (run the same dpt train command again), or name another run";
  check_contains(
      refusal("part", 3),
      "--baseline part: expected a completed run, found one that was stopped: " + advice);
  check_contains(refusal("part/summary.json", 3), "found one that was stopped: " + advice);
  fs::remove(w.dir.file("part/summary.json"));
  check_contains(refusal("part", 3), "found one that was stopped: " + advice);
  // A run that ended as --max-steps requested is accepted.
  w.run_well({"train", "small.yaml", "--run-dir", "limited", "train.epochs=2", "--max-steps", "7"});
  CHECK(w.train({"--baseline", "limited", "--require", "val/loss<=baseline+9"}).exit_code == 0);
  fs::remove_all(w.dir.file("new"));
  // Missing values are reported before the run.
  check_contains(refusal("limited", 7),
                 "--require test/loss<=baseline: the baseline limited has no test result");
  Json summary = w.summary();
  summary["test"]["loss"] = nullptr;
  write_file(w.dir.file("nan.json"), summary.dump());
  check_contains(refusal("nan.json", 7),
                 "not met: the value of the baseline nan.json is not finite");
  CHECK(w.train({"--baseline", "nan.json", "--require", "test/loss<=baseline", "--require",
                 "val/loss<9", "--verdict", "v.md"})
            .exit_code == 7);
  check_contains(w.text("v.md"), "# dpt train: 1 of 2 requirements not met\n");
  check_contains(w.text("v.md"),
                 "| test/loss | \\<= baseline | - | - | **no**: not met: the value of ");
  check_contains(w.text("v.md"), "| val/loss | \\< 9 | - | - | not checked |\n\nNothing was run: ");
  summary["test"].erase("loss");
  write_file(w.dir.file("none.json"), summary.dump());
  check_contains(refusal("none.json", 7), "the baseline none.json has no test/loss");
  // A numeric bound needs no value from the baseline.
  CHECK(w.train({"--baseline", "none.json", "--require", "test/loss<=100"}).exit_code == 0);
  check_contains(w.train({"--require", "test/loss<=baseline"}).err, "name one with --baseline");
  CHECK(w.train({"--require", "test/loss<=baseline"}).exit_code == 2);
  CHECK(w.train({"--baseline", "runs/tiny"}).exit_code == 2);
}

TEST_CASE("a baseline whose value is not a number is refused with its place") {
  const Gates w;
  const auto refusal = [&](const Json& baseline, const std::string& requirement) {
    write_file(w.dir.file("bad.json"), baseline.dump());
    const Finished finished =
        w.train({"--baseline", "bad.json", "--require", requirement, "--verdict", "v.md"});
    CHECK(finished.exit_code == 3);
    // The baseline is refused before the run begins.
    CHECK_FALSE(fs::exists(w.dir.file("new")));
    check_contains(w.text("v.md"), "# dpt train: failed, requirements not checked\n");
    return finished.err;
  };
  Json summary = w.summary();
  summary["test"]["loss"] = "0.25";
  CHECK(refusal(summary, "test/loss<=baseline") ==
        "dpt: error: --baseline bad.json: expected a number for test/loss in bad.json, found "
        "\"0.25\": name another baseline\n");
  // A numeric bound does not need the value, but the verdict's table would show it.
  check_contains(refusal(summary, "test/loss<=100"), "test/loss in bad.json, found \"0.25\"");
  CHECK(w.train({"--baseline", "bad.json", "--require", "val/loss<=baseline+9"}).exit_code == 0);
  fs::remove_all(w.dir.file("new"));
  // The results of the best epoch have a separate name.
  summary["best_val"]["loss"] = true;
  check_contains(refusal(summary, "val/loss<=baseline"),
                 "best_val/loss in bad.json, found true: name");
  summary["val"]["loss"] = {1, 2};
  check_contains(refusal(summary, "last/val/loss<=baseline"),
                 "for val/loss in bad.json, found an array: name");
  summary["test"] = "good";
  check_contains(refusal(summary, "test/loss<=baseline"), "test/loss in bad.json, found \"good\"");
  // A run folder and the output of an evaluation are checked in the same way.
  write_file(w.dir.file("runs/tiny/summary.json"), summary.dump());
  check_contains(w.eval({"--baseline", "runs/tiny", "--require", "test/loss<=baseline"}).err,
                 "test/loss in runs/tiny/summary.json, found \"good\": name");
  check_contains(refusal({{"split", "test"}, {"loss", "low"}}, "test/loss<=baseline"),
                 "test/loss in bad.json, found \"low\": name");
}

TEST_CASE("a baseline that still trains is refused") {
  const Workplace w;
  const TempDir logs;
  Program program({"train", "small.yaml", "--run-dir", "r", "train.epochs=100000"}, w.dir.path(),
                  logs);
  REQUIRE(wait_for_checkpoint(w.dir.file("r")));
  const Finished finished =
      w.run({"train", "small.yaml", "--baseline", "r", "--require", "test/loss<=baseline"});
  CHECK(finished.exit_code == 3);
  check_contains(finished.err, "found one that is still running: wait until it ends");
}

TEST_CASE("a baseline with another number of samples is reported") {
  const Gates w;
  const Finished finished =
      w.run({"train", "small.yaml", "--run-dir", "new", "data.test_size=9", "--baseline",
             "runs/tiny", "--require", "test/loss<=baseline+9"});
  CHECK(finished.exit_code == 0);
  check_contains(
      finished.err,
      "dpt: warning: --baseline runs/tiny: its test results are of 6 samples, but those of "
      "this run are of 9\n");
}
