// Checkpoints are verified once: this process remembers a verified file until the file changes.
#include "engine/checkpoints/verified_files.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "engine/checkpoints/checkpoint.h"
#include "engine/checkpoints/retention.h"
#include "kernels/base/file_handle.h"
#include "kernels/base/file_io.h"
#include "tests/engine/checkpoints/files.h"
#include "tests/engine/checkpoints/small_plan.h"
#include "tests/support/rewrite.h"
#include "tests/support/skip.h"

namespace dpt {
namespace {

/// Returns the bytes that this process has read so far; -1 if the system does not report them.
std::int64_t bytes_read() {
  std::ifstream io("/proc/self/io");
  std::string name;
  std::int64_t value = -1;
  return io >> name >> value && name == "rchar:" ? value : -1;
}

/// Checkpoints of a plan so large that the size of their headers is negligible.
struct LargeFiles {
  static constexpr std::int64_t kFloats = 1 << 18;
  static constexpr std::int64_t kFileBytes = kFloats * std::int64_t{sizeof(float)};

  TempDir folder;
  Plan plan;
  LargeFiles() { add_param(plan, "fc.weight", {kFloats}); }

  std::string path(std::int64_t step) const { return folder.file(checkpoint_name(step)); }
  void save(std::int64_t step) const {
    Checkpoint checkpoint = small_checkpoint(plan, step);
    checkpoint.optimizer.clear();
    save_checkpoint(path(step), plan, checkpoint);
  }
  /// Waits until the file's change is old enough to be trusted, as in files of earlier processes.
  static void settle() { std::this_thread::sleep_for(std::chrono::milliseconds(120)); }
  /// Returns the bytes that `work` reads, as a multiple of a file's size.
  template <class Work>
  static double files_read(Work work) {
    const std::int64_t before = bytes_read();
    work();
    return static_cast<double>(bytes_read() - before) / kFileBytes;
  }
};

bool lacks_counters() {
  if (bytes_read() >= 0) return false;
  testing::skip_test("the system does not count what a process reads");
  return true;
}

TEST_CASE(
    "a resume reads its checkpoint once: to find it, verify it, load it and look at it again") {
  if (lacks_counters()) return;
  const LargeFiles files;
  for (const std::int64_t step : {3, 5, 7}) files.save(step);
  LargeFiles::settle();
  const double read = LargeFiles::files_read([&] {
    auto found = VerifiedCheckpoint::newest_good(files.folder.path(), files.plan,
                                                 [](const std::string& text) { FAIL(text); });
    REQUIRE(found.has_value());
    CHECK(found->header().state.step == 7);
    const Checkpoint checkpoint = found->take();
    CHECK(checkpoint.params == counting(files.plan, 7));
    CHECK(read_checkpoint_header(files.path(7)).state.step == 7);
    CHECK(newest_good_checkpoint(files.folder.path(), [](const auto&) {}) == files.path(7));
  });
  CHECK(read > 1);
  CHECK(read < 1.2);
}

TEST_CASE("retention reads nothing while no file is too many, then each file once") {
  if (lacks_counters()) return;
  const LargeFiles files;
  for (const std::int64_t step : {1, 2, 3, 4}) files.save(step);
  LargeFiles::settle();
  Retention four(files.folder.path(), 4);
  const auto apply = [&](Retention& retention) {
    retention.apply(
        4, [](std::int64_t) { return false; }, [](const std::string& text) { FAIL(text); });
  };
  CHECK(LargeFiles::files_read([&] { apply(four); }) < 0.2);
  Retention three(files.folder.path(), 3);
  three.note_good(files.path(4));
  const double read = LargeFiles::files_read([&] { apply(three); });
  CHECK(read > 2);
  CHECK(read < 2.2);
  CHECK(list_checkpoints(files.folder.path()).size() == 3);
  CHECK(LargeFiles::files_read([&] { apply(three); }) < 0.2);
}

TEST_CASE("a file that changes after it was verified is read again") {
  const LargeFiles files;
  files.save(7);
  LargeFiles::settle();
  CHECK(defect_of(files.path(7)).empty());
  CHECK(defect_of(files.path(7)).empty());
  const std::string good = read_all(files.path(7));
  std::string bad = good;
  bad[bad.size() / 2] = static_cast<char>(bad[bad.size() / 2] ^ 1);
  write_all_text(files.path(7), bad);  // in place: the same inode, the same size
  CHECK(defect_of(files.path(7)).find("is damaged") != std::string::npos);
  write_all_text(files.path(7), good);
  CHECK(defect_of(files.path(7)).empty());
}

TEST_CASE("a file that has just changed, or will have, is not remembered") {
  const LargeFiles files;
  files.save(7);
  const FileHandle file = open_file(files.path(7), O_RDONLY);
  const auto changed_at = [&](std::chrono::nanoseconds from_now) {
    const auto time = (std::chrono::system_clock::now() + from_now).time_since_epoch();
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(time);
    const struct timespec when { seconds.count(), 1 + (time - seconds).count() % 999'999'999 };
    const struct timespec times[2] = {when, when};
    REQUIRE(::futimens(file.fd(), times) == 0);
    LargeFiles::settle();  // waits until the change of the modification time is old enough
    return VerifiedFiles::stamp_before_reading(file.fd());
  };
  CHECK_FALSE(changed_at(std::chrono::hours(1)).has_value());  // a clock that is ahead
  const auto old = changed_at(-std::chrono::hours(1));
  REQUIRE(old.has_value());
  VerifiedFiles known;
  CHECK_FALSE(known.contains(file.fd()));
  known.add(file.fd(), *old);
  CHECK(known.contains(file.fd()));
  // A file that changes while it is read does not count as verified.
  VerifiedFiles others;
  changed_at(-std::chrono::hours(2));
  others.add(file.fd(), *old);
  CHECK_FALSE(others.contains(file.fd()));
  CHECK_FALSE(known.contains(file.fd()));
}

}  // namespace
}  // namespace dpt
