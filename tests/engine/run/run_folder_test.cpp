// The run folder: its lock, files that are set aside and come back, and the check whether a folder
// is a run's.
#include "engine/run/run_folder.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/file.h>

#include <filesystem>
#include <functional>
#include <optional>

#include "engine/checkpoints/checkpoint.h"
#include "kernels/base/file_handle.h"
#include "kernels/base/file_io.h"
#include "tests/engine/checkpoints/small_plan.h"
#include "tests/support/temp_dir.h"
#include "tests/support/text.h"

using namespace dpt;
using namespace dpt::testing;

namespace {

namespace fs = std::filesystem;

constexpr const char* kAllFiles[] = {
    "best.safetensors", "config.yaml",   "command.txt",  "env.json",
    "train.log",        "metrics.jsonl", "summary.json", "metrics.abandoned.jsonl",
    "tensorboard",      "report.html"};

/// Writes every file of a run, each with its name as content.
void write_run(const std::string& folder) {
  fs::create_directories(folder + "/checkpoints");
  for (const char* name : kAllFiles) write_file_atomically(folder + "/" + name, name);
  const Plan plan = small_plan();
  save_checkpoint(folder + "/checkpoints/" + checkpoint_name(7), plan, small_checkpoint(plan, 7));
}

std::string refusal(const std::function<void()>& call, ErrorKind kind) {
  try {
    call();
  } catch (const Error& error) {
    CHECK(error.kind() == kind);
    return error.what();
  }
  return "nothing";
}

}  // namespace

TEST_CASE("a run folder is held by one, also after it was moved") {
  const TempDir dir;
  const std::string path = dir.file("a/b/run");
  std::optional<RunFolder> first(path);
  CHECK(fs::is_directory(path + "/checkpoints"));
  CHECK(first->path() == path);
  CHECK(first->file("x") == path + "/x");
  CHECK(first->best() == path + "/best.safetensors");
  CHECK_FALSE(first->restored());
  const auto open = [&] { RunFolder second(path); };
  check_contains(refusal(open, ErrorKind::usage), path + " is in use by another dpt process");
  {
    const RunFolder moved = std::move(*first);
    first.reset();
    CHECK(moved.path() == path);
    check_contains(refusal(open, ErrorKind::usage), "is in use by another dpt process");
  }
  CHECK(refusal(open, ErrorKind::usage) == "nothing");

  write_file_atomically(dir.file("file"), "");
  check_contains(refusal([&] { RunFolder inside(dir.file("file/run")); }, ErrorKind::data),
                 "cannot create the run folder " + dir.file("file/run"));
  fs::create_directories(dir.file("locked/.lock"));
  check_contains(refusal([&] { RunFolder inside(dir.file("locked")); }, ErrorKind::data),
                 "cannot write into the run folder " + dir.file("locked"));
}

