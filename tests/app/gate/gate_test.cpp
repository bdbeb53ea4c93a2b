// The gate of dpt train and dpt eval: the moment at which it judges, its report, and the files that
// it may replace.
#include <doctest/doctest.h>

#include <filesystem>

#include "tests/app/gate/gates.h"

using namespace dpt::testing;
namespace fs = std::filesystem;

TEST_CASE("a split without samples gives exit code 3, in eval too") {
  const Tiny w;
  w.run_well({"train", "small.yaml", "--run-dir", "a", "data.test_size=0"});
  const Finished test = w.run({"eval", "a", "--require", "test/loss<=1"});
  CHECK(test.exit_code == 3);
  check_contains(test.err, "the test split is empty: ");
  CHECK(w.run({"eval", "a", "--split", "test", "--require", "test/loss<=1"}).exit_code == 3);
  CHECK(w.run({"eval", "a", "--require", "val/loss<=100"}).exit_code == 0);
  // A condition on a split that is not evaluated is an error.
  CHECK(w.run({"eval", "a", "--split", "val", "--require", "test/loss<=1"}).exit_code == 2);
  CHECK(w.run({"eval", "a", "--require", "train/loss<=1"}).exit_code == 2);
}

TEST_CASE("all requirements that are not met are reported") {
  const Gates w;
  const std::vector<std::string> asked = {"--require",     "test/accuracy>=2", "--require",
                                          "test/loss<100", "--require",        "test/loss<0"};
  for (const Finished& finished : {w.train(asked), w.eval(asked)}) {
    CHECK(finished.exit_code == 7);
    check_contains(finished.err, "--require test/accuracy>=2: not met: the value is ");
    check_contains(finished.err, "\n--require test/loss<0: not met: the value is ");
    CHECK(finished.err.find("test/loss<100") == std::string::npos);
    check_contains(finished.err, fmt::format("dpt: met: test/loss {:.6g} < 100\n", w.loss()));
  }
}

TEST_CASE("requirements that are met are reported, with the baseline's value") {
  const Gates w;
  const Finished finished = w.eval({"--require", "test/accuracy >= 0", "--require",
                                    "test/loss<=baseline+1", "--baseline", "runs/tiny"});
  CHECK(finished.exit_code == 0);
  CHECK(finished.err == fmt::format("dpt: met: test/accuracy {:.6g} >= 0\ndpt: met: test/loss "
                                    "{:.6g} <= {:.6g} (the baseline runs/tiny: {:.6g})\n",
                                    w.summary()["test"]["accuracy"].get<double>(), w.loss(),
                                    w.loss() + 1, w.loss()));
  // A value is printed with all digits if six do not distinguish it from the bound.
  const std::string bound = fmt::format("{}", w.loss() * (1 + 1e-9));
  check_contains(w.eval({"--require", "test/loss<=" + bound}).err,
                 fmt::format("met: test/loss {} <= {}\n", w.loss(), bound));
}

TEST_CASE("verdict files are checked before the run, and replace no other files") {
  const Gates w;
  const auto refusal = [&](const std::vector<std::string>& files, int code) {
    std::vector<std::string> words = {"--require", "test/loss<100"};
    words.insert(words.end(), files.begin(), files.end());
    const Finished finished = w.train(words);
    CHECK(finished.exit_code == code);
    CHECK_FALSE(fs::exists(w.dir.file("new")));
    return finished.err;
  };
  const std::string config = w.text("small.yaml");
  check_contains(refusal({"--verdict", "small.yaml"}, 2),
                 "--verdict small.yaml: the file exists but is not an earlier verdict");
  CHECK(w.text("small.yaml") == config);
  check_contains(refusal({"--junit", "small.yaml/out/verdict.xml"}, 2),
                 "small.yaml: expected a folder, found a file");
  check_contains(refusal({"--junit", "runs"}, 2), "expected a file to write, found a folder");
  check_contains(refusal({"--junit", "a", "--verdict", "a"}, 2),
                 "expected two files, found a twice");
  CHECK(w.train({"--verdict", "a.md"}).exit_code == 2);
  // A dry run writes no files.
  write_file(w.dir.file("old.md"), "# dpt train: old");
  CHECK(w.train({"--require", "test/loss<100", "--verdict", "old.md", "--dry-run"}).exit_code == 0);
  CHECK(w.text("old.md") == "# dpt train: old");
  // If a file cannot be written at the end, the command fails, unless an earlier failure takes
  // precedence.
  CHECK(w.eval({"--require", "test/loss<100", "--verdict", "/dev/full"}).exit_code == 3);
  const Finished both = w.eval({"--require", "test/loss<0", "--verdict", "/dev/full"});
  CHECK(both.exit_code == 7);
  check_contains(both.err, "dpt: warning: /dev/full: cannot write: ");
}

TEST_CASE("the verdict of a process that is killed is not that of an earlier one") {
  const Workplace w;
  const TempDir logs;
  write_file(w.dir.file("v.md"), "# dpt train: all requirements met\n");
  Program program({"train", "small.yaml", "--run-dir", "r", "train.epochs=100000", "--require",
                   "test/loss<9", "--verdict", "v.md"},
                  w.dir.path(), logs);
  REQUIRE(wait_for_checkpoint(w.dir.file("r")));
  program.send(SIGKILL);
  program.wait();
  CHECK(read_file(w.dir.file("v.md")).empty());
}
