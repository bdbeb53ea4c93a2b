// Processes that are killed before one of their calls, each call in turn, while they replace,
// discard or restore a run. Afterwards, the run that --overwrite replaces is complete again, or the
// new one has a checkpoint.
#include <doctest/doctest.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <functional>
#include <set>

#include "engine/checkpoints/checkpoint.h"
#include "tests/io_faults/harness.h"
#include "tests/support/text.h"

namespace dpt::testing {
namespace {

namespace fs = std::filesystem;

using Words = std::vector<std::string>;
using Files = std::map<std::string, std::string>;

const Words kRun = {"train", "watched.yaml", "--run-dir", "run"};

/// A run folder. Its checkpoints/ is in it or on "another disk"; the tests use another folder as
/// this disk.
struct RunPlace {
  TempDir dir;
  explicit RunPlace(bool linked) {
    write_file(dir.file("watched.yaml"), watched_config());
    if (!linked) return;
    fs::create_directories(dir.file("run"));
    fs::create_directories(dir.file("disk"));
    fs::create_directory_symlink("../disk", dir.file("run/checkpoints"));
  }
  Finished run(const Words& words) const { return run_dpt(words, dir.path()); }
  Finished train(const Words& more) const {
    Words words = kRun;
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  }
  void train_well(const Words& more) const {
    const Finished finished = train(more);
    INFO(finished.err);
    REQUIRE(finished.exit_code == 0);
  }
  /// Returns the files of the run, including those behind a link, but not the files to which a
  /// later process adds messages.
  Files files() const {
    Files found;
    for (const auto& entry : fs::recursive_directory_iterator(
             dir.file("run"), fs::directory_options::follow_directory_symlink)) {
      const std::string name = fs::relative(entry.path(), fs::canonical(dir.file("run"))).string();
      const bool is_hidden = entry.path().filename().string().front() == '.';
      if (!entry.is_regular_file() || is_hidden || name == "train.log") continue;
      found[entry.path().string().substr(dir.file("run/").size())] = read_file(entry.path());
    }
    return found;
  }
};

/// Returns the tensors of all checkpoints among the files.
std::set<std::string> tensors_in(const RunPlace& place) {
  std::set<std::string> found;
  for (const auto& [name, bytes] : place.files()) {
    if (name.ends_with(".safetensors")) found.insert(tensors_of(place.dir.file("run/" + name)));
  }
  return found;
}

struct Case {
  std::string name;
  bool linked;
  std::vector<Words>
      before;     ///< arguments of dpt train, in sequence; the first creates the old run
  Words command;  ///< dpt command to kill
};

/// Kills the command before each of its calls in turn; `check` examines the place afterwards.
void check_kills(const Case& c,
                 const std::function<std::string(const RunPlace&, const Files&)>& check) {
  CAPTURE(c.name);
  CAPTURE(c.linked);
  const auto prepare = [&](RunPlace& place) {
    place.train_well(c.before.at(0));
    const Files old = place.files();
    for (std::size_t i = 1; i < c.before.size(); ++i) place.train_well(c.before[i]);
    return old;
  };
  RunPlace prepared(c.linked);
  const Files old = prepare(prepared);
  const auto copy_to = [&](const RunPlace& place) {
    fs::remove_all(place.dir.file("run"));
    fs::remove_all(place.dir.file("disk"));
    fs::copy(prepared.dir.path(), place.dir.path(),
             fs::copy_options::recursive | fs::copy_options::copy_symlinks |
                 fs::copy_options::overwrite_existing);
  };
  int calls = 0;
  {
    const RunPlace place(false);
    copy_to(place);
    const IoRun run = run_watched(c.command, place.dir.path(), place.dir.path());
    INFO(run.finished.err);
    REQUIRE(run.finished.exit_code == 0);
    calls = static_cast<int>(run.calls.size());
  }
  std::atomic<int> killed{0};
  const auto complaints = on_threads(calls, [&](int i) -> std::string {
    const RunPlace place(false);
    copy_to(place);
    const IoRun run =
        run_watched(c.command, place.dir.path(), place.dir.path(), IoFault{i + 1, "KILL"});
    if (run.finished.exit_code != -SIGKILL) return {};  // the run made fewer calls this time
    ++killed;
    const std::string complaint = check(place, old);
    if (complaint.empty()) return {};
    std::string last;
    for (const IoCall& call : run.calls) last = call.kind + " " + call.path;
    std::string listing;
    for (const auto& [name, bytes] : place.files()) listing += "\n  " + name;
    return fmt::format("{} {}: killed before call {}, after {}: {}{}", c.name, c.linked, i + 1,
                       last, complaint, listing);
  });
  for (const std::string& complaint : complaints) FAIL_CHECK(complaint);
  CHECK(killed > calls / 2);
  MESSAGE(c.name, ": killed before each of ", killed.load(), " calls");
}

std::string missing_of(const Files& old, const Files& now) {
  for (const auto& [name, bytes] : old) {
    const auto found = now.find(name);
    if (found == now.end()) return name + " of the old run is missing";
    if (found->second != bytes) return name + " of the old run has another content";
  }
  return {};
}

/// Checks the result of an unfinished --overwrite: the old run comes back, or the new one has a
/// checkpoint.
std::string old_or_new(const RunPlace& place, const Files& old) {
  const Finished again = place.run({"runs", "--restore", "run"});
  if (again.exit_code == 0 || !fs::exists(place.dir.file("run/checkpoints"))) {
    return missing_of(old, place.files());
  }
  if (again.exit_code != 2) return "dpt runs --restore: " + again.err;
  // There is nothing to restore: the old run is in place, or the new one has its first regular
  // checkpoint.
  if (missing_of(old, place.files()).empty()) return {};
  const std::int64_t step = newest_step(place.dir.file("run"));
  return step == 0 ? "neither the old run nor a checkpoint of the new one is there: " + again.err
                   : std::string();
}

}  // namespace

TEST_CASE("killed before any call of --overwrite: the old run, or a checkpoint of the new one") {
  for (const bool linked : {false, true}) {
    check_kills({"overwrite",
                 linked,
                 {{"seed=9"}},
                 {"train", "watched.yaml", "--run-dir", "run", "--overwrite", "--max-steps", "4"}},
                old_or_new);
  }
}

TEST_CASE("killed before any call of a second --overwrite: the oldest run is kept") {
  for (const bool linked : {false, true}) {
    check_kills({"second overwrite",
                 linked,
                 {{"seed=9"}, {"seed=8", "--overwrite", "--max-steps", "2"}},
                 {"train", "watched.yaml", "--run-dir", "run", "--overwrite", "--max-steps", "2"}},
                [](const RunPlace& place, const Files& old) -> std::string {
                  const Finished again = place.run({"runs", "--restore", "run"});
                  if (again.exit_code != 0) return "dpt runs --restore: " + again.err;
                  return missing_of(old, place.files());
                });
  }
}

TEST_CASE("killed before any call of dpt runs --restore: both runs are there when it is repeated") {
  for (const bool linked : {false, true}) {
    RunPlace whole(linked);
    whole.train_well({"seed=9"});
    whole.train_well({"--overwrite", "--max-steps", "2"});
    const std::set<std::string> both = tensors_in(whole);
    check_kills({"restore",
                 linked,
                 {{"seed=9"}, {"--overwrite", "--max-steps", "2"}},
                 {"runs", "--restore", "run"}},
                [&](const RunPlace& place, const Files& old) -> std::string {
                  const Finished again = place.run({"runs", "--restore", "run"});
                  if (again.exit_code != 0 && again.exit_code != 2) {
                    return "dpt runs --restore: " + again.err;
                  }
                  if (tensors_in(place) != both) return "a checkpoint is missing";
                  for (const char* name : {"replaced", "checkpoints/replaced", "replaced.moving",
                                           "replaced.restoring", "checkpoints/abandoned-2"}) {
                    if (fs::exists(place.dir.file(std::string("run/") + name))) {
                      return std::string(name) + " is left";
                    }
                  }
                  return missing_of(old, place.files());
                });
  }
}

}  // namespace dpt::testing
