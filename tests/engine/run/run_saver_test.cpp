// Consecutive saves: the files on the disk after each, and the saver's result.
#include "engine/run/run_saver.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>

#include "engine/checkpoints/checkpoint.h"
#include "engine/run/run_folder.h"
#include "kernels/base/file_io.h"
#include "tests/engine/checkpoints/small_plan.h"
#include "tests/support/temp_dir.h"
#include "tests/support/text.h"

using namespace dpt;
using namespace dpt::testing;

namespace {

namespace fs = std::filesystem;

using Steps = std::vector<std::int64_t>;

/// A run folder with a saver, and requests like the trainer's.
struct Saves {
  explicit Saves(std::int64_t keep_last, std::int64_t pinned = -1, bool keeps_rollback_step = false)
      : saver(folder, plan, keep_last, pinned, keeps_rollback_step) {}

  SaveRequest request(std::int64_t step, bool keep, bool is_best) {
    SaveRequest made{small_checkpoint(plan, step), keep, is_best};
    made.checkpoint.state.rollback_step = rollback_step;
    if (is_best) {
      best_step = step;
      best = 0.01 * static_cast<double>(step);
      best_checksum.clear();
    }
    made.checkpoint.state.best_step = best_step;
    made.checkpoint.state.best = best;
    made.checkpoint.state.best_checksum = best_checksum;
    return made;
  }
  SaveResult save(std::int64_t step, bool keep, bool is_best) {
    saver.start(request(step, keep, is_best));
    const auto result = saver.wait();
    REQUIRE(result.has_value());
    CHECK_FALSE(saver.wait().has_value());
    if (result->best_moved) best_checksum = result->checksum;
    return *result;
  }
  Steps steps() const {
    Steps found;
    for (const std::string& path : list_checkpoints(folder.checkpoints())) {
      found.push_back(step_of_checkpoint(fs::path(path).filename().string()));
    }
    return found;
  }
  std::int64_t best_on_disk() const { return read_checkpoint_header(folder.best()).state.step; }

  TempDir dir;
  RunFolder folder{dir.file("run")};
  Plan plan = small_plan();
  std::int64_t rollback_step = -1;
  std::int64_t best_step = 0;
  std::optional<double> best;
  std::string best_checksum;
  RunSaver saver;
};

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& thrown) {
    return thrown.what();
  }
}

}  // namespace

TEST_CASE("a save says what it saved: as a checkpoint, as the best, as both") {
  Saves s(5);
  CHECK_FALSE(s.saver.poll().has_value());
  CHECK_FALSE(s.saver.wait().has_value());

  const SaveResult kept = s.save(4, true, false);
  CHECK(kept.step == 4);
  CHECK(kept.epoch == 2);
  CHECK(kept.path == "checkpoints/step-00000004.safetensors");
  CHECK(kept.keep);
  CHECK_FALSE(kept.is_best);
  CHECK_FALSE(kept.best_moved);
  CHECK(kept.error == nullptr);
  CHECK(kept.warnings.empty());
  CHECK(kept.checksum == read_checkpoint_header(s.folder.file(kept.path)).checksum);
  CHECK_FALSE(fs::exists(s.folder.best()));

  const SaveResult best = s.save(5, false, true);
  CHECK(best.path == "best.safetensors");
  CHECK_FALSE(best.keep);
  CHECK(best.is_best);
  CHECK(best.best_moved);
  CHECK(s.best_on_disk() == 5);
  CHECK(s.steps() == Steps{4});

  const SaveResult both = s.save(6, true, true);
  CHECK(both.path == "checkpoints/step-00000006.safetensors");
  CHECK(both.best_moved);
  CHECK(s.best_on_disk() == 6);
  CHECK(read_whole_file(s.folder.best()) == read_whole_file(s.folder.file(both.path)));
  // The files are separate copies: a write into one does not change the other.
  CHECK_FALSE(fs::equivalent(s.folder.best(), s.folder.file(both.path)));
  CHECK(s.steps() == Steps{6, 4});
}

TEST_CASE("a result is there for poll once, when the write is over") {
  Saves s(5);
  s.saver.start(s.request(3, true, false));
  std::optional<SaveResult> result;
  while (!(result = s.saver.poll())) std::this_thread::yield();
  CHECK(result->step == 3);
  CHECK_FALSE(s.saver.poll().has_value());
  CHECK_FALSE(s.saver.wait().has_value());
}

TEST_CASE("checkpoints that stay: keep_last, the pinned step, the step of a rollback") {
  Saves s(2, 0, true);
  for (const std::int64_t step : {0, 1, 2, 3}) CHECK(s.save(step, true, false).warnings.empty());
  CHECK(s.steps() == Steps{3, 2, 0});
  s.rollback_step = 2;
  s.save(4, true, false);
  s.save(5, true, false);
  CHECK(s.steps() == Steps{5, 4, 2, 0});
  s.rollback_step = 4;
  s.save(6, true, false);
  CHECK(s.steps() == Steps{6, 5, 4, 0});
  // Saving only a best removes nothing.
  s.rollback_step = 6;
  s.save(7, false, true);
  CHECK(s.steps() == Steps{6, 5, 4, 0});

  Saves without(1);
  without.rollback_step = 1;
  without.save(1, true, false);
  without.save(2, true, false);
  CHECK(without.steps() == Steps{2});
}

