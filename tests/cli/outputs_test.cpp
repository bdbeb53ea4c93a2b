// The exact output of the commands and content of the run folder.
#include <doctest/doctest.h>
#include <sys/stat.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>

#include "engine/checkpoints/safetensors.h"
#include "kernels/base/error.h"
#include "tests/cli/terminal.h"
#include "tests/cli/tiny.h"
#include "tests/support/pseudo_terminal.h"

using namespace dpt::testing;
using nlohmann::json;

TEST_CASE("a dry run prints the numbers of the run") {
  const Workplace w;
  const std::string out = w.run_well({"train", "small.yaml", "--dry-run"}).out;
  check_contains(out, "train 180 samples, val 20, test 40; 12 steps per epoch, 360 in total");
  check_contains(out, "2 replicas");
}

TEST_CASE("the log of a run: every number that can be worked out") {
  const Workplace w;
  w.run_well({"train", "small.yaml", "--run-dir", "r", "train.epochs=3", "log.every=5"});
  const std::string log = w.dir.file("r/metrics.jsonl");
  const json start = events(log, "run_start").at(0);
  CHECK(start["run"] == "small");
  CHECK(start["devices"] == json({"cpu", "cpu"}));
  CHECK(start["params"] == 80 + 128 * 4 + 4);
  CHECK(start["train_samples"] == 180);
  CHECK(start["val_samples"] == 20);
  CHECK(start["test_samples"] == 40);
  CHECK(start["batch_size"] == 16);
  CHECK(start["steps_per_epoch"] == 12);
  CHECK(start["epochs"] == 3);
  CHECK(start["shards"] == 4);
  CHECK(start["step"] == 0);
  CHECK(start["resumed_from"] == "");

  std::vector<int> steps;
  double sampled = 0;
  for (const json& step : events(log, "step")) {
    steps.push_back(step["step"]);
    CHECK(step["epoch"] == (steps.back() - 1) / 12 + 1);
    CHECK(step["loss"] > 0);
    CHECK(step["grad_norm"] > 0);
    CHECK(step["lr"] == 0.05);
    CHECK(step["accuracy"] >= 0);
    CHECK(step["accuracy"] <= 1);
    CHECK(step["images_per_s"] > 0);
    CHECK(step["data_wait"] >= 0);
    CHECK(step["data_wait"] <= 1);
    sampled += step["images_per_s"].get<double>();
  }
  CHECK(steps == std::vector<int>{1, 5, 10, 15, 20, 25, 30, 35, 36});
  CHECK(sampled > 0);

  const auto epochs = events(log, "epoch");
  REQUIRE(epochs.size() == 3);
  for (int i = 0; i < 3; ++i) {
    const json& epoch = epochs[i];
    CHECK(epoch["epoch"] == i + 1);
    CHECK(epoch["step"] == 12 * (i + 1));
    CHECK(epoch["seconds"] > 0);
    // The logged rate is rounded to a whole number of images.
    const double rate = 180 / epoch["seconds"].get<double>();
    CHECK(std::abs(epoch["images_per_s"].get<double>() - rate) <= 0.5 + 1e-6 * rate);
    CHECK(epoch["data_wait"] >= 0);
    CHECK(epoch["data_wait"] <= 1);
    // The accuracy of 180 samples is a whole number of hits.
    const double hits = 180 * epoch["accuracy"].get<double>();
    CHECK(hits == doctest::Approx(std::round(hits)));
  }
  const auto evals = events(log, "eval");
  REQUIRE(evals.size() == 4);
  for (int i = 0; i < 3; ++i) {
    const json& eval = evals[i];
    CHECK(eval["split"] == "val");
    CHECK(eval["epoch"] == i + 1);
    CHECK(eval["n"] == 20);
  }
  CHECK(evals[3]["split"] == "test");
  CHECK(evals[3]["n"] == 40);
  const json replica = events(log, "replica").at(0);
  CHECK(replica["launches"] == "calls");
  CHECK(replica["memory_bytes"] > 0);
  CHECK(replica["data"] == "resident");
  CHECK(replica["sums"] == "tree");
  CHECK(!replica["implementations"].empty());

  const auto checkpoints = events(log, "checkpoint");
  std::vector<int> saved;
  for (const json& checkpoint : checkpoints) {
    saved.push_back(checkpoint["step"]);
    const std::string path = checkpoint["path"];
    CHECK(path.find(std::to_string(saved.back()) + ".safetensors") != std::string::npos);
  }
  // Checkpoints are saved every five steps and at the end of each epoch.
  CHECK(saved == std::vector<int>{5, 10, 12, 15, 20, 24, 25, 30, 35, 36});
  // Two of them are kept, plus the best.
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(w.dir.file("r/checkpoints"))) {
    files += entry.is_regular_file() ? 1 : 0;
  }
  CHECK(files == 2);

  const json summary = json::parse(read_file(w.dir.file("r/summary.json")));
  CHECK(summary["run"] == "small");
  CHECK(summary["status"] == "ok");
  CHECK(summary["exit_code"] == 0);
  CHECK(summary["epochs"] == 3);
  CHECK(summary["steps"] == 36);
  CHECK(summary["seconds"] > 0);
  CHECK(summary["params"] == start["params"]);
  CHECK(summary["train"]["loss"] == epochs[2]["loss"]);
  CHECK(summary["train"]["accuracy"] == epochs[2]["accuracy"]);
  CHECK(summary["val"]["loss"] == evals[2]["loss"]);
  CHECK(summary["val"]["n"] == 20);
  CHECK(summary["test"]["accuracy"] == evals[3]["accuracy"]);
  CHECK_FALSE(summary.contains("early_stopped"));

  const json env = json::parse(read_file(w.dir.file("r/env.json")));
  CHECK(env["devices"] == json({"cpu", "cpu"}));
  CHECK(env["cpu"]["cores_allowed"] >= 1);
  check_contains(env["version"], "dpt ");

  SUBCASE("the log says what is resumed") {
    w.run_well({"train", "small.yaml", "--run-dir", "r", "train.epochs=4", "log.every=5"});
    const json again = events(log, "run_start").at(1);
    CHECK(again["step"] == 36);
    check_contains(again["resumed_from"], "step-00000036.safetensors");
    CHECK(events(log, "step").back()["step"] == 48);
    // The rate of an epoch counts only the samples that this process has trained on.
    const json epoch = events(log, "epoch").back();
    const double rate = 180 / epoch["seconds"].get<double>();
    CHECK(std::abs(epoch["images_per_s"].get<double>() - rate) <= 0.5 + 1e-6 * rate);
  }
  SUBCASE("an epoch that began in another process counts its own samples for the rate") {
    w.run_well({"train", "small.yaml", "--run-dir", "s", "train.epochs=1", "--max-steps", "7"});
    w.run_well({"train", "small.yaml", "--run-dir", "s", "train.epochs=1"});
    const json epoch = events(w.dir.file("s/metrics.jsonl"), "epoch").back();
    const double rate = (180 - 7 * 16) / epoch["seconds"].get<double>();
    CHECK(std::abs(epoch["images_per_s"].get<double>() - rate) <= 0.5 + 1e-6 * rate);
  }
}

