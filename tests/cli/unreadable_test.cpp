// data.on_bad_sample in evaluations: an unreadable sample is left out and counted, or ends the run
// early.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "tests/cli/image_folders.h"
#include "tests/support/tar.h"

using namespace dpt::testing;
using nlohmann::json;
namespace unreadable_test {
namespace {

const std::vector<std::string> kClasses = {"dark", "grey", "white"};

struct Photos : FolderWorkplace {
  explicit Photos(const std::vector<std::string>& parts) {
    for (const std::string& part : parts) put("photos/" + part, kClasses);
  }
  void tear(const std::string& name) const {
    const std::string path = dir.file("photos/" + name);
    write_file(path, read_file(path).substr(0, 40));
  }
  Finished train(const std::string& folder, std::vector<std::string> words) const {
    words.insert(words.end(), {"--run-dir", folder});
    return run({"train", "small.yaml"}, words);
  }
};

/// Returns split, samples, unreadable samples and loss of each evaluation.
std::vector<std::vector<json>> evaluations(const Workplace& w, const std::string& run) {
  std::vector<std::vector<json>> found;
  for (const json& event : events(w.dir.file(run + "/metrics.jsonl"), "eval")) {
    found.push_back({event["split"], event["n"], event.value("unreadable", 0), event["loss"]});
  }
  return found;
}

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) {
    ++found;
  }
  return found;
}

const std::vector<std::string> kSkip = {"data.on_bad_sample=skip", "train.epochs=2",
                                        "train.shards=3"};

std::vector<std::string> joined(std::vector<std::string> words,
                                const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

}  // namespace

TEST_CASE("on_bad_sample: skip leaves out images of val/ and test/, the same on any replicas") {
  const Photos w({"train", "val", "test"});
  w.tear("val/grey/3.png");
  w.tear("test/dark/1.png");
  w.tear("test/white/5.png");
  const Finished one = w.train("one", kSkip);
  INFO(one.err);
  REQUIRE(one.exit_code == 0);
  const auto found = evaluations(w, "one");
  REQUIRE(found.size() == 3);
  CHECK(found[0][0] == "val");
  CHECK(found[0][1] == 17);
  CHECK(found[0][2] == 1);
  CHECK(found[2][0] == "test");
  CHECK(found[2][1] == 16);
  CHECK(found[2][2] == 2);
  check_contains(one.err, " (1 unreadable)");
  check_contains(one.err, " (2 unreadable)");
  // Each file is reported once, although every epoch finds it.
  for (const char* name : {"val/grey/3.png", "test/dark/1.png", "test/white/5.png"}) {
    CHECK(count(one.err, std::string("left out: ") + w.dir.file("photos/") + name) +
              count(one.err, std::string("left out: photos/") + name) ==
          1);
  }
  CHECK(events(w.dir.file("one/metrics.jsonl"), "bad_sample").size() == 3);
  const json summary = json::parse(read_file(w.dir.file("one/summary.json")));
  CHECK(summary["val"]["n"] == 17);
  CHECK(summary["test"]["unreadable"] == 2);

  const Finished three = w.train("three", joined(kSkip, {"--devices", "cpu,cpu,cpu"}));
  CHECK(three.exit_code == 0);
  CHECK(evaluations(w, "three") == found);
  const Finished two = w.train("two", joined(kSkip, {"--nproc", "2"}));
  INFO(two.err);
  CHECK(two.exit_code == 0);
  CHECK(evaluations(w, "two") == found);
  // A run that was resumed in between has the same results.
  CHECK(w.train("halves", joined(kSkip, {"--max-steps", "4"})).exit_code == 0);
  CHECK(w.train("halves", kSkip).exit_code == 0);
  CHECK(evaluations(w, "halves") == found);
}

TEST_CASE("on_bad_sample: skip leaves out what val_split draws") {
  const Photos w({"train"});
  for (int i = 0; i < 6; ++i) w.tear(fmt::format("train/grey/{}.png", i));
  const std::vector<std::string> words = joined(kSkip, {"data.val_split=9"});
  const Finished one = w.train("one", words);
  INFO(one.err);
  REQUIRE(one.exit_code == 0);
  const auto found = evaluations(w, "one");
  REQUIRE(found.size() == 2);
  const int unreadable = found[0][2];
  CHECK(unreadable > 0);
  CHECK(found[0][1] == 9 - unreadable);
  CHECK(w.train("three", joined(words, {"--devices", "cpu,cpu,cpu"})).exit_code == 0);
  CHECK(evaluations(w, "three") == found);
  // data.max_bad_samples counts all unreadable samples.
  const Finished many = w.train("many", joined(words, {"data.max_bad_samples=5"}));
  CHECK(many.exit_code == 3);
  check_contains(many.err, "The number of bad samples is now 6, and");
}

