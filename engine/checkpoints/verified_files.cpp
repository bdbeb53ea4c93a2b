#include "engine/checkpoints/verified_files.h"

#include <sys/stat.h>

#include <algorithm>
#include <chrono>

namespace dpt {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;

std::int64_t nanoseconds(const struct timespec& time) {
  return std::int64_t{time.tv_sec} * kSecond + time.tv_nsec;
}

/// Returns true if a change from now on would get a time different from the newest one in `stamp`.
/// Local file systems use ticks of up to 10 ms, others ticks of one or two seconds.
bool is_settled(const FileStamp& stamp) {
  const std::int64_t last = std::max(stamp.modified, stamp.changed);
  const std::int64_t tick = last % kSecond == 0 ? 3 * kSecond : kSecond / 20;
  const std::int64_t now = std::chrono::duration_cast<std::chrono::nanoseconds>(
                               std::chrono::system_clock::now().time_since_epoch())
                               .count();
  return last + tick < now;
}

/// Returns the stamp of a file; on failure, a stamp that no file has.
FileStamp stamp_of(int fd) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) return {};
  return {status.st_size, nanoseconds(status.st_mtim), nanoseconds(status.st_ctim), status.st_dev,
          status.st_ino};
}

}  // namespace

std::optional<FileStamp> VerifiedFiles::stamp_before_reading(int fd) {
  const FileStamp stamp = stamp_of(fd);
  if (stamp.size < 0 || !is_settled(stamp)) return std::nullopt;
  return stamp;
}

bool VerifiedFiles::contains(int fd) const {
  const FileStamp stamp = stamp_of(fd);
  const std::lock_guard lock(mutex_);
  const auto found = stamps_.find({stamp.device, stamp.inode});
  return found != stamps_.end() && found->second == stamp;
}

void VerifiedFiles::add(int fd, const FileStamp& before) {
  if (before != stamp_of(fd)) return;
  const std::lock_guard lock(mutex_);
  stamps_[{before.device, before.inode}] = before;
}

void VerifiedFiles::add_written(int fd) {
  const FileStamp stamp = stamp_of(fd);
  const std::lock_guard lock(mutex_);
  stamps_[{stamp.device, stamp.inode}] = stamp;
}

VerifiedFiles& verified_files() {
  static VerifiedFiles files;
  return files;
}

}  // namespace dpt
