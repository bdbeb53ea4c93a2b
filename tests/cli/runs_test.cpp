// dpt runs and dpt compare: their reports on runs in any state, without changes to the runs.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "app/runs/run_groups.h"
#include "tests/cli/tiny.h"

using namespace dpt::testing;
namespace fs = std::filesystem;

namespace {

nlohmann::json json_out(const Tiny& w, const std::vector<std::string>& words) {
  return nlohmann::json::parse(w.run_well(words, {"--json"}).out);
}

}  // namespace

TEST_CASE("runs lists the runs of a folder, whatever became of them") {
  const Tiny w;
  w.run_well({"train", "small.yaml"});
  w.run_well(
      {"train", "small.yaml", "--run-dir", "runs/sweep/two", "train.epochs=3", "--max-steps", "7"});
  // A process that was killed leaves no run_end and no summary.
  w.run_well({"train", "small.yaml", "--run-dir", "runs/killed"});
  fs::remove(w.dir.file("runs/killed/summary.json"));
  const std::string log = w.dir.file("runs/killed/metrics.jsonl");
  std::string text = read_file(log);
  write_file(log, text.substr(0, text.find("{\"v\":1,\"event\":\"run_end\"")) +
                      R"({"v":1,"event":"step","epoch":2,"step":9,"loss":1}
{"v":1,"event":"step","epoch":2,"step":1)");
  fs::create_directories(w.dir.file("runs/notes"));
  // Neither a folder of checkpoints nor one with a config is a run.
  fs::create_directories(w.dir.file("runs/engine/checkpoints"));
  write_file(w.dir.file("runs/engine/checkpoints/notes.txt"), "notes");
  fs::create_directories(w.dir.file("runs/project"));
  write_file(w.dir.file("runs/project/config.yaml"), "name: other\n");

  auto runs = json_out(w, {"runs"})["runs"];
  REQUIRE(runs.size() == 3);
  CHECK(runs[0]["folder"] == "runs/killed");
  CHECK(runs[0]["status"] == "interrupted");
  CHECK(runs[0]["steps"] == 9);
  CHECK(runs[0]["best"]["step"] == 5);
  CHECK(runs[1]["folder"] == "runs/sweep/two");
  CHECK(runs[1]["status"] == "max_steps");
  CHECK(runs[1]["steps"] == 7);
  CHECK(runs[2]["folder"] == "runs/tiny");
  CHECK(runs[2]["status"] == "ok");
  auto summary = nlohmann::json::parse(read_file(w.dir.file("runs/tiny/summary.json")));
  CHECK(runs[2]["best"] == summary["best"]);
  // The best of the killed run comes from its best checkpoint.
  CHECK(runs[0]["best"] == summary["best"]);
  CHECK(runs[2]["results"]["test/accuracy"] == summary["test"]["accuracy"]);
  CHECK(runs[0]["results"]["test/loss"] == summary["test"]["loss"]);
  CHECK(runs[0]["results"] == runs[2]["results"]);
  CHECK(runs[2]["changed"].get<std::string>().size() == 20);

  const std::string table = w.run_well({"runs"}).out;
  check_contains(table, "run             status       changed");
  check_contains(table, "\nruns/sweep/two  max_steps    20");
  check_contains(table, "val/accuracy ");
  CHECK(w.run_well({"runs", "runs/tiny"}).out.find("runs/killed") == std::string::npos);
  // An empty folder gives a heading; a missing one is an error.
  CHECK(json_out(w, {"runs", "runs/notes"})["runs"].empty());
  const Finished none = w.run({"runs", "nowhere"});
  CHECK(none.exit_code == 3);
  check_contains(none.err, "nowhere: no such folder");
}

TEST_CASE("runs lists a run once, whatever links lead to it, and calls divergence by its name") {
  const Tiny w;
  w.run_well({"train", "small.yaml", "--run-dir", "runs/a"});
  CHECK(w.run({"train", "small.yaml", "--run-dir", "runs/b", "optimizer.lr=1e38"}).exit_code == 5);
  fs::create_directory_symlink("b", w.dir.file("runs/b0"));
  fs::create_directory_symlink("a", w.dir.file("runs/0"));
  fs::create_directory_symlink(".", w.dir.file("runs/again"));
  fs::create_directory_symlink("nowhere", w.dir.file("runs/gone"));
  // A run stored elsewhere is found through its link.
  w.run_well({"train", "small.yaml", "--run-dir", "elsewhere/c"});
  fs::create_directory_symlink(w.dir.file("elsewhere/c"), w.dir.file("runs/c"));
  // A run that is too deep for the search is found through a link, too.
  w.run_well({"train", "small.yaml", "--run-dir", "runs/1/2/3/d"});
  fs::create_directory_symlink("1/2/3", w.dir.file("runs/d"));
  const auto runs = json_out(w, {"runs"})["runs"];
  REQUIRE(runs.size() == 4);
  CHECK(runs[0]["folder"] == "runs/a");
  CHECK(runs[3]["folder"] == "runs/d/d");
  CHECK(runs[1]["folder"] == "runs/b");
  CHECK(runs[1]["status"] == "diverged");
  CHECK(runs[2]["folder"] == "runs/c");
}

TEST_CASE("runs: a log that lacks its last lines does not hide how the run ended") {
  const Tiny w;
  w.run_well({"train", "small.yaml", "--max-steps", "3"});
  const std::string log = w.dir.file("runs/tiny/metrics.jsonl");
  const std::string before = read_file(log);
  w.run_well({"train", "small.yaml"});
  write_file(log, before);
  const auto runs = json_out(w, {"runs"})["runs"];
  CHECK(runs[0]["status"] == "ok");
}

TEST_CASE("a run whose summary cannot be read hides no other run") {
  const Tiny w;
  w.run_well({"train", "small.yaml", "--run-dir", "runs/a"});
  w.run_well({"train", "small.yaml", "--run-dir", "runs/b"});
  fs::remove(w.dir.file("runs/a/summary.json"));
  fs::create_directory(w.dir.file("runs/a/summary.json"));
  const Finished listed = w.run_well({"runs", "runs"});
  check_contains(listed.out, "runs/a");
  check_contains(listed.out, "runs/b");
  CHECK(w.run({"report", "runs/a"}).exit_code != 1);
}

TEST_CASE("compare has numbers in one order, whichever run has them first") {
  const Tiny w;
  w.run_well({"train", "small.yaml", "--run-dir", "a", "data.val_split=0"});
  w.run_well({"train", "small.yaml", "--run-dir", "b"});
  const auto check_order = [&](const std::string& option, const std::vector<std::string>& names) {
    std::vector<std::string> command = {"compare", "a", "b"};
    if (!option.empty()) command.push_back(option);
    const std::string text = w.run_well(command).out;
    const std::string heading = text.substr(0, text.find('\n'));
    std::size_t at = 0;
    for (const std::string& name : names) {
      CAPTURE(name);
      const std::size_t found = heading.find(name);
      CHECK(found != std::string::npos);
      CHECK(found > at);
      at = found;
    }
  };
  check_order("",
              {" data.val_split", " status", " best val/", " val/loss", " test/loss", " steps"});
  check_order("--csv", {",data.val_split,", ",best val/", ",train/loss,", ",val/loss,",
                        ",last/val/loss,", ",test/loss,", ",steps"});
}

TEST_CASE("a run that still trains is called running") {
  const Workplace w;
  const TempDir logs;
  Program program({"train", "small.yaml", "--run-dir", "runs/r", "train.epochs=100000"},
                  w.dir.path(), logs);
  REQUIRE(wait_for_checkpoint(w.dir.file("runs/r")));
  auto run = nlohmann::json::parse(w.run_well({"runs", "--json"}).out)["runs"][0];
  CHECK(run["status"] == "running");
  CHECK(run["steps"].get<int>() >= 1);
  program.send(SIGKILL);
  program.wait();
  check_contains(w.run_well({"runs"}).out, "interrupted");
  // The commands leave the run unchanged: it can be resumed.
  w.run_well(
      {"train", "small.yaml", "--run-dir", "runs/r", "train.epochs=100000", "--max-steps", "1"});
}

TEST_CASE("compare shows where configs differ, and the spread over seeds") {
  const Tiny w;
  for (const char* seed : {"1", "2", "3"}) {
    w.run_well({"train", "small.yaml", "--run-dir", std::string("s") + seed,
                std::string("seed=") + seed, std::string("name=run") + seed});
  }
  w.run_well({"train", "small.yaml", "--run-dir", "other", "optimizer.lr=0.5"});
  auto out = json_out(w, {"compare", "s1", "s2/", "s3", "other"});
  REQUIRE(out["runs"].size() == 4);
  auto& differences = out["differences"];
  CHECK(differences["seed"] == nlohmann::json({"1", "2", "3", "1"}));
  CHECK(differences["optimizer.lr"] == nlohmann::json({"0.1", "0.1", "0.1", "0.5"}));
  CHECK(differences["name"] == nlohmann::json({"run1", "run2", "run3", "tiny"}));
  CHECK(differences.size() == 3);
  REQUIRE(out["groups"].size() == 1);
  auto& group = out["groups"][0];
  CHECK(group["runs"] == nlohmann::json({"s1", "s2", "s3"}));
  CHECK(group["over"] == nlohmann::json::array({"seed"}));
  double mean = 0, squares = 0;
  std::vector<double> losses;
  for (int i = 0; i < 3; ++i) {
    losses.push_back(out["runs"][i]["results"]["test/loss"]);
    mean += losses.back() / 3;
  }
  for (const double loss : losses) squares += (loss - mean) * (loss - mean);
  CHECK(group["results"]["test/loss"]["mean"].get<double>() == doctest::Approx(mean));
  CHECK(group["results"]["test/loss"]["std"].get<double>() ==
        doctest::Approx(std::sqrt(squares / 2)));
  CHECK(squares > 0);

  const std::string text = w.run_well({"compare", "s1", "s2", "other"}).out;
  check_contains(text, "  optimizer.lr  ");
  check_contains(text, "\n2 runs that differ only in the seed: s1, s2\n");
  check_contains(text, "standard deviation\n");
  // A stopped run does not contribute to the results, and a seed counts once.
  w.run_well({"train", "small.yaml", "--run-dir", "s4", "seed=4", "--max-steps", "2"});
  w.run_well({"train", "small.yaml", "--run-dir", "again", "seed=2"});
  CHECK(json_out(w, {"compare", "s1", "s2", "s4", "again"})["groups"][0]["runs"] ==
        nlohmann::json({"s1", "s2"}));
  CHECK(json_out(w, {"compare", "s1", "s4"})["groups"].empty());
  // Layers that exist in only one of the runs are reported.
  w.run_well(
      {"train", "small.yaml", "--run-dir", "deep",
       "model.layers=[{type: Flatten}, {type: Linear, name: hidden, out_features: 4}, {type: "
       "Linear, name: fc, out_features: 3}]"});
  auto deep = json_out(w, {"compare", "s1", "deep"})["differences"];
  CHECK(deep["model.layers.hidden.out_features"] == nlohmann::json({nullptr, "4"}));
  CHECK(json_out(w, {"compare", "s1", "deep"})["groups"].empty());

  CHECK(w.run({"compare", "s1"}).exit_code == 2);
  const Finished none = w.run({"compare", "s1", "nowhere"});
  CHECK(none.exit_code == 3);
  check_contains(none.err, "nowhere: expected a run folder, found no config.yaml in it");
}

TEST_CASE("compare prints a row for each run, sorted on request, and CSV with all digits") {
  const Tiny w;
  for (const char* lr : {"0.1", "0.01", "0.5"}) {
    w.run_well({"train", "small.yaml", "--run-dir", std::string("lr") + lr, "train.epochs=2",
                std::string("optimizer.lr=") + lr});
  }
  const std::vector<std::string> compare = {"compare", "lr0.1", "lr0.01", "lr0.5"};
  const auto rows_of = [&](const std::vector<std::string>& more) {
    std::istringstream lines(w.run_well(compare, more).out);
    std::vector<std::string> rows;
    for (std::string line; std::getline(lines, line);) rows.push_back(line);
    return rows;
  };
  std::vector<std::string> rows = rows_of({});
  REQUIRE(rows.size() == 4);
  CHECK(rows[0].starts_with("run     optimizer.lr  status  best val/accuracy  val/loss  "));
  CHECK(rows[1].starts_with("lr0.1   0.1           ok  "));
  CHECK(rows[3].starts_with("lr0.5   0.5           ok  "));
  rows = rows_of({"--sort", "optimizer.lr"});
  CHECK(rows[1].starts_with("lr0.01 "));
  CHECK(rows[3].starts_with("lr0.5 "));
  // The best comes first: the smallest loss, or the largest accuracy.
  const auto runs = json_out(w, compare)["runs"];
  const auto check_sorted = [&](const std::string& name, bool rises) {
    std::vector<std::string> words = compare;
    words.insert(words.end(), {"--sort", name});
    const auto sorted = json_out(w, words)["runs"];
    REQUIRE(sorted.size() == 3);
    for (std::size_t i = 1; i < 3; ++i) {
      const double before = sorted[i - 1]["results"][name], after = sorted[i]["results"][name];
      CHECK((rises ? before <= after : before >= after));
    }
  };
  check_sorted("test/loss", true);
  check_sorted("test/accuracy", false);
  check_sorted("last/val/accuracy", false);
  CHECK(json_out(w, {"compare", "lr0.1", "lr0.01", "lr0.5", "--sort",
                     "run"})["runs"][0]["folder"] == "lr0.01");
  const Finished typo = w.run(compare, {"--sort", "test/acuracy"});
  CHECK(typo.exit_code == 2);
  check_contains(typo.err,
                 "--sort: expected run, status, changed, best, a result such as test/accuracy");
  check_contains(typo.err, "found 'test/acuracy'; did you mean 'test/accuracy'?");

  rows = rows_of({"--csv", "--sort", "run"});
  REQUIRE(rows.size() == 4);
  CHECK(rows[0].starts_with("run,status,optimizer.lr,best val/accuracy,train/loss,"));
  CHECK(rows[1].starts_with("lr0.01,ok,0.01,"));
  check_contains(rows[2], fmt::format(",{},", runs[0]["results"]["test/loss"].get<double>()));
  CHECK(w.run(compare, {"--csv", "--json"}).exit_code == 2);

  // Many differences get a separate table. A field that is null in one run and missing in the other
  // is not a difference.
  w.run_well({"train", "small.yaml", "--run-dir", "many", "optimizer.lr=0.2", "seed=5", "name=x",
              "train.epochs=3", "data.batch_size=4", "data.val_split=4", "data.size=50",
              "model.layers=[{type: Flatten}, {type: Tanh}, {type: Linear, name: fc, "
              "out_features: 3}]"});
  const std::string text = w.run_well({"compare", "lr0.1", "many"}).out;
  CHECK(text.starts_with("run    status  best val/accuracy"));
  check_contains(text, "\noptimizer.lr ");
  CHECK_FALSE(contains(text, "null -\n"));
  // The time of a run is the sum over its processes.
  check_contains(text, "seconds");
  w.run_well({"train", "small.yaml", "--run-dir", "lr0.1", "train.epochs=3"});
  w.run_well({"train", "small.yaml", "--run-dir", "lr0.01", "train.epochs=3", "optimizer.lr=0.01"});
  check_contains(w.run_well({"compare", "lr0.1", "lr0.01"}).out, "seconds");
}

TEST_CASE("compare tells runs apart that differ in the order of their layers only") {
  const Tiny w;
  const auto train = [&](const char* folder, const char* layers, const char* seed) {
    w.run_well({"train", "small.yaml", "--run-dir", folder, layers, seed});
  };
  const char* one =
      "model.layers=[{type: Flatten}, {type: ReLU, name: r}, {type: Tanh, name: t}, {type: Linear, "
      "name: fc, out_features: 3}]";
  const char* other =
      "model.layers=[{type: Flatten}, {type: Tanh, name: t}, {type: ReLU, name: r}, {type: Linear, "
      "name: fc, out_features: 3}]";
  train("a", one, "seed=1");
  train("b", other, "seed=2");
  const auto out = json_out(w, {"compare", "a", "b"});
  CHECK(out["differences"]["model.layers"] == nlohmann::json({"0, r, t, fc", "0, t, r, fc"}));
  CHECK(out["differences"]["model.layers.t.from"] == nlohmann::json({"[r]", "[0]"}));
  CHECK(out["groups"].empty());
  check_contains(w.run_well({"compare", "a", "b"}).out, "  model.layers  ");
  // A resume, like a comparison, distinguishes the two orders of layers.
  const Finished resumed = w.run({"train", "small.yaml", "--run-dir", "a", other});
  CHECK(resumed.exit_code == 2);
  check_contains(resumed.err, "model.layers: the order differs: 0, r, t, fc -> 0, t, r, fc\n");
}

TEST_CASE("runs: the best of a run that continues is what its file says") {
  const Tiny w;
  w.run_well({"train", "small.yaml", "train.epochs=2"});
  const std::string log = w.dir.file("runs/tiny/metrics.jsonl");
  const auto best = json_out(w, {"runs"})["runs"][0]["best"];
  // The log ends with a result of an earlier process on another branch, because the next process
  // was killed.
  std::string text = read_file(log);
  const std::size_t end = text.find(R"("best":{"val/accuracy":)");
  REQUIRE(end != std::string::npos);
  const std::size_t value = text.find(':', end + 8) + 1;
  text.replace(value, text.find(',', value) - value, "0.9999");
  fs::remove(w.dir.file("runs/tiny/summary.json"));
  write_file(log, text);
  CHECK(json_out(w, {"runs"})["runs"][0]["best"]["val/accuracy"] == 0.9999);
  write_file(log, text + R"({"v":1,"event":"run_start","step":4}
)");
  const auto killed = json_out(w, {"runs"})["runs"][0];
  CHECK(killed["status"] == "interrupted");
  CHECK(killed["best"] == best);
  CHECK(killed["steps"] == 4);
  // A process that failed does not log a best either.
  write_file(log, text + R"({"v":1,"event":"run_start","step":4}
{"v":1,"event":"run_end","status":"failed","exit_code":3}
)");
  CHECK(json_out(w, {"runs"})["runs"][0]["best"] == best);
  CHECK(json_out(w, {"compare", "runs/tiny", "runs/tiny"})["runs"][1]["best"] == best);
  fs::remove(w.dir.file("runs/tiny/best.safetensors"));
  CHECK_FALSE(json_out(w, {"runs"})["runs"][0].contains("best"));
}

TEST_CASE("compare gives the spread over folds") {
  const Tiny w;
  for (const char* fold : {"1", "2"}) {
    w.run_well({"train", "small.yaml", "--run-dir", std::string("f") + fold,
                std::string("data.val_split={fold: [") + fold + ", 4]}"});
  }
  auto out = json_out(w, {"compare", "f1", "f2"});
  REQUIRE(out["groups"].size() == 1);
  CHECK(out["groups"][0]["over"] == nlohmann::json::array({"data.val_split.fold"}));
  const auto loss = [&](int run) -> double { return out["runs"][run]["results"]["val/loss"]; };
  auto& spread = out["groups"][0]["results"]["val/loss"];
  CHECK(spread["mean"].get<double>() == doctest::Approx((loss(0) + loss(1)) / 2));
  CHECK(spread["std"].get<double>() == doctest::Approx(std::abs(loss(0) - loss(1)) / std::sqrt(2)));
  check_contains(w.run_well({"compare", "f1", "f2"}).out,
                 "\n2 runs that differ only in the fold (data.val_split.fold): f1, f2\n");
}

TEST_CASE("compare: runs with data.normalize: auto are repetitions, whatever they measure") {
  const Tiny w;
  for (const char* seed : {"1", "2"}) {
    w.run_well({"train", "small.yaml", "--run-dir", std::string("seed") + seed,
                std::string("seed=") + seed, "data.normalize=auto", "data.transforms={}"});
  }
  CHECK(read_file(w.dir.file("seed1/config.yaml")) != read_file(w.dir.file("seed2/config.yaml")));
  check_contains(w.run_well({"compare", "seed1", "seed2"}).out,
                 "2 runs that differ only in the seed");
}

TEST_CASE("runs that differ in seed or fold only are repetitions") {
  using dpt::ConfigValues;
  const auto run = [](const std::string& seed, const std::string& fold, const std::string& lr) {
    return ConfigValues{{"name", "run-" + seed + fold},
                        {"seed", seed},
                        {"data.val_split.fold", fold},
                        {"optimizer.lr", lr}};
  };
  const std::vector<ConfigValues> configs = {
      run("1", "[1, 5]", "0.1"), run("1", "[2, 5]", "0.1"), run("1", "[1, 4]", "0.1"),
      run("1", "[3, 5]", "0.5"), run("1", "[3, 5]", "0.1"), run("1", "[2, 5]", "0.1"),
      run("1", "null", "0.1"),   run("2", "null", "0.1"),   run("1", "4", "0.1"),
      run("2", "5", "0.1"),      run("1", "[4, 5]", "0.1")};
  std::vector<bool> ended(configs.size(), true);
  ended.back() = false;
  const auto groups = dpt::groups_of_runs(configs, ended);
  REQUIRE(groups.size() == 3);
  // Runs on the folds of one division into five form a group. Runs with another division, other
  // options or a repeated fold do not belong to it.
  CHECK(groups[0].runs == std::vector<std::size_t>{0, 1, 4});
  CHECK(groups[0].over == std::vector<std::string>{"data.val_split.fold"});
  CHECK(groups[1].runs == std::vector<std::size_t>{6, 7});
  CHECK(groups[1].over == std::vector<std::string>{"seed"});
  CHECK(groups[2].runs == std::vector<std::size_t>{8, 9});
  CHECK(groups[2].over == std::vector<std::string>{"data.val_split.fold", "seed"});
  // With data.normalize: auto, each fold measures its own numbers. Given numbers count as an
  // option.
  for (const bool is_auto : {true, false}) {
    std::vector<ConfigValues> two = {configs[0], configs[1]};
    for (ConfigValues& each : two) {
      each["data.normalize.mode"] = is_auto ? "auto" : "given";
      each["data.normalize.mean"] = each["data.val_split.fold"];
    }
    CHECK(dpt::groups_of_runs(two, {true, true}).size() == (is_auto ? 1 : 0));
  }
  // `data.folder` is not a fold.
  ConfigValues a = configs[0], b = configs[0];
  a["data.folder"] = "x";
  b["data.folder"] = "y";
  CHECK(dpt::groups_of_runs({a, b}, {true, true}).empty());
}

TEST_CASE("runs sorts, and shows the test result, the learning rate and the time") {
  const Tiny w;
  w.run_well({"train", "small.yaml", "--run-dir", "runs/a", "optimizer.lr=0.2"});
  w.run_well({"train", "small.yaml", "--run-dir", "runs/b", "optimizer.lr=0.003"});
  w.run_well(
      {"train", "small.yaml", "--run-dir", "runs/c", "optimizer.lr=0.01", "data.test_size=0"});
  const auto order = [&](const std::string& name) {
    std::string folders;
    const auto listed = json_out(w, {"runs", "--sort", name});
    for (const auto& run : listed["runs"]) {
      folders += run["folder"].get<std::string>().back();
    }
    return folders;
  };
  CHECK(order("optimizer.lr") == "bca");
  CHECK(order("run") == "abc");
  // Runs without the value come last.
  CHECK(order("test/loss").back() == 'c');
  const std::string table = w.run_well({"runs", "--sort", "optimizer.lr"}).out;
  check_contains(table, "  test ");
  check_contains(table, "  lr  ");
  check_contains(table, "  0.003  0:0");
  const auto summary = nlohmann::json::parse(read_file(w.dir.file("runs/b/summary.json")));
  check_contains(table, fmt::format("accuracy {:.6g} ", summary["test"]["accuracy"].get<double>()));
  const Finished unknown = w.run({"runs", "--sort", "optimizer.lt"});
  CHECK(unknown.exit_code == 2);
  check_contains(unknown.err, "did you mean 'optimizer.lr'?");
  const std::string csv = w.run_well({"runs", "--csv"}).out;
  CHECK(csv.starts_with("run,status,changed,optimizer.lr,best val/accuracy,"));
  CHECK(count_of(csv, "\n") == 4);
  check_contains(csv, "\nruns/a,ok,");
}

TEST_CASE("the time of a run is that of all of its processes") {
  const Tiny w;
  w.run_well({"train", "small.yaml", "--run-dir", "runs/a", "--max-steps", "3"});
  w.run_well({"train", "small.yaml", "--run-dir", "runs/a"});
  const std::string log = w.dir.file("runs/a/metrics.jsonl");
  std::istringstream lines(read_file(log));
  std::string text;
  int process = 0;
  for (std::string line; std::getline(lines, line);) {
    auto each = nlohmann::json::parse(line);
    if (each["event"] == "run_start") ++process;
    // The first process took 100 s, the second one 20 s.
    each["elapsed_s"] = process == 1 ? 100 : 20;
    text += each.dump() + "\n";
  }
  REQUIRE(process == 2);
  write_file(log, text);
  check_contains(w.run_well({"runs"}).out, "  2:00 ");
  check_contains(w.run_well({"runs", "--csv"}).out, ",120\n");
  // A log of an earlier release lacks times, so the run's time is unknown.
  for (std::size_t at; (at = text.find("\"elapsed_s\":100,")) != text.npos;) text.erase(at, 16);
  write_file(log, text);
  CHECK_FALSE(contains(w.run_well({"runs", "--csv"}).out, "seconds"));
}
