// Terminals that disappear, results that cannot be written, names that are not UTF-8.
#include <doctest/doctest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/cli/workplace.h"

using namespace dpt::testing;

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

struct ShortRuns : Workplace {
  /// Trains briefly in `folder`.
  Finished train(const std::string& folder, const std::function<void()>& in_child = {}) const {
    return run_dpt({"train", "small.yaml", "--run-dir", folder, "train.epochs=2"}, dir.path(),
                   in_child);
  }
};

void write_to(int stream, const char* path) {
  const int file = open(path, O_WRONLY);
  if (file < 0 || dup2(file, stream) < 0) _exit(125);
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

}  // namespace

TEST_CASE(
    "a run continues without its terminal: a pipe that nobody reads, streams that are closed") {
  ShortRuns w;
  REQUIRE(w.train("usual").exit_code == 0);
  const auto check_complete = [&](const std::string& folder) {
    const json summary = json::parse(read_file(w.dir.file(folder + "/summary.json")));
    CHECK(summary["status"] == "ok");
    CHECK(summary["steps"] == 24);
    // No message may end up in a file that reuses the descriptor of a closed stream.
    for (const std::string& line : lines_of(read_file(w.dir.file(folder + "/metrics.jsonl")))) {
      CHECK(json::accept(line));
    }
    const Finished inspect = run_dpt({"inspect", folder + "/best.safetensors"}, w.dir.path());
    CHECK(inspect.exit_code == 0);
  };

  int ends[2];
  REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
  close(ends[0]);
  const Finished piped = w.train("piped", [&] {
    signal(SIGPIPE, SIG_DFL);
    dup2(ends[1], 1);
    dup2(ends[1], 2);
  });
  close(ends[1]);
  CHECK(piped.exit_code == 0);
  check_complete("piped");

  const Finished closed = w.train("closed", [] {
    close(0);
    close(1);
    close(2);
  });
  CHECK(closed.exit_code == 0);
  check_complete("closed");

  const Finished full = w.train("full", [] {
    write_to(1, "/dev/full");
    write_to(2, "/dev/full");
  });
  CHECK(full.exit_code == 0);
  check_complete("full");
}

TEST_CASE("a run ends, is stopped and saves while nobody reads stderr: a pipe that stays full") {
  ShortRuns w;
  int ends[2];
  REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
  // The pipe is filled in non-blocking mode, then set to blocking, as a shell leaves it.
  REQUIRE(fcntl(ends[1], F_SETFL, O_NONBLOCK) == 0);
  const std::string page(4096, 'x');
  while (write(ends[1], page.data(), page.size()) > 0) {
  }
  REQUIRE(fcntl(ends[1], F_SETFL, 0) == 0);
  const auto stuck = [&] { dup2(ends[1], 2); };
  const TempDir plain_logs, stopped_logs, processes_logs;
  const auto train = [&](const std::string& folder, const TempDir& logs,
                         const std::vector<std::string>& more) {
    std::vector<std::string> words = {"train", "small.yaml", "--run-dir", folder};
    words.insert(words.end(), more.begin(), more.end());
    return std::make_unique<Program>(words, w.dir.path(), logs, stuck);
  };
  // The runs overlap in time, because each waits several seconds for a reader.
  const auto plain = train("plain", plain_logs, {"train.epochs=2"});
  const auto stopped = train("stopped", stopped_logs, {"train.epochs=1000000"});
  const auto processes = train("processes", processes_logs, {"train.epochs=2", "--nproc", "2"});
  const auto steps_of = [&](const std::string& folder) {
    return json::parse(read_file(w.dir.file(folder + "/summary.json")))["steps"];
  };
  CHECK(wait_for_checkpoint(w.dir.file("stopped")));
  stopped->send(SIGTERM);
  CHECK(stopped->wait().exit_code == 128 + SIGTERM);
  CHECK(steps_of("stopped") > 0);
  CHECK(plain->wait().exit_code == 0);
  CHECK(steps_of("plain") == 24);
  CHECK(processes->wait().exit_code == 0);
  CHECK(steps_of("processes") == 24);
  // The file contains the messages that had no reader.
  CHECK(read_file(w.dir.file("plain/train.log")).find("epoch 2") != std::string::npos);
  close(ends[0]);
  close(ends[1]);
}