TEST_CASE("set aside: all that a run wrote moves, and comes back as it was") {
  const TempDir dir;
  RunFolder folder(dir.file("run"));
  folder.set_aside();
  CHECK_FALSE(fs::exists(folder.file("replaced")));  // There was nothing to replace.
  CHECK_FALSE(folder.put_back());

  write_run(folder.path());
  write_file_atomically(folder.file("summary.json.tmp"), "half");
  const std::string inside = folder.checkpoint(7);
  write_file_atomically(dir.file("elsewhere"), "");
  CHECK(folder.after_set_aside(inside) ==
        folder.file("replaced/checkpoints/") + checkpoint_name(7));
  CHECK(folder.after_set_aside(folder.best()) == folder.file("replaced/best.safetensors"));
  CHECK(folder.after_set_aside(folder.checkpoints()) == folder.file("replaced/checkpoints"));
  for (const std::string& stays : {std::string(), dir.file("elsewhere"), folder.file(".lock"),
                                   folder.checkpoints() + "/no-such-file"}) {
    CHECK(folder.after_set_aside(stays) == stays);
  }

  folder.set_aside();
  for (const char* name : kAllFiles) {
    CAPTURE(name);
    CHECK_FALSE(fs::exists(folder.file(name)));
    CHECK(read_whole_file(folder.file(std::string("replaced/") + name)) == name);
  }
  CHECK_FALSE(fs::exists(folder.file("summary.json.tmp")));
  CHECK(fs::is_directory(folder.checkpoints()));
  CHECK(list_checkpoints(folder.checkpoints()).empty());
  CHECK(list_checkpoints(folder.file("replaced/checkpoints")).size() == 1);

  // Files that the new run has written must not prevent the old ones from coming back.
  write_file_atomically(folder.file("metrics.jsonl"), "new");
  SUBCASE("put back") {
    CHECK(folder.put_back());
    for (const char* name : kAllFiles) CHECK(read_whole_file(folder.file(name)) == name);
    CHECK(list_checkpoints(folder.checkpoints()).size() == 1);
    CHECK_FALSE(fs::exists(folder.file("replaced")));
    CHECK_FALSE(folder.put_back());
  }
  SUBCASE("given up") {
    folder.give_up_replaced();
    CHECK_FALSE(fs::exists(folder.file("replaced")));
    CHECK_FALSE(fs::exists(folder.file("replaced.tmp")));
    CHECK(read_whole_file(folder.file("metrics.jsonl")) == "new");
    CHECK_FALSE(folder.put_back());
    folder.give_up_replaced();
  }
}

TEST_CASE("a folder with checkpoints alone, or with one file alone, is set aside too") {
  const TempDir dir;
  RunFolder folder(dir.file("run"));
  const Plan plan = small_plan();
  save_checkpoint(folder.checkpoint(3), plan, small_checkpoint(plan, 3));
  folder.set_aside();
  CHECK(list_checkpoints(folder.file("replaced/checkpoints")).size() == 1);
  CHECK(folder.put_back());
  CHECK(list_checkpoints(folder.checkpoints()).size() == 1);
  fs::remove_all(folder.checkpoints());
  fs::create_directory(folder.checkpoints());
  write_file_atomically(folder.file("summary.json"), "x");
  folder.set_aside();
  CHECK(fs::exists(folder.file("replaced/summary.json")));
}

TEST_CASE("a crash of --overwrite leaves the old run while the new one has saved nothing") {
  const TempDir dir;
  const std::string path = dir.file("run");
  {
    RunFolder folder(path);
    write_run(path);
    folder.set_aside();
  }
  SUBCASE("nothing saved") {
    const RunFolder folder(path);
    CHECK(folder.restored());
    CHECK(read_whole_file(folder.file("config.yaml")) == "config.yaml");
    CHECK_FALSE(fs::exists(folder.file("replaced")));
  }
  SUBCASE("saved") {
    const Plan plan = small_plan();
    save_checkpoint(path + "/checkpoints/" + checkpoint_name(1), plan, small_checkpoint(plan, 1));
    RunFolder folder(path);
    CHECK_FALSE(folder.restored());
    CHECK(folder.has_replaced());
    CHECK_FALSE(fs::exists(folder.file("config.yaml")));
    CHECK(list_checkpoints(folder.checkpoints()).size() == 1);
    folder.give_up_replaced();
    CHECK_FALSE(folder.has_replaced());
    CHECK_FALSE(fs::exists(folder.file("replaced")));
  }
  SUBCASE("in the middle of setting aside") {
    // The name replaced.moving means that every file still in the run folder belongs to the old
    // run.
    fs::rename(path + "/replaced", path + "/replaced.moving");
    fs::rename(path + "/replaced.moving/config.yaml", path + "/config.yaml");
    const RunFolder folder(path);
    CHECK(folder.restored());
    for (const char* name : kAllFiles) CHECK(read_whole_file(folder.file(name)) == name);
    CHECK(list_checkpoints(folder.checkpoints()).size() == 1);
  }
  SUBCASE("in the middle of the removal") {
    fs::rename(path + "/replaced", path + "/replaced.tmp");
    const RunFolder folder(path);
    CHECK_FALSE(folder.restored());
    CHECK_FALSE(fs::exists(folder.file("replaced.tmp")));
  }
  SUBCASE("when all but the checkpoints were back") {
    // The checkpoints come back last: once they are in place, nothing is left to restore.
    fs::remove(path + "/checkpoints");
    fs::rename(path + "/replaced/checkpoints", path + "/checkpoints");
    for (const char* name : kAllFiles) fs::remove(path + "/replaced/" + std::string(name));
    const RunFolder folder(path);
    CHECK_FALSE(folder.restored());
    CHECK_FALSE(fs::exists(folder.file("replaced")));
    CHECK(list_checkpoints(folder.checkpoints()).size() == 1);
  }
}

