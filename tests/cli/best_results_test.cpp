// Results of a run whose best epoch is not its last: gates, lists and reports use the best epoch.
#include <doctest/doctest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "app/gate/conditions.h"
#include "tests/cli/report_page.h"
#include "tests/cli/tiny.h"

using namespace dpt::testing;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

/// A run whose first epoch is the best: the loss grows with the learning rate.
struct FirstIsBest : Tiny {
  FirstIsBest() { run_well(command()); }
  static std::vector<std::string> command() {
    return {"train", "small.yaml", "train.epochs=3", "checkpoint.keep_best.monitor=val/loss",
            "lr_schedule={type: exponential, gamma: 50}"};
  }
  std::string file(const std::string& name) const { return dir.file("runs/tiny/" + name); }
  json summary() const { return json::parse(read_file(file("summary.json"))); }
  void write_summary(const json& summary) const {
    write_file(file("summary.json"), summary.dump());
  }
  double best() const { return events(file("metrics.jsonl"), "eval")[0]["loss"]; }
  double last() const { return events(file("metrics.jsonl"), "eval")[2]["loss"]; }
  /// Returns the condition that the best epoch meets and the last one does not.
  std::string condition() const { return fmt::format("loss<={}", (best() + last()) / 2); }
  Finished train(const std::string& requirement) const {
    return run(command(), {"--require", requirement});
  }
  Finished eval(const std::string& requirement, const std::string& baseline) const {
    return run(
        {"eval", "runs/tiny", "--split", "val", "--require", requirement, "--baseline", baseline});
  }
};

}  // namespace

TEST_CASE("summary.json has the results of the best epoch and of the last") {
  const FirstIsBest w;
  json summary = w.summary(), best = summary["best_val"];
  REQUIRE(w.best() < w.last());
  CHECK(summary["val"]["loss"] == w.last());
  CHECK(best["loss"] == w.best());
  CHECK(best["accuracy"] == events(w.file("metrics.jsonl"), "eval")[0]["accuracy"]);
  CHECK(best["n"] == 8);
  CHECK(best["epoch"] == 1);
  CHECK(best["step"] == 5);
  CHECK(best["step"] == summary["best"]["step"]);
  // The best checkpoint gives the same result.
  const json eval = json::parse(w.run_well({"eval", "runs/tiny", "--split", "val", "--json"}).out);
  CHECK(eval["loss"] == best["loss"]);
  // A run that keeps no best has no best result. If the last epoch of a run is its best, both
  // results are equal.
  w.run_well({"train", "small.yaml", "--run-dir", "none", "data.val_split=0"});
  CHECK_FALSE(json::parse(read_file(w.dir.file("none/summary.json"))).contains("best_val"));
  w.run_well({"train", "small.yaml", "--run-dir", "one"});
  json one = json::parse(read_file(w.dir.file("one/summary.json")));
  CHECK(one["best_val"]["epoch"] == 1);
  one["best_val"].erase("epoch");
  one["best_val"].erase("step");
  CHECK(one["best_val"] == one["val"]);
}

TEST_CASE("the last line of a run names the best epoch, its file and the next commands") {
  const FirstIsBest w;
  const auto last_line = [&](const std::vector<std::string>& words) {
    const std::string err = w.run_well(words).err;
    REQUIRE(err.ends_with('\n'));
    const std::size_t begin = err.rfind('\n', err.size() - 2) + 1;
    return err.substr(begin);
  };
  std::vector<std::string> words = FirstIsBest::command();
  words.insert(words.end(), {"--run-dir", "own runs"});
  CHECK(last_line(words) ==
        fmt::format("best: epoch 1 of 3, val/loss {:.4f}, in own runs/best.safetensors; next: dpt "
                    "eval 'own runs', dpt report 'own runs'\n",
                    w.best()));
  CHECK(last_line({"train", "small.yaml", "--run-dir", "r", "data.val_split=0"}) ==
        "the weights are in r/checkpoints/step-00000006.safetensors; next: dpt eval r, dpt report "
        "r\n");
  // A run that will be resumed gets other advice.
  const Finished stopped =
      w.run_well({"train", "small.yaml", "--run-dir", "s", "--max-steps", "2"});
  check_contains(stopped.err, "stopped at step 2");
  CHECK_FALSE(contains(stopped.err, "next: "));
}