TEST_CASE("results that do not arrive are a failure of every command that has some") {
  ShortRuns w;
  REQUIRE(w.train("run").exit_code == 0);
  const std::vector<std::vector<std::string>> commands = {
      {"--version"},
      {"--help"},
      {"train", "--help"},
      {"train", "small.yaml", "--dry-run"},
      {"eval", "run"},
      {"eval", "run", "--json"},
      {"config", "check", "small.yaml"},
      {"config", "show", "small.yaml"},
      {"config", "schema"},
      {"config", "reference"},
      {"config", "init"},
      {"model", "summary", "small.yaml"},
      {"model", "summary", "small.yaml", "--json"},
      {"devices"},
      {"devices", "--json"},
      {"inspect", "run/best.safetensors"},
      {"inspect", "run/best.safetensors", "--json"},
      {"bench", "small.yaml", "--steps", "1", "--rounds", "1"},
      {"bench", "small.yaml", "--steps", "1", "--rounds", "1", "--json"},
      {"bench", "small.yaml", "--serve"}};
  int ends[2];
  REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
  close(ends[0]);
  for (const std::vector<std::string>& command : commands) {
    CAPTURE(command[0] + " " + (command.size() > 1 ? command[1] : "") + " " + command.back());
    CHECK(run_dpt(command, w.dir.path()).exit_code == 0);
    // A full device, a closed stream, and a pipe without a reader.
    for (const std::function<void()>& in_child :
         {std::function<void()>([] { write_to(1, "/dev/full"); }),
          std::function<void()>([] { close(1); }),
          std::function<void()>([&] { dup2(ends[1], 1); })}) {
      const Finished finished = run_dpt(command, w.dir.path(), in_child);
      CHECK(finished.exit_code == 3);
      CHECK(finished.err.find("dpt: error: cannot write the results to stdout: ") == 0);
    }
  }
  close(ends[1]);
  // The exit code is that of the first failure.
  const Finished finished = run_dpt({"eval", "run", "--json", "--require", "test/accuracy>=1.1"},
                                    w.dir.path(), [] { write_to(1, "/dev/full"); });
  CHECK(finished.exit_code == 7);
}

TEST_CASE("a run folder whose name is not UTF-8") {
  ShortRuns w;
  const std::string folder = "run-\xff\xfe";
  const Finished run = w.train(folder);
  INFO(run.err);
  CHECK(run.exit_code == 0);
  const json summary = json::parse(read_file(w.dir.file(folder + "/summary.json")));
  CHECK(summary["status"] == "ok");
  CHECK(summary["folder"] == "run-\ufffd\ufffd");
  CHECK(w.train(folder).exit_code == 0);
  const Finished more =
      run_dpt({"train", "small.yaml", "--run-dir", folder, "train.epochs=3"}, w.dir.path());
  INFO(more.err);
  CHECK(more.exit_code == 0);
  const Finished eval = run_dpt(
      {"eval", folder, "--json", "--predictions", folder + "/predictions.csv"}, w.dir.path());
  CHECK(eval.exit_code == 0);
  CHECK(json::accept(eval.out));
  CHECK(lines_of(read_file(w.dir.file(folder + "/predictions.csv"))).size() == 41);
  const Finished inspect =
      run_dpt({"inspect", folder + "/best.safetensors", "--json"}, w.dir.path());
  CHECK(inspect.exit_code == 0);
  CHECK(json::parse(inspect.out)["file"] == "run-\ufffd\ufffd/best.safetensors");
}

TEST_CASE("a broken image whose name is not UTF-8 keeps its message") {
  ShortRuns w;
  for (const char* label : {"a", "b"})
    fs::create_directories(w.dir.file(std::string("train/") + label));
  write_file(w.dir.file("train/a/bad-\xff.png"), "\x89PNG\r\n\x1a\nno more");
  write_file(w.dir.file("train/b/bad-\xff.png"), "\x89PNG\r\n\x1a\nno more");
  write_file(w.dir.file("pictures.yaml"), R"(
data: {dataset: image_folder, root: ., batch_size: 2}
model:
  input: [1, 8, 8]
  layers: [{type: Flatten}, {type: Linear, out_features: 2}]
optimizer: {type: SGD, lr: 0.1}
train: {epochs: 1}
devices: [cpu]
)");
  const Finished run = run_dpt({"train", "pictures.yaml", "--run-dir", "run"}, w.dir.path());
  CHECK(run.exit_code == 3);
  CHECK(run.err.find("bad-\xff.png") != std::string::npos);
  const std::vector<std::string> lines = lines_of(read_file(w.dir.file("run/metrics.jsonl")));
  REQUIRE(!lines.empty());
  const json end = json::parse(lines.back());
  CHECK(end["event"] == "run_end");
  CHECK(end["reason"].get<std::string>().find("bad-\ufffd.png") != std::string::npos);
}