TEST_CASE("command.txt runs the same command again in a shell, whatever its words") {
  const Workplace w;
  w.run_well({"train", "small.yaml", "--run-dir", "it's a run", "--max-steps", "2"});
  const std::string text = read_file(w.dir.file("it's a run/command.txt"));
  check_contains(text, "'it'\\''s a run'");
  CHECK(text.back() == '\n');
  CHECK(count_of(text, "'small.yaml'") == 0);
  check_contains(text, " small.yaml ");
}

TEST_CASE("a run whose summary could not be written has one test result in its log") {
  const Workplace w(kTinyConfig);
  const std::vector<std::string> command = {"train", "small.yaml", "--run-dir", "r"};
  w.run_well(command, {"--max-steps", "1"});
  std::filesystem::remove(w.dir.file("r/summary.json"));
  std::filesystem::create_directories(w.dir.file("r/summary.json/x"));
  CHECK(w.run(command).exit_code == 3);
  std::filesystem::remove_all(w.dir.file("r/summary.json"));
  w.run_well(command);
  int tests = 0;
  for (const auto& line : events(w.dir.file("r/metrics.jsonl"), "eval")) {
    tests += line["split"] == "test" ? 1 : 0;
  }
  CHECK(tests == 1);
}

TEST_CASE("--resume never takes the next free folder, and refuses a given one") {
  const Workplace w;
  const std::vector<std::string> command = {"train", "small.yaml",  "--resume",
                                            "never", "--max-steps", "1"};
  for (const char* folder : {"runs/small", "runs/small-2", "runs/small-3"}) {
    CHECK_FALSE(std::filesystem::exists(w.dir.file(folder)));
    w.run_well(command);
    CHECK(std::filesystem::exists(w.dir.file(std::string(folder) + "/summary.json")));
  }
  const Finished taken = w.run({"train", "small.yaml", "--resume", "never", "--run-dir",
                                "runs/small-2", "--max-steps", "1"});
  CHECK(taken.exit_code == 2);
  check_contains(taken.err, "runs/small-2");
}