TEST_CASE("put back: a crash on the way, and a best of the new run that the old one has not") {
  const TempDir dir;
  const std::string path = dir.file("run");
  const auto is_old_run = [&](const RunFolder& folder, bool with_best) {
    for (const char* name : kAllFiles) {
      CAPTURE(name);
      const bool is_best = folder.file(name) == folder.best();
      REQUIRE(fs::exists(folder.file(name)) == (!is_best || with_best));
      if (!is_best || with_best) CHECK(read_whole_file(folder.file(name)) == name);
    }
    CHECK(list_checkpoints(folder.checkpoints()).size() == 1);
    CHECK_FALSE(fs::exists(folder.file("replaced")));
  };
  for (const bool with_best : {false, true}) {
    CAPTURE(with_best);
    const auto replace = [&] {
      fs::remove_all(path);
      RunFolder folder(path);
      write_run(path);
      if (!with_best) fs::remove(folder.best());
      folder.set_aside();
      for (const char* name : {"best.safetensors", "metrics.jsonl", "env.json"}) {
        write_file_atomically(folder.file(name), "new");
      }
    };
    replace();
    {
      const RunFolder folder(path);
      CHECK(folder.restored());
      const std::string kept = folder.checkpoints() + "/abandoned-1";
      CHECK(folder.kept_of_new() == kept);
      CHECK(read_whole_file(kept + "/best.safetensors") == "new");
      CHECK(read_whole_file(kept + "/metrics.jsonl") == "new");
      CHECK_FALSE(fs::exists(kept + "/env.json"));
      is_old_run(folder, with_best);
    }
    // The state after a crash when the new run's files are gone and some of the old ones are back.
    replace();
    fs::remove_all(path + "/checkpoints");
    for (const char* name : {"best.safetensors", "metrics.jsonl", "env.json"}) {
      fs::remove(path + "/" + name);
    }
    if (with_best) fs::rename(path + "/replaced/best.safetensors", path + "/best.safetensors");
    fs::rename(path + "/replaced/metrics.jsonl", path + "/metrics.jsonl");
    const RunFolder folder(path);
    CHECK(folder.restored());
    CHECK(folder.kept_of_new().empty());
    is_old_run(folder, with_best);
  }
}

TEST_CASE("foreign files are refused by name, a run's own and half-written files are not") {
  const TempDir dir;
  RunFolder folder(dir.file("run"));
  write_run(folder.path());
  fs::create_directory(folder.file("replaced"));
  for (const char* name : kAllFiles) {
    write_file_atomically(folder.file(name) + std::string(".part"), "");
    fs::rename(folder.file(name) + std::string(".part"), folder.file(name) + std::string(".tmp"));
  }
  CHECK(refusal([&] { folder.check_only_ours(); }, ErrorKind::usage) == "nothing");
  for (const char* name : {"notes", "notes.tmp", "config.yaml.bak", "best"}) {
    write_file_atomically(folder.file(name), "");
    check_contains(refusal([&] { folder.check_only_ours(); }, ErrorKind::usage),
                   folder.path() + " holds " + name + ", which is not part of a run");
    fs::remove(folder.file(name));
  }
}

TEST_CASE("folders for what is left aside are numbered") {
  const TempDir dir;
  const RunFolder folder(dir.file("run"));
  CHECK(folder.make_abandoned().text() == folder.checkpoints() + "/abandoned-1");
  CHECK(folder.make_abandoned().text() == folder.checkpoints() + "/abandoned-2");
  CHECK(fs::is_directory(folder.checkpoints() + "/abandoned-2"));
  fs::remove(folder.checkpoints() + "/abandoned-1");
  CHECK(folder.make_abandoned().text() == folder.checkpoints() + "/abandoned-1");
}