TEST_CASE("on_bad_sample: skip in dpt eval, its table of predictions and the report") {
  const Photos w({"train", "test"});
  const std::vector<std::string> short_run = {"train.epochs=2"};
  REQUIRE(w.train("run", short_run).exit_code == 0);
  w.tear("test/grey/2.png");
  const Finished stop = w.run({"eval", "run", "--allow-other-data"});
  CHECK(stop.exit_code == 3);
  check_contains(stop.err, "test/grey/2.png");
  const std::vector<std::string> eval = {"eval", "run", "--allow-other-data",
                                         "data.on_bad_sample=skip"};
  const Finished skip = w.run_well(eval, {"--predictions", "table.csv", "--probabilities"});
  check_contains(skip.out, "test split, 17 samples, 1 unreadable: loss ");
  check_contains(skip.err, "warning: left out: ");
  check_contains(skip.err, "test/grey/2.png");
  const std::string table = read_file(w.dir.file("table.csv"));
  check_contains(table, "test/grey/2.png,1,,grey,,,,,,\n");
  CHECK(count(table, "\n") == 19);
  // Every line has the same number of fields, and the losses of the readable samples average to the
  // reported loss.
  std::istringstream lines(table);
  double sum = 0;
  int rows = 0;
  std::string line;
  std::getline(lines, line);
  const int commas = count(line, ",");
  while (std::getline(lines, line)) {
    CHECK(count(line, ",") == commas);
    std::vector<std::string> fields;
    std::istringstream in(line);
    for (std::string field; std::getline(in, field, ',');) fields.push_back(field);
    if (fields.size() < 7 || fields[6].empty()) continue;
    sum += std::stod(fields[6]);
    ++rows;
  }
  const json one = json::parse(w.run_well(eval, {"--json"}).out);
  CHECK(one["n"] == 17);
  CHECK(one["unreadable"] == 1);
  CHECK(rows == 17);
  CHECK(one["loss"].get<double>() == doctest::Approx(sum / rows).epsilon(1e-6));
  std::int64_t support = 0;
  for (const json& each : one["classes"]) support += each["support"].get<std::int64_t>();
  CHECK(support == 17);
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{"--devices", "cpu,cpu,cpu"}, {"--nproc", "2"}}) {
    CHECK(json::parse(w.run_well(eval, joined({"--json"}, more)).out) == one);
  }
}

TEST_CASE("on_bad_sample: skip makes unreadable images warnings of config check and the dry run") {
  const Photos w({"train", "val", "test"});
  w.tear("val/grey/3.png");
  w.tear("test/dark/1.png");
  for (const std::vector<std::string>& command : std::vector<std::vector<std::string>>{
           {"config", "check", "small.yaml"}, {"train", "small.yaml", "--dry-run"}}) {
    CAPTURE(command[0]);
    const Finished stop = w.run(command);
    CHECK(stop.exit_code == 3);
    const Finished skip = w.run_well(command, {"data.on_bad_sample=skip"});
    for (const char* name : {"val/grey/3.png", "test/dark/1.png"}) {
      check_contains(stop.err, name);
      check_contains(skip.err, name);
    }
    check_contains(skip.err, "warning: left out (data.on_bad_sample: skip): ");
  }
}

TEST_CASE("on_bad_sample: stop finds an unreadable test image before the second epoch") {
  const Photos w({"train", "test"});
  w.tear("test/white/5.png");
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{}, {"--devices", "cpu,cpu,cpu"}, {"--nproc", "2"}}) {
    CAPTURE(more.size());
    const std::string folder = "run" + std::to_string(more.size()) + (more.empty() ? "" : more[1]);
    const Finished stopped = w.train(folder, joined({"train.epochs=5"}, more));
    INFO(stopped.err);
    CHECK(stopped.exit_code == 3);
    check_contains(stopped.err, "test/white/5.png");
    check_contains(stopped.err, "An evaluation needs this sample: repair or remove the file");
    // Another process may end the first epoch before it learns of the image.
    const std::size_t most = more == std::vector<std::string>{"--nproc", "2"} ? 1 : 0;
    CHECK(events(w.dir.file(folder + "/metrics.jsonl"), "epoch").size() <= most);
    CHECK(!contains(stopped.err, "epoch 2/5"));
    // The stopped run can continue without the sample.
    const Finished skipped =
        w.train(folder, joined({"train.epochs=5", "data.on_bad_sample=skip"}, more));
    INFO(skipped.err);
    CHECK(skipped.exit_code == 0);
  }
}

TEST_CASE("on_bad_sample: skip leaves out samples of shards and of tables") {
  const Photos w({"train", "test"});
  w.tear("test/grey/2.png");
  std::string table = "file,kind\n", train = "file,kind\n";
  const auto line = [&](const std::string& part, const std::string& name, int i) {
    return fmt::format("photos/{}/{}/{}.png,{}\n", part, name, i, name);
  };
  std::vector<std::pair<std::string, std::string>> train_members, test_members;
  for (const std::string& name : kClasses) {
    for (int i = 0; i < 6; ++i) {
      train += line("train", name, i);
      table += line("test", name, i);
      for (const char* part : {"train", "test"}) {
        auto& members = std::string(part) == "train" ? train_members : test_members;
        const std::string key = fmt::format("{}-{}", name, i);
        members.emplace_back(
            key + ".png", read_file(w.dir.file(fmt::format("photos/{}/{}/{}.png", part, name, i))));
        members.emplace_back(key + ".cls", name);
      }
    }
  }
  write_file(w.dir.file("train.csv"), train);
  write_file(w.dir.file("test.csv"), table);
  write_file(w.dir.file("small.yaml"),
             config_of("  dataset: csv\n  path: file\n  label: kind\n  train: {file: train.csv}\n"
                       "  test: {file: test.csv}\n"));
  REQUIRE(w.train("table", kSkip).exit_code == 0);
  CHECK(evaluations(w, "table").back()[1] == 17);
  CHECK(evaluations(w, "table").back()[2] == 1);
  write_file(w.dir.file("train.tar"), tar(train_members));
  write_file(w.dir.file("test.tar"), tar(test_members));
  write_file(w.dir.file("small.yaml"),
             config_of("  dataset: webdataset\n  train: {shards: train.tar}\n"
                       "  test: {shards: test.tar}\n"));
  REQUIRE(w.train("shards", kSkip).exit_code == 0);
  CHECK(evaluations(w, "shards").back()[1] == 17);
  CHECK(evaluations(w, "shards").back()[2] == 1);
}

}  // namespace unreadable_test