TEST_CASE("eval: the best weights on each split, as text and as JSON") {
  const Workplace w;
  w.run_well({"train", "small.yaml", "--run-dir", "r", "train.epochs=3"});
  const json summary = json::parse(read_file(w.dir.file("r/summary.json")));
  const json test = json::parse(w.run_well({"eval", "r", "--json"}).out);
  CHECK(test["split"] == "test");
  CHECK(test["n"] == 40);
  CHECK(test["loss"] == summary["test"]["loss"]);
  CHECK(test["accuracy"] == summary["test"]["accuracy"]);
  // predict_test.cpp checks the other fields.
  CHECK(test.size() == 8);
  const json val = json::parse(w.run_well({"eval", "r", "--json", "--split", "val"}).out);
  CHECK(val["n"] == 20);
  CHECK(val["accuracy"] == summary["best"]["val/accuracy"]);
  const json train = json::parse(w.run_well({"eval", "r", "--json", "--split", "train"}).out);
  CHECK(train["n"] == 180);
  const std::string text = w.run_well({"eval", "r"}).out;
  check_contains(text, fmt::format("test split, 40 samples: loss {:.4f}, accuracy {:.4f}",
                                   test["loss"].get<double>(), test["accuracy"].get<double>()));
  // A bound that is met exactly, and one that is missed only because its relation is strict.
  const std::string accuracy = fmt::format("{}", test["accuracy"].get<double>());
  CHECK(w.run({"eval", "r", "--require", "test/accuracy>=" + accuracy}).exit_code == 0);
  CHECK(w.run({"eval", "r", "--require", "test/accuracy>" + accuracy}).exit_code == 7);
  CHECK(w.run({"train", "small.yaml", "--run-dir", "r", "train.epochs=3", "--require",
               "test/accuracy>=" + accuracy})
            .exit_code == 0);
  CHECK(w.run({"train", "small.yaml", "--run-dir", "r", "train.epochs=3", "--require",
               "test/accuracy<" + accuracy})
            .exit_code == 7);
  // Each of two conditions counts; a condition on another split is a usage error.
  CHECK(
      w.run({"eval", "r", "--require", "test/accuracy>=0", "--require", "test/loss<0"}).exit_code ==
      7);
  CHECK(w.run({"eval", "r", "--require", "val/loss<100"}).exit_code == 2);
  CHECK(w.run({"eval", "r", "--split", "tset"}).exit_code == 2);
}

TEST_CASE("inspect: metadata, tensors and the verdict, and nothing that drives a terminal") {
  const Workplace w;
  const std::vector<float> values = {1, 2, 3, 4, 5, 6};
  dpt::write_safetensors(w.dir.file("a.safetensors"),
                         {{"note", "bell\a and\x7f \x1f more\nsecond line"}, {"plain", "text"}},
                         {{"x", "F32", {2, 3}, values.data()}});
  const std::string text = w.run_well({"inspect", "a.safetensors"}).out;
  check_contains(text, "note: bell\\x07 and\\x7f \\x1f more ...\n");
  check_contains(text, "plain: text\n");
  check_contains(text, "[2, 3]");
  check_contains(text, "24");
  check_contains(text, "integrity: good");
  const json out = json::parse(w.run_well({"inspect", "a.safetensors", "--json"}).out);
  CHECK(out["file"] == "a.safetensors");
  CHECK(out["integrity"] == "good");
  CHECK(out["metadata"]["plain"] == "text");
  CHECK(out["tensors"][0] ==
        json({{"name", "x"}, {"dtype", "F32"}, {"shape", {2, 3}}, {"bytes", 24}}));
  std::string bytes = read_file(w.dir.file("a.safetensors"));
  bytes[bytes.size() - 20] = static_cast<char>(bytes[bytes.size() - 20] ^ 4);
  write_file(w.dir.file("a.safetensors"), bytes);
  const Finished damaged = w.run({"inspect", "a.safetensors", "--json"});
  CHECK(damaged.exit_code == 3);
  CHECK(json::parse(damaged.out)["integrity"] == "mismatch");
}