TEST_CASE("a gate on val judges the best epoch in train as in eval, last/val the last epoch") {
  const FirstIsBest w;
  const std::string condition = w.condition();
  CHECK(w.run({"eval", "runs/tiny", "--split", "val", "--require", "val/" + condition}).exit_code ==
        0);
  CHECK(w.train("val/" + condition).exit_code == 0);
  const Finished last = w.train("last/val/" + condition);
  CHECK(last.exit_code == 7);
  check_contains(last.err, fmt::format("--require last/val/{}: not met: the value is {:.6g}",
                                       condition, w.last()));
  // The gates judge in the same way when the run has just ended.
  std::vector<std::string> anew = FirstIsBest::command();
  anew.insert(anew.end(), {"--run-dir", "new", "--require", "val/" + condition});
  CHECK(w.run(anew).exit_code == 0);
  anew.back() = "last/" + anew.back();
  CHECK(w.run(anew).exit_code == 7);
  // An evaluation has no last epoch, and other splits have a single result.
  CHECK(w.run({"eval", "runs/tiny", "--split", "val", "--require", "last/val/loss>0"}).exit_code ==
        2);
  CHECK(w.train("last/test/loss>0").exit_code == 2);
  CHECK(dpt::parse_condition("last / val/loss > 0").split() == "val");
  CHECK(dpt::parse_condition("last/val/loss>0").name() == "last/val/loss");
}

TEST_CASE("a baseline of an earlier release has its best epoch in its log, or is refused") {
  const FirstIsBest w;
  const json whole = w.summary();
  json older = whole;
  older.erase("best_val");
  for (const json& summary : {whole, older}) {
    w.write_summary(summary);
    CHECK(w.eval("val/loss>=baseline", "runs/tiny").exit_code == 0);
    CHECK(w.eval("val/loss<=baseline", "runs/tiny/summary.json").exit_code == 0);
    CHECK(w.eval("val/loss>baseline", "runs/tiny").exit_code == 7);
    CHECK(w.train("val/" + w.condition()).exit_code == 0);
  }
  // Without the log of its run, the earlier release's summary is refused.
  write_file(w.dir.file("alone.json"), older.dump());
  const Finished refused = w.eval("val/loss>=baseline", "alone.json");
  CHECK(refused.exit_code == 3);
  check_contains(refused.err,
                 "--require val/loss>=baseline: --baseline alone.json: expected the validation "
                 "results of its best epoch, found none: ./metrics.jsonl has no 'eval' line of the "
                 "split val at step 5. Its summary.json is from an earlier release: ask for "
                 "last/val/loss (the last epoch), or train it again");
  CHECK(w.eval("val/loss>=0", "alone.json").exit_code == 0);
  write_file(w.dir.file("alone.json"), whole.dump());
  CHECK(w.eval("val/loss>=baseline", "alone.json").exit_code == 0);
  // The summary is also refused if the log is that of another run.
  json other = older;
  other["best"]["val/loss"] = 123;
  w.write_summary(other);
  check_contains(w.eval("val/loss>=baseline", "runs/tiny").err,
                 "is the log of another run: expected val/loss 123 at step 5 (the best of the "
                 "summary), found ");
  // `dpt train` fails, too, if the log of its run has no evaluations on val.
  w.write_summary(older);
  std::string log = read_file(w.file("metrics.jsonl"));
  for (std::size_t at = log.find("\"split\":\"val\""); at != std::string::npos;
       at = log.find("\"split\":\"val\"")) {
    log.replace(at, 13, "\"split\":\"gone\"");
  }
  write_file(w.file("metrics.jsonl"), log);
  CHECK(w.train("val/loss>=0").exit_code == 3);
  CHECK(w.train("last/val/loss>=0").exit_code == 0);
}