TEST_CASE("the run of a folder is in replaced/ only while a new one has no checkpoint") {
  const TempDir dir;
  CHECK(folder_of_run(dir.path()) == dir.path());
  fs::create_directories(dir.file("replaced/checkpoints"));
  CHECK(folder_of_run(dir.path()) == dir.file("replaced"));
  fs::create_directories(dir.file("checkpoints"));
  CHECK(folder_of_run(dir.path()) == dir.file("replaced"));
  write_file_atomically(dir.file("checkpoints/" + checkpoint_name(1)), "x");
  CHECK(folder_of_run(dir.path()) == dir.path());
  fs::remove_all(dir.file("checkpoints"));
  // A folder named replaced/ that dpt did not create does not count.
  write_file_atomically(dir.file("replaced/notes.txt"), "mine");
  CHECK(folder_of_run(dir.path()) == dir.path());
}

TEST_CASE("a folder is a run's when it has a config, checkpoints, or one that was replaced") {
  const TempDir dir;
  CHECK_FALSE(is_run_folder(dir.file("none")));
  CHECK_FALSE(is_run_folder(dir.path()));
  fs::create_directories(dir.file("a/checkpoints"));
  CHECK_FALSE(is_run_folder(dir.file("a")));
  write_file_atomically(dir.file("a/checkpoints/x"), "");
  CHECK(is_run_folder(dir.file("a")));
  fs::create_directory(dir.file("b"));
  write_file_atomically(dir.file("b/config.yaml"), "");
  CHECK(is_run_folder(dir.file("b")));
  fs::create_directories(dir.file("c/replaced"));
  CHECK(is_run_folder(dir.file("c")));
  fs::create_directory(dir.file("d"));
  write_file_atomically(dir.file("d/checkpoints"), "a file");
  CHECK_FALSE(is_run_folder(dir.file("d")));
}

TEST_CASE("the lock is seen without being taken, and locks of other programs do not count") {
  const TempDir dir;
  const std::string path = dir.file("run");
  CHECK_FALSE(is_locked_run(path));
  {
    const RunFolder folder(path);
    CHECK(is_locked_run(path));
    CHECK(is_locked_run(path));
  }
  CHECK_FALSE(is_locked_run(path));
  // An earlier version of dpt does not announce its lock, but the lock is found all the same.
  const FileHandle file = open_file(path + "/.lock", O_RDWR);
  REQUIRE(::flock(file.fd(), LOCK_EX | LOCK_NB) == 0);
  CHECK(is_locked_run(path));
  check_contains(refusal([&] { RunFolder second(path); }, ErrorKind::usage), "is in use by");
  // A reader of an earlier version holds a shared lock for a moment. This lock does not count.
  REQUIRE(::flock(file.fd(), LOCK_SH | LOCK_NB) == 0);
  CHECK_FALSE(is_locked_run(path));
}

TEST_CASE(
    "a folder that was moved, one that was removed and one that was taken over are distinguished") {
  const TempDir dir;
  const std::string path = dir.file("run");
  RunFolder folder(path);
  CHECK(folder.check_held().empty());
  CHECK(folder.current_path() == path);
  fs::rename(path, dir.file("moved"));
  check_contains(folder.check_held(), "was moved to " + dir.file("moved"));
  CHECK(folder.check_held().empty());
  CHECK(folder.current_path() == dir.file("moved"));
  write_file_atomically(folder.at("summary.json"), "x");
  CHECK(fs::exists(dir.file("moved/summary.json")));
  CHECK_FALSE(fs::exists(path));
  SUBCASE("removed") {
    fs::remove_all(dir.file("moved"));
    check_contains(refusal([&] { folder.check_held(); }, ErrorKind::data),
                   "was removed or replaced");
    CHECK_FALSE(fs::exists(dir.file("moved")));
  }
  SUBCASE("taken over") {
    fs::remove(dir.file("moved/.lock"));
    const RunFolder other(dir.file("moved"));
    check_contains(refusal([&] { folder.check_held(); }, ErrorKind::data),
                   "was removed or replaced");
  }
  SUBCASE("the lock alone was removed") {
    fs::remove(dir.file("moved/.lock"));
    CHECK(folder.check_held().empty());
    check_contains(refusal([&] { RunFolder second(dir.file("moved")); }, ErrorKind::usage),
                   "is in use by another dpt process");
  }
}