TEST_CASE("bench: as many rounds as asked for, and a serving one answers line by line") {
  const Workplace w;
  const json bench = json::parse(
      w.run_well({"bench", "small.yaml", "--steps", "3", "--rounds", "4", "--json"}).out);
  CHECK(bench["rounds"] == 4);
  CHECK(bench["min"] > 0);
  CHECK(bench["min"] <= bench["images_per_s"]);
  CHECK(bench["images_per_s"] <= bench["max"]);
  const std::string text = w.run_well({"bench", "small.yaml", "--steps", "3", "--rounds", "1"}).out;
  check_contains(text, "median of 1 round of 3 steps");

  const std::string command =
      fmt::format("cd '{}' && printf 'run 3\\nrun 14\\n' | '{}' bench small.yaml --serve --losses",
                  w.dir.path(), dpt_program());
  FILE* const pipe = popen(command.c_str(), "r");
  REQUIRE(pipe);
  std::string out;
  for (int c; (c = fgetc(pipe)) != EOF;) out += static_cast<char>(c);
  CHECK(pclose(pipe) == 0);
  CHECK(out.rfind("ready dpt\n", 0) == 0);
  CHECK(count_of(out, "loss ") == 17);
  check_contains(out, "loss 1 ");
  check_contains(out, "loss 17 ");  // in the second epoch: an epoch has 12 steps
  // After the losses of each request, a line gives the seconds.
  CHECK(std::regex_search(out, std::regex("loss 3 [^\n]+\n[0-9]+\\.[0-9]{6}\nloss 4 ")));
  CHECK(std::regex_search(out, std::regex("loss 17 [^\n]+\n[0-9]+\\.[0-9]{6}\n$")));
}

TEST_CASE("on a terminal the last line is a bar that shows how far the run is") {
  if (!has_pseudo_terminals()) return;
  const Workplace w;
  const std::string output = on_terminal({"train", "small.yaml", "train.epochs=2"}, w.dir.path());
  // The first step draws the bar while nearly all of its 24 cells are still empty.
  const std::regex bar(
      R"(\[(=*)( *)\] epoch (\d)/2 \(\d+ %\)  step (\d+)/24  loss (\d+\.\d{4})  (\S+) images/s  \d+:\d\d left)");
  std::smatch first;
  REQUIRE(std::regex_search(output, first, bar));
  CHECK(first.str(1).size() + first.str(2).size() == 24);
  const int step = std::stoi(first.str(4));
  CHECK(first.str(1).size() == static_cast<std::size_t>(step));
  CHECK(std::stoi(first.str(3)) == (step - 1) / 12 + 1);
  const std::size_t end = output.rfind("done: 2 epochs, 24 steps");
  REQUIRE(end != std::string::npos);
  // The bar disappears when the run ends.
  CHECK_FALSE(std::regex_search(output.substr(end), bar));
  check_contains(output, "\r\x1b[K");
}

