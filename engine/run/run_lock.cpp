#include "engine/run/run_lock.h"
#include "kernels/base/file_handle.h"
#include "kernels/base/held_path.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <chrono>
#include <fstream>
#include <sstream>
#include <thread>

namespace dpt {
namespace {

/// Returns a description of a lock on the whole file.
struct flock whole_file(short type) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  return lock;
}

/// Returns true if another open file description has announced that it holds the lock.
bool is_announced(int file) {
  struct flock lock = whole_file(F_RDLCK);
  return ::fcntl(file, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

/// Returns true if the kernel lists an flock of the file, as it does for a dpt train that announces
/// nothing.
bool is_listed(int file) {
  struct stat status {};
  std::ifstream locks("/proc/locks");
  if (!locks || ::fstat(file, &status) != 0) return false;
  const std::string inode = ":" + std::to_string(status.st_ino);
  for (std::string line; std::getline(locks, line);) {
    // "1: FLOCK  ADVISORY  WRITE 1234 08:01:5678 0 EOF"
    std::istringstream words(line);
    std::string number, kind, mode, access, process, entry;
    words >> number >> kind >> mode >> access >> process >> entry;
    if (kind == "FLOCK" && access == "WRITE" && entry.ends_with(inode)) return true;
  }
  return false;
}

}  // namespace

LockResult try_lock(const FileHandle& file) {
  constexpr int kTries = 20;
  for (int tries = 0;; ++tries) {
    if (uninterrupted([&] { return ::flock(file.fd(), LOCK_EX | LOCK_NB); }) == 0) break;
    if (errno != EWOULDBLOCK) return LockResult::failed;
    if (tries == kTries || is_announced(file.fd()) || is_listed(file.fd())) {
      return LockResult::held_by_other;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  // Some network file systems refuse the announcement; the lock is valid without it.
  struct flock announcement = whole_file(F_WRLCK);
  static_cast<void>(::fcntl(file.fd(), F_OFD_SETLK, &announcement));
  return LockResult::locked;
}

bool is_locked(const HeldPath& path) {
  const FileHandle file = open_file(path, O_RDONLY | O_NONBLOCK);
  return file.is_open() && (is_announced(file.fd()) || is_listed(file.fd()));
}

}  // namespace dpt
