#include "engine/training/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <string_view>
#include <utility>

#include "engine/checkpoints/checkpoint.h"
#include "engine/checkpoints/file_io.h"
#include "kernels/error.h"

namespace dpt {
namespace fs = std::filesystem;
namespace {

constexpr const char* kLockFile = "/.lock";

/// Everything that a run writes into its folder, and dpt report. The checkpoints come first: while
/// they are in place, so is the run.
constexpr const char* kFiles[] = {"checkpoints",   "best.safetensors",
                                  "config.yaml",   "command.txt",
                                  "env.json",      "train.log",
                                  "metrics.jsonl", "metrics.abandoned.jsonl",
                                  "summary.json",  "logs",
                                  "tensorboard",   "report.html"};

/// What else is there: the lock, and the run that --overwrite replaces.
constexpr const char* kOthers[] = {".lock", "replaced"};

bool exists(const std::string& path) {
  std::error_code ignored;
  return fs::symlink_status(path, ignored).type() != fs::file_type::not_found;
}

/// One of ours, or what a crash left of the writing of one.
bool is_ours(std::string_view name) {
  if (name.ends_with(kTemporarySuffix)) {
    name.remove_suffix(std::string_view(kTemporarySuffix).size());
  }
  const auto is_name = [&](const char* other) { return name == other; };
  return std::any_of(std::begin(kFiles), std::end(kFiles), is_name) ||
         std::any_of(std::begin(kOthers), std::end(kOthers), is_name);
}

/// Whether `path` is a folder that set_aside made, or what is left of it: it holds only what a run
/// writes. Anything else of that name is the user's.
bool is_set_aside(const std::string& path) {
  std::error_code failure;
  if (fs::symlink_status(path, failure).type() != fs::file_type::directory) return false;
  for (fs::directory_iterator entry(path, failure), end; !failure && entry != end;
       entry.increment(failure)) {
    if (!is_ours(entry->path().filename().string())) return false;
  }
  return !failure;
}

/// Of a name in checkpoints/.
bool is_checkpoint_name(std::string_view name) {
  return name.starts_with("step-") || name.starts_with("abandoned-");
}

std::string make_abandoned_in(const std::string& checkpoints) {
  for (int i = 1;; ++i) {
    std::string path = fmt::format("{}/abandoned-{}", checkpoints, i);
    if (exists(path)) continue;
    make_folders(path);
    return path;
  }
}

void remove_tree(const std::string& path) {
  std::error_code failure;
  fs::remove_all(path, failure);
  if (failure) fail(ErrorKind::data, "{}: cannot remove it: {}", path, failure.message());
}

}  // namespace

RunFolder::RunFolder(std::string path) : path_(std::move(path)) {
  try {
    make_folders(path_);
  } catch (const Error& error) {
    fail(ErrorKind::data, "cannot create the run folder {}: {}. Choose another with --run-dir",
         path_, error.what());
  }
  lock_ = open_file(path_ + kLockFile, O_RDWR | O_CREAT, 0666).release();
  if (lock_ < 0) {
    fail(ErrorKind::data, "cannot write into the run folder {}: {}. Choose another with --run-dir",
         path_, std::strerror(errno));
  }
  int locked = 0;
  do {
    locked = ::flock(lock_, LOCK_EX | LOCK_NB);
  } while (locked != 0 && errno == EINTR);
  try {
    if (locked != 0 && errno == EWOULDBLOCK) {
      fail(ErrorKind::usage,
           "the run folder {} is in use by another dpt process: wait for it, stop it, or choose "
           "another folder with --run-dir",
           path_);
    }
    if (locked != 0) {
      fail(ErrorKind::data, "cannot lock {}{}: {}", path_, kLockFile, std::strerror(errno));
    }
    if (is_set_aside(replaced() + kTemporarySuffix)) remove_tree(replaced() + kTemporarySuffix);
    if (exists(replaced() + "/checkpoints") && !list_checkpoints(checkpoints()).empty()) {
      give_up_replaced();
    } else {
      restored_ = put_back();
    }
    make_folders(checkpoints());
  } catch (...) {
    ::close(lock_);
    throw;
  }
}

RunFolder::~RunFolder() {
  if (lock_ >= 0) ::close(lock_);
}

RunFolder::RunFolder(RunFolder&& other) noexcept
    : path_(std::move(other.path_)),
      lock_(std::exchange(other.lock_, -1)),
      restored_(other.restored_),
      kept_of_new_(std::move(other.kept_of_new_)) {}

std::string RunFolder::checkpoint(std::int64_t step) const {
  return checkpoints() + "/" + checkpoint_name(step);
}

std::string RunFolder::after_set_aside(const std::string& path) const {
  if (path.empty() || !exists(path)) return path;
  const std::string inside =
      fs::weakly_canonical(path).lexically_relative(fs::weakly_canonical(path_)).string();
  for (const char* name : kFiles) {
    if (inside == name || inside.rfind(std::string(name) + "/", 0) == 0) {
      return replaced() + "/" + inside;
    }
  }
  return path;
}

void RunFolder::check_only_ours() const {
  const auto refuse = [&](const std::string& name) {
    fail(ErrorKind::usage,
         "--overwrite: {} holds {}, which is not part of a run; nothing was changed. Choose "
         "another folder with --run-dir",
         path_, name);
  };
  std::error_code failure;
  for (fs::directory_iterator entry(path_, failure), end; !failure && entry != end;
       entry.increment(failure)) {
    const std::string name = entry->path().filename().string();
    if (!is_ours(name)) refuse(name);
  }
  for (fs::directory_iterator entry(checkpoints(), failure), end; !failure && entry != end;
       entry.increment(failure)) {
    const std::string name = entry->path().filename().string();
    if (!is_checkpoint_name(name)) refuse("checkpoints/" + name);
  }
  for (const std::string& name : {replaced(), replaced() + kTemporarySuffix}) {
    if (exists(name) && !is_set_aside(name)) refuse(fs::path(name).filename().string());
  }
  if (failure) fail(ErrorKind::data, "{}: cannot list the folder: {}", path_, failure.message());
}

void RunFolder::set_aside() {
  std::error_code ignored;
  const bool is_empty = std::none_of(std::begin(kFiles) + 1, std::end(kFiles),
                                     [&](const char* name) { return exists(file(name)); }) &&
                        fs::is_empty(checkpoints(), ignored);
  if (is_empty) return;
  make_folders(replaced());
  for (const char* name : kFiles) {
    if (exists(file(name))) move_durably(file(name), replaced() + "/" + name);
    if (exists(file(name) + kTemporarySuffix)) remove_tree(file(name) + kTemporarySuffix);
  }
  make_folders(checkpoints());
}

void RunFolder::give_up_replaced() {
  if (!is_set_aside(replaced())) return;
  // One step decides; a crash in the middle of the removal leaves what the next process removes.
  const std::string goes = replaced() + kTemporarySuffix;
  move_durably(replaced(), goes);
  remove_tree(goes);
}

bool RunFolder::put_back() {
  if (!is_set_aside(replaced())) return false;
  // While both runs have a checkpoints/, the other files in place are the new run's. Its own goes
  // last of them, the old one comes back last, so that a crash on the way is known for what it is.
  if (exists(replaced() + "/checkpoints") && exists(checkpoints())) leave_new_run();
  bool any = false;
  for (auto name = std::rbegin(kFiles); name != std::rend(kFiles); ++name) {
    const std::string old = replaced() + "/" + *name;
    if (!exists(old)) continue;
    move_durably(old, file(*name));
    any = true;
  }
  remove_tree(replaced());
  return any;
}

void RunFolder::leave_new_run() {
  if (exists(best())) {
    const std::string to = make_abandoned_in(replaced() + "/checkpoints");
    for (const char* name : {"train.log", "metrics.jsonl", "best.safetensors"}) {
      if (exists(file(name))) move_durably(file(name), to + "/" + name);
    }
    kept_of_new_ = checkpoints() + "/" + fs::path(to).filename().string();
  }
  for (auto name = std::rbegin(kFiles); name != std::rend(kFiles); ++name) {
    if (exists(file(*name))) remove_tree(file(*name));
  }
}

std::string RunFolder::make_abandoned() const {
  return make_abandoned_in(checkpoints());
}

bool is_run_folder(const std::string& path) {
  std::error_code ignored;
  if (fs::exists(path + "/config.yaml", ignored) || fs::exists(path + "/replaced", ignored)) {
    return true;
  }
  return fs::is_directory(path + "/checkpoints", ignored) &&
         !fs::is_empty(path + "/checkpoints", ignored);
}

std::string folder_of_run(const std::string& path) {
  const std::string replaced = path + "/replaced";
  const bool is_left = is_set_aside(replaced) && exists(replaced + "/checkpoints") &&
                       list_checkpoints(path + "/checkpoints").empty();
  return is_left ? replaced : path;
}

std::string free_run_folder(const std::string& name) {
  std::string path = "runs/" + name;
  for (int i = 2; is_run_folder(path); ++i) path = fmt::format("runs/{}-{}", name, i);
  return path;
}

}  // namespace dpt