TEST_CASE("the bar's rate and the time that is left belong together, up to --max-steps") {
  if (!has_pseudo_terminals()) return;
  const Workplace w;
  const std::string output = on_terminal(
      {"train", "small.yaml", "train.epochs=10000", "--max-steps", "1500", "checkpoint.every=0",
       "checkpoint.every_steps=0", "data.val_split=0", "data.size=180"},
      w.dir.path());
  const std::regex bar(
      R"(step (\d+)/1500  loss \d+\.\d{4}  ([0-9.]+)(k|M|) images/s  (?:(\d+):)?(\d+):(\d\d) left)");
  int bars = 0;
  for (std::sregex_iterator each(output.begin(), output.end(), bar), end; each != end; ++each) {
    const std::smatch& found = *each;
    const double unit = found.str(3) == "k" ? 1e3 : found.str(3) == "M" ? 1e6 : 1;
    const double rate = std::stod(found.str(2)) * unit;
    const double hours = found.str(4).empty() ? 0 : std::stod(found.str(4));
    const double left = (hours * 60 + std::stod(found.str(5))) * 60 + std::stod(found.str(6));
    // The last of the 12 batches of an epoch has 4 samples.
    const int step = std::stoi(found.str(1));
    const double per_step = (180.0 * (step / 12) + 16 * (step % 12)) / step;
    const double expected = per_step * (1500 - step) / rate;
    INFO(found.str());
    CHECK(std::abs(left - expected) <= 0.51 + 0.01 * expected);
    ++bars;
  }
  CHECK(bars > 0);
}

TEST_CASE("predictions: names of classes with commas, quotes and line breaks are quoted") {
  const TempDir dir;
  write_file(dir.file("c.yaml"), R"(version: 1
name: c
data: {dataset: image_folder, root: data, batch_size: 2}
model:
  input: [1, 2, 2]
  layers: [{type: Flatten}, {type: Linear, name: fc1, out_features: 2}]
optimizer: {type: SGD, lr: 0.1}
train: {epochs: 1}
devices: [cpu]
)");
  // A grey PNG of 2x2 pixels.
  const std::string hex =
      "89504e470d0a1a0a0000000d494844520000000200000002080000000057dd52f80000000e49444154789c631050"
      "60"
      "30700000017600a1ec308af40000000049454e44ae426082";
  std::string png;
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    png += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  for (const char* part : {"train", "test"}) {
    for (const char* name : {"a,b", "say \"hi\""}) {
      const std::string folder = dir.file(std::string("data/") + part + "/" + name);
      std::filesystem::create_directories(folder);
      write_file(folder + "/1.png", png);
    }
  }
  const Finished trained = run_dpt({"train", "c.yaml", "--run-dir", "r"}, dir.path());
  INFO(trained.err);
  REQUIRE(trained.exit_code == 0);
  const Finished eval = run_dpt({"eval", "r", "--predictions", "p.csv"}, dir.path());
  INFO(eval.err);
  REQUIRE(eval.exit_code == 0);
  const std::string csv = read_file(dir.file("p.csv"));
  // A pipe, a device and the target of a link are written to, not replaced.
  write_file(dir.file("target.csv"), "index,label of an earlier table");
  std::filesystem::create_symlink("target.csv", dir.file("link.csv"));
  REQUIRE(mkfifo(dir.file("pipe").c_str(), 0600) == 0);
  const int reader = open(dir.file("pipe").c_str(), O_RDWR);
  REQUIRE(reader >= 0);
  for (const char* path : {"link.csv", "pipe", "/dev/null"}) {
    CAPTURE(path);
    CHECK(run_dpt({"eval", "r", "--predictions", path}, dir.path()).exit_code == 0);
  }
  CHECK(read_file(dir.file("target.csv")) == csv);
  CHECK(std::filesystem::is_symlink(dir.file("link.csv")));
  CHECK(std::filesystem::is_fifo(dir.file("pipe")));
  CHECK(std::filesystem::is_character_file("/dev/null"));
  std::string piped(csv.size(), ' ');
  CHECK(read(reader, piped.data(), piped.size()) == static_cast<ssize_t>(csv.size()));
  CHECK(piped == csv);
  close(reader);
  INFO(csv);
  CHECK(std::regex_search(
      csv,
      std::regex(
          R"re(\n0,"[^\n]*/data/test/a,b/1\.png",0,[01],"a,b",("a,b"|"say ""hi"""),[0-9.]+,[0-9.]+\n)re")));
  CHECK(std::regex_search(
      csv,
      std::regex(
          R"re(\n1,"[^\n]*/data/test/say ""hi""/1\.png",1,[01],"say ""hi""",("a,b"|"say ""hi"""),[0-9.]+,[0-9.]+\n$)re")));
}