TEST_CASE("runs and compare list the results of the best epoch") {
  const FirstIsBest w;
  const auto check = [&] {
    const json results = json::parse(w.run_well({"runs", "--json"}).out)["runs"][0]["results"];
    CHECK(results["val/loss"] == w.best());
    CHECK(results["last/val/loss"] == w.last());
    CHECK_FALSE(results.contains("val/epoch"));
    const std::string table = w.run_well({"compare", "runs/tiny", "runs/tiny"}).out;
    check_contains(table, "  val/loss  ");
    check_contains(table, fmt::format("  {:.6g}  ", w.best()));
    CHECK_FALSE(contains(table, "last/val"));
    const std::string csv = w.run_well({"compare", "runs/tiny", "runs/tiny", "--csv"}).out;
    check_contains(csv, ",last/val/loss,");
    check_contains(csv, fmt::format(",{},", w.last()));
  };
  check();
  // Make the summary look as if an earlier release had written it.
  json summary = w.summary();
  summary.erase("best_val");
  w.write_summary(summary);
  check();
  // Remove the summary, as if the process had been killed or were still running.
  fs::remove(w.file("summary.json"));
  check();
  // Without evaluations in the log the best epoch is unknown.
  json line = events(w.file("metrics.jsonl"), "eval")[0];
  write_file(w.file("metrics.jsonl"), "{\"v\":1,\"event\":\"run_start\",\"step\":0}\n");
  const json runs = json::parse(w.run_well({"runs", "--json"}).out)["runs"][0];
  CHECK_FALSE(runs.contains("results"));
}

TEST_CASE("a report marks the best epoch and has the test there") {
  if (lacks_charts()) return;
  const FirstIsBest w;
  w.run_well({"report", "runs/tiny", "-o", "page.html"});
  const std::string page = read_file(w.dir.file("page.html"));
  const json test = points_of(page, "loss", 0, "test");
  REQUIRE(test.size() == 1);
  CHECK(test[0][0] == 5);
  CHECK(test[0][1] == 1);
  const json data = curve_data(page);
  int marked = 0;
  for (const auto& chart : data["charts"]) {
    for (const auto& series : chart["series"]) {
      CAPTURE(chart["title"].dump() + series["of"].dump());
      if (series["of"] == "test") {
        CHECK(series["best"].is_null());
        continue;
      }
      // Every step is logged, so the marked point is at the best step.
      CHECK(series["points"][series["best"].get<std::size_t>()][0] == 5);
      ++marked;
    }
  }
  CHECK(marked >= 5);
  const auto rows = cells_of(section(page, "runs"), "runs");
  const auto cell = [&](const std::string& name) {
    for (const auto& row : rows) {
      if (row[0] == name) return row[1];
    }
    return std::string("no such row");
  };
  CHECK(cell("val/loss") == fmt::format("{:.6g}", w.best()));
  CHECK(cell("last/val/loss") == fmt::format("{:.6g}", w.last()));
  CHECK(cell("best") == fmt::format("val/loss {:.6g} (epoch 1, step 5)", w.best()));
  check_contains(section(page, "runs"), "train and last/val are of the last epoch");
}

TEST_CASE("each test result of a run that was continued is at the best epoch of its process") {
  if (lacks_charts()) return;
  const Tiny w;
  w.run_well({"train", "small.yaml", "train.epochs=2"});
  w.run_well({"train", "small.yaml", "train.epochs=4"});
  w.run_well({"report", "runs/tiny", "-o", "page.html"});
  const std::string page = read_file(w.dir.file("page.html"));
  std::vector<json> expected;
  for (const json& end : events(w.dir.file("runs/tiny/metrics.jsonl"), "run_end")) {
    expected.push_back(end["best"]["step"]);
  }
  const json test = points_of(page, "accuracy", 0, "test");
  REQUIRE(test.size() == 2);
  REQUIRE(expected.size() == 2);
  for (std::size_t i = 0; i < 2; ++i) CHECK(test[i][0] == expected[i]);
}
