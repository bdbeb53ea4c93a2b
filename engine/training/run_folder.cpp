#include "engine/training/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <utility>

#include "kernels/error.h"

namespace dpt {
namespace fs = std::filesystem;
namespace {

constexpr const char* kLockFile = "/.lock";

/// Everything that a run writes into its folder.
constexpr const char* kFiles[] = {
    ".lock",         "config.yaml",  "command.txt", "env.json",         "train.log",
    "metrics.jsonl", "summary.json", "report.html", "best.safetensors", "checkpoints"};

}  // namespace

RunFolder::RunFolder(std::string path) : path_(std::move(path)) {
  std::error_code failure;
  fs::create_directories(checkpoints(), failure);
  if (failure) {
    fail(ErrorKind::data, "cannot make the run folder {}: {}. Choose another with --run-dir", path_,
         failure.message());
  }
  lock_ = ::open((path_ + kLockFile).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (lock_ < 0) {
    fail(ErrorKind::data, "cannot write into the run folder {}: {}. Choose another with --run-dir",
         path_, std::strerror(errno));
  }
  if (::flock(lock_, LOCK_EX | LOCK_NB) != 0) {
    const int reason = errno;
    ::close(lock_);
    if (reason == EWOULDBLOCK) {
      fail(ErrorKind::usage,
           "the run folder {} is in use by another dpt process: wait for it, stop it, or choose "
           "another folder with --run-dir",
           path_);
    }
    fail(ErrorKind::data, "cannot lock {}{}: {}", path_, kLockFile, std::strerror(reason));
  }
}

RunFolder::~RunFolder() {
  if (lock_ >= 0) ::close(lock_);
}

RunFolder::RunFolder(RunFolder&& other) noexcept
    : path_(std::move(other.path_)), lock_(std::exchange(other.lock_, -1)) {}

void RunFolder::wipe() {
  for (const auto& entry : fs::directory_iterator(path_)) {
    const std::string name = entry.path().filename().string();
    if (std::find(std::begin(kFiles), std::end(kFiles), name) == std::end(kFiles)) {
      fail(ErrorKind::usage,
           "--overwrite: {} holds {}, which no run writes, so nothing was removed. Choose another "
           "folder with --run-dir",
           path_, name);
    }
  }
  for (const char* name : kFiles) {
    if (std::string(name) != ".lock") fs::remove_all(file(name));
  }
  fs::create_directories(checkpoints());
}

bool is_run_folder(const std::string& path) {
  std::error_code ignored;
  if (fs::exists(path + "/config.yaml", ignored)) return true;
  return fs::is_directory(path + "/checkpoints", ignored) &&
         !fs::is_empty(path + "/checkpoints", ignored);
}

std::string free_run_folder(const std::string& name) {
  std::string path = "runs/" + name;
  for (int i = 2; is_run_folder(path); ++i) path = fmt::format("runs/{}-{}", name, i);
  return path;
}

void publish_link(const std::string& from, const std::string& to) {
  const std::string temporary = to + ".tmp";
  std::error_code failure;
  fs::remove(temporary, failure);
  fs::create_hard_link(from, temporary, failure);
  if (failure) fs::copy_file(from, temporary, failure);
  if (!failure) fs::rename(temporary, to, failure);
  if (failure) {
    fail(ErrorKind::data, "cannot make {} from {}: {}", to, from, failure.message());
  }
}

}  // namespace dpt