TEST_CASE("checkpoints elsewhere: writes reach the folder that is held, others stay as they are") {
  const TempDir dir;
  const std::string path = dir.file("run"), mine = dir.file("mine"), other = dir.file("other");
  for (const std::string& folder : {path, mine, other}) fs::create_directory(folder);
  fs::create_directory_symlink(mine, path + "/checkpoints");
  RunFolder folder(path);
  CHECK(folder.check_held().empty());
  // A link to the same folder counts as the same folder.
  fs::remove(path + "/checkpoints");
  fs::create_directory_symlink("../mine", path + "/checkpoints");
  CHECK(folder.check_held().empty());
  write_file_atomically(other + "/" + checkpoint_name(1), "x");
  fs::remove(path + "/checkpoints");
  fs::create_directory_symlink(other, path + "/checkpoints");
  const std::string text = path + "/checkpoints no longer leads to " +
                           fs::canonical(mine).string() + ": it is a link to " +
                           fs::canonical(other).string();
  for (const auto& call : std::vector<std::function<void()>>{
           [&] { folder.check_held(); }, [&] { folder.set_aside(); }, [&] { folder.put_back(); },
           [&] { folder.give_up_replaced(); }}) {
    check_contains(refusal(call, ErrorKind::data), text);
  }
  write_file_atomically(folder.at("checkpoints/" + checkpoint_name(2)), "x");
  write_file_atomically(folder.checkpoint_place(3), "x");
  CHECK(folder.make_abandoned().text() == path + "/checkpoints/abandoned-1");
  CHECK(list_steps(folder.at("checkpoints")) == std::vector<std::int64_t>{3, 2});
  CHECK(list_names(other) == std::vector<std::string>{checkpoint_name(1)});
  CHECK(fs::exists(mine + "/abandoned-1"));
}

TEST_CASE("a free folder is one that no other process holds") {
  const TempDir dir;
  const auto here = fs::current_path();
  fs::current_path(dir.path());
  {
    const RunFolder first = open_free_run_folder("a", {});
    const RunFolder second = open_free_run_folder("a", {});
    CHECK(first.path() == "runs/a");
    CHECK(second.path() == "runs/a-2");
  }
  CHECK(open_free_run_folder("a", {}).path() == "runs/a");
  write_file_atomically("runs/a/config.yaml", "a run's");
  CHECK(open_free_run_folder("a", {}).path() == "runs/a-2");
  fs::current_path(here);
}

TEST_CASE(
    "a new folder is removed with what the run wrote, unless weights or files of others are "
    "there") {
  const TempDir dir;
  const auto remains = [&](const std::string& file) {
    const std::string path = dir.file("run");
    fs::remove_all(path);
    RunFolder folder(path);
    write_file_atomically(folder.at("config.yaml"), "x");
    if (!file.empty()) {
      make_folders(folder_of(path + "/" + file));
      write_file_atomically(path + "/" + file, "x");
    }
    folder.remove_if_new();
    return fs::exists(path);
  };
  CHECK_FALSE(remains(""));
  CHECK_FALSE(remains("tensorboard/events.out.tfevents.1.dpt"));
  for (const std::string file : {"notes.txt", "best.safetensors", "logs/rank-1.log"}) {
    CHECK(remains(file));
    CHECK(fs::exists(dir.file("run/" + file)));
  }
  CHECK(remains("checkpoints/" + checkpoint_name(3)));
  {
    RunFolder again(dir.file("run"));
    fs::remove(dir.file("run/checkpoints/" + checkpoint_name(3)));
    again.remove_if_new();
  }
  CHECK(fs::exists(dir.file("run/config.yaml")));
}