TEST_CASE("the checkpoint of the best stays until best.safetensors is seen to hold it") {
  Saves s(1);
  s.save(1, true, true);
  s.save(2, true, false);
  CHECK(s.steps() == Steps{2});

  // Another file takes the place of the best, with and without a checksum to identify the best.
  for (const bool has_checksum : {true, false}) {
    CAPTURE(has_checksum);
    Saves other(1);
    other.save(1, true, true);
    const std::string checksum = std::exchange(other.best_checksum, std::string());
    if (has_checksum) other.best_checksum = checksum;
    save_checkpoint(other.folder.best(), other.plan, small_checkpoint(other.plan, 9));
    other.save(2, true, false);
    CHECK(other.steps() == Steps{2, 1});
    fs::remove(other.folder.best());
    other.save(3, true, false);
    CHECK(other.steps() == Steps{3, 1});
    copy_durably(other.folder.checkpoint(1), other.folder.best());
    other.save(4, true, false);
    CHECK(other.steps() == Steps{4});
  }
}

TEST_CASE("a save that fails says whether best.safetensors is its checkpoint all the same") {
  Saves s(5);
  s.save(1, true, true);
  SUBCASE("the checkpoint itself cannot be written") {
    fs::rename(s.folder.checkpoints(), s.dir.file("away"));
    const SaveResult failed = s.save(2, true, true);
    REQUIRE(failed.error != nullptr);
    check_contains(text_of(failed.error), "cannot create a temporary file");
    CHECK(failed.is_best);
    CHECK_FALSE(failed.best_moved);
    CHECK(failed.checksum.empty());
    CHECK(s.best_on_disk() == 1);
    const SaveResult not_best = s.save(3, true, false);
    CHECK(not_best.error != nullptr);
    CHECK_FALSE(not_best.best_moved);
    // The next checkpoint can be written.
    fs::rename(s.dir.file("away"), s.folder.checkpoints());
    CHECK(s.save(4, true, true).error == nullptr);
    CHECK(s.best_on_disk() == 4);
  }
  SUBCASE("the best cannot be linked") {
    fs::remove(s.folder.best());
    fs::create_directory(s.folder.best());
    write_file_atomically(s.folder.best() + "/x", "x");
    const SaveResult failed = s.save(2, true, true);
    REQUIRE(failed.error != nullptr);
    CHECK_FALSE(failed.best_moved);
    CHECK(failed.checksum == read_checkpoint_header(s.folder.file(failed.path)).checksum);
    CHECK(s.steps() == Steps{2, 1});
  }
}

TEST_CASE("the run that --overwrite replaces goes when the first checkpoint is there, not before") {
  for (const bool keep : {true, false}) {
    CAPTURE(keep);
    Saves s(5);
    s.save(1, true, true);
    s.folder.set_aside();
    REQUIRE(fs::exists(s.folder.file("replaced")));
    fs::rename(s.folder.checkpoints(), s.dir.file("away"));
    if (keep) {
      CHECK(s.save(2, true, false).error != nullptr);
      CHECK(fs::exists(s.folder.file("replaced")));
    }
    fs::rename(s.dir.file("away"), s.folder.checkpoints());
    CHECK(s.save(3, keep, !keep).error == nullptr);
    // Only a regular checkpoint removes the replaced run: a best checkpoint alone does not.
    CHECK(fs::exists(s.folder.file("replaced")) == !keep);
  }
}

TEST_CASE("a checkpoint that is saved because the run stops leaves the replaced run") {
  Saves s(5);
  s.save(1, true, true);
  s.folder.set_aside();
  SaveRequest stop = s.request(2, true, false);
  stop.is_regular = false;
  s.saver.start(std::move(stop));
  CHECK(s.saver.wait()->error == nullptr);
  CHECK(s.folder.has_replaced());
  CHECK(s.save(3, true, false).error == nullptr);
  CHECK_FALSE(fs::exists(s.folder.file("replaced")));
}

TEST_CASE("a save into a folder that was moved says so once, into one that is lost fails") {
  Saves s(5);
  s.save(1, true, false);
  fs::rename(s.folder.path(), s.dir.file("moved"));
  fs::create_directory(s.folder.path());
  const SaveResult moved = s.save(2, true, true);
  CHECK(moved.error == nullptr);
  REQUIRE(moved.warnings.size() == 1);
  check_contains(moved.warnings[0], "was moved to " + s.dir.file("moved"));
  CHECK(s.save(3, true, false).warnings.empty());
  CHECK(fs::is_empty(s.folder.path()));
  CHECK(list_checkpoints(s.dir.file("moved/checkpoints")).size() == 3);
  CHECK(fs::exists(s.dir.file("moved/best.safetensors")));
  // The folder now belongs to another process.
  fs::remove(s.dir.file("moved/.lock"));
  const RunFolder other(s.dir.file("moved"));
  const SaveResult lost = s.save(4, true, true);
  REQUIRE(lost.error != nullptr);
  CHECK(lost.lost_folder);
  check_contains(text_of(lost.error), "was removed or replaced");
  CHECK(list_checkpoints(s.dir.file("moved/checkpoints")).size() == 3);
}

TEST_CASE("an error after the save is a warning") {
  Saves s(1);
  s.save(1, true, false);
  // This folder is named like a removable checkpoint, but cannot be removed as a file.
  fs::create_directories(s.folder.checkpoint(0) + "/x");
  const SaveResult result = s.save(2, true, false);
  CHECK(result.error == nullptr);
  REQUIRE(result.warnings.size() == 1);
  check_contains(result.warnings[0], checkpoint_name(0));
  check_contains(result.warnings[0], "cannot remove it");
  CHECK(s.steps() == Steps{2, 0});
}
