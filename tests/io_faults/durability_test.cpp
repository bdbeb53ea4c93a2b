// Work that the log calls saved survives a power cut, given the actual order of a run's writes,
// fsyncs and renames. See crash_model.h.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/checkpoints/checkpoint.h"
#include "tests/io_faults/crash_model.h"
#include "tests/io_faults/harness.h"

namespace dpt::testing {
namespace {

namespace fs = std::filesystem;
using Keeps = CrashModel::Keeps;

struct Watched {
  TempDir dir;
  std::vector<std::string> command = {"train", "watched.yaml", "--run-dir", "run"};
  Watched() { write_file(dir.file("watched.yaml"), watched_config()); }
  std::string folder() const { return dir.file("run"); }
  void prepare(const std::vector<std::string>& more) const {
    std::vector<std::string> words = command;
    words.insert(words.end(), more.begin(), more.end());
    const Finished run = run_dpt(words, dir.path());
    INFO(run.err);
    REQUIRE(run.exit_code == 0);
  }
  IoRun run() const { return run_watched(command, dir.path(), dir.path()); }
};

bool is_published(const std::string& path) {
  return path.ends_with(".safetensors") || path.ends_with(".json") || path.ends_with(".yaml") ||
         path.ends_with("command.txt");
}

/// Steps of the newest and the best checkpoint that are saved according to the lines given to
/// read().
struct Saved {
  std::int64_t newest = 0, best = 0;
  void read(const std::string& lines) {
    std::istringstream in(lines);
    for (std::string line; std::getline(in, line);) {
      const auto event = nlohmann::json::parse(line, nullptr, false);
      if (!event.is_object() || event.value("event", "") != "checkpoint") continue;
      newest = std::max(newest, event["step"].get<std::int64_t>());
      if (event.value("best", false)) best = event["step"].get<std::int64_t>();
    }
  }
};

/// Returns the tensors of each intact checkpoint among the files.
std::set<std::string> intact_tensors(const std::map<std::string, std::string>& files,
                                     const TempDir& scratch) {
  std::set<std::string> found;
  for (const auto& [path, bytes] : files) {
    if (!path.ends_with(".safetensors")) continue;
    write_file(scratch.file("one"), bytes);
    const std::string tensors = tensors_of(scratch.file("one"));
    if (!tensors.empty()) found.insert(tensors);
  }
  return found;
}

/// Returns the highest step of the intact checkpoints in `folder`/checkpoints of a crashed disk.
std::int64_t newest_on_disk(const std::map<std::string, std::string>& files,
                            const std::string& folder, const TempDir& scratch) {
  std::int64_t newest = 0;
  for (const auto& [path, bytes] : files) {
    if (parent_of(path) != folder + "/checkpoints" || !path.ends_with(".safetensors")) continue;
    write_file(scratch.file("one"), bytes);
    if (tensors_of(scratch.file("one")).empty()) continue;
    newest = std::max(newest, read_checkpoint_header(scratch.file("one")).state.step);
  }
  return newest;
}

}  // namespace

TEST_CASE("every published file: fsync, rename, then fsync of its folder before anything goes") {
  const Watched w;
  const IoRun run = w.run();
  INFO(run.finished.err);
  REQUIRE(run.finished.exit_code == 0);
  std::map<std::uint64_t, bool> is_durable;  // by inode; true if not written since its last fsync
  std::set<std::string> waiting;             // folders with a new name that is not durable yet
  int published = 0;
  for (const IoCall& call : run.calls) {
    CAPTURE(call.number);
    CAPTURE(call.path);
    if (call.error != 0) continue;
    if (call.kind == "write") is_durable[call.inode] = false;
    if (call.kind == "fsync") is_durable[call.inode] = true;
    if (call.kind == "fsync_folder") waiting.erase(call.path);
    if (call.kind == "rename" && is_published(call.second)) {
      ++published;
      CHECK(is_durable[call.inode]);
      waiting.insert(parent_of(call.second));
    }
    // An older file may be removed only when the newer one is safe.
    const bool removes = call.kind == "unlink" && call.path.ends_with(".safetensors");
    if (removes) CHECK(waiting.count(parent_of(call.path)) == 0);
    // The log must not mention a checkpoint that a power cut may take back.
    if (call.kind == "write" && call.path.ends_with("metrics.jsonl")) {
      const std::string text = run.data.substr(call.data_at, static_cast<std::size_t>(call.bytes));
      if (text.find("\"event\":\"checkpoint\"") != std::string::npos) CHECK(waiting.empty());
    }
  }
  CHECK(waiting.empty());
  CHECK(published > 8);
}

TEST_CASE("a power cut after any call loses no checkpoint that the log calls saved") {
  for (const char* which : {"fresh", "resumed"}) {
    CAPTURE(which);
    const Watched w;
    if (std::string(which) == "resumed") w.prepare({"--max-steps", "7"});
    const std::int64_t old_step = newest_step(w.folder());
    CrashModel disk(w.dir.path());
    const IoRun run = w.run();
    REQUIRE(run.finished.exit_code == 0);
    const std::string best = tensors_of(w.folder() + "/best.safetensors");
    const TempDir scratch;
    Saved saved;
    std::set<std::map<std::string, std::string>> seen;
    for (const IoCall& call : run.calls) {
      CAPTURE(call.number);
      CAPTURE(call.kind);
      CAPTURE(call.path);
      disk.apply(call, run.data);
      if (call.kind == "write" && call.path.ends_with("metrics.jsonl")) {
        saved.read(run.data.substr(call.data_at, static_cast<std::size_t>(call.bytes)));
      }
      for (const Keeps keeps : {Keeps::nothing, Keeps::names}) {
        CAPTURE(static_cast<int>(keeps));
        const auto files = disk.after_crash(keeps);
        CHECK(newest_on_disk(files, w.folder(), scratch) >= std::max(saved.newest, old_step));
        if (saved.best > 0) CHECK(files.count(w.folder() + "/best.safetensors") == 1);
      }
    }
    CHECK(saved.newest == 15);
    CHECK(intact_tensors(disk.after_crash(Keeps::nothing), scratch).count(best) == 1);
  }
}

TEST_CASE("a power cut while a run replaces another leaves one of the two") {
  Watched w;
  w.prepare({"seed=9"});
  const TempDir scratch;
  CrashModel disk(w.dir.path());
  const auto before = intact_tensors(disk.after_crash(Keeps::nothing), scratch);
  REQUIRE(!before.empty());
  w.command.push_back("--overwrite");
  const IoRun run = w.run();
  INFO(run.finished.err);
  REQUIRE(run.finished.exit_code == 0);
  for (const IoCall& call : run.calls) {
    CAPTURE(call.number);
    CAPTURE(call.kind);
    CAPTURE(call.path);
    disk.apply(call, run.data);
    for (const Keeps keeps : {Keeps::nothing, Keeps::names}) {
      CAPTURE(static_cast<int>(keeps));
      const auto now = intact_tensors(disk.after_crash(keeps), scratch);
      bool has_new = false;
      for (const std::string& tensors : now) has_new = has_new || before.count(tensors) == 0;
      const bool has_old = std::includes(now.begin(), now.end(), before.begin(), before.end());
      CHECK((has_new || has_old));
    }
  }
}

TEST_CASE("a power cut does not bring back the branch that a resume has left") {
  Watched w;
  w.prepare({"checkpoint.keep_last=9"});
  REQUIRE(newest_step(w.folder()) == 15);
  for (const char* word : {"checkpoint.keep_last=9", "--max-steps", "8", "--resume",
                           "run/checkpoints/step-00000006.safetensors"}) {
    w.command.emplace_back(word);
  }
  CrashModel disk(w.dir.path());
  const IoRun run = w.run();
  INFO(run.finished.err);
  REQUIRE(run.finished.exit_code == 0);
  const TempDir scratch;
  bool has_begun = false;
  std::int64_t newest = 0;
  for (const IoCall& call : run.calls) {
    disk.apply(call, run.data);
    // The abandoned branch's copy of the log is written before its checkpoints move.
    const bool is_copy = call.path.find("/abandoned-") != std::string::npos;
    has_begun = has_begun ||
                (!is_copy && run.data.substr(call.data_at, static_cast<std::size_t>(call.bytes))
                                     .find("\"event\":\"run_start\"") != std::string::npos);
    if (!has_begun) continue;
    for (const Keeps keeps : {Keeps::nothing, Keeps::names}) {
      newest = newest_on_disk(disk.after_crash(keeps), w.folder(), scratch);
      CHECK(newest >= 6);
      CHECK(newest <= 8);
    }
  }
  CHECK(newest == 8);
}

TEST_CASE("after a power cut at any call the same command ends with the undisturbed bits") {
  const Watched w;
  CrashModel disk(w.dir.path());
  const IoRun run = w.run();
  REQUIRE(run.finished.exit_code == 0);
  const Outcome want = outcome_of(w.folder());
  // Each distinct state of the disk is checked once.
  std::vector<std::map<std::string, std::string>> states;
  std::set<std::map<std::string, std::string>> seen;
  for (const IoCall& call : run.calls) {
    disk.apply(call, run.data);
    for (const Keeps keeps : {Keeps::nothing, Keeps::names}) {
      auto files = disk.after_crash(keeps);
      if (seen.insert(files).second) states.push_back(std::move(files));
    }
  }
  const auto complaints = on_threads(static_cast<int>(states.size()), [&](int i) -> std::string {
    const TempDir place;
    std::string listing;
    for (const auto& [path, bytes] : states[i]) {
      const std::string relative = path.substr(w.dir.path().size() + 1);
      fs::create_directories(parent_of(place.file(relative)));
      write_file(place.file(relative), bytes);
      listing += fmt::format("\n  {} ({} bytes)", relative, bytes.size());
    }
    const Finished again = run_dpt(w.command, place.path());
    if (again.exit_code == 0 && outcome_of(place.file("run")) == want) return {};
    return fmt::format("from these files:{}\nexit code {}, {}", listing, again.exit_code,
                       again.err);
  });
  for (const std::string& complaint : complaints) FAIL_CHECK(complaint);
  MESSAGE(states.size(), " states of the disk");
}

}  // namespace dpt::testing
