#include "engine/run/run_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include <fmt/ranges.h>

#include "engine/checkpoints/checkpoint.h"
#include "engine/run/linked_checkpoints.h"
#include "engine/run/replaced_run.h"
#include "engine/run/run_files.h"
#include "engine/run/run_lock.h"
#include "kernels/base/error.h"
#include "kernels/base/file_handle.h"
#include "kernels/base/held_path.h"

namespace dpt {
namespace fs = std::filesystem;
namespace {

/// Opens the folder `path` for a run, creating it if needed.
HeldPath open_run_folder(const std::string& path) {
  check_may_write(path);
  try {
    make_folders(path);
    return HeldPath::hold(path);
  } catch (const Error& error) {
    fail(ErrorKind::data, "cannot create the run folder {}: {}. Choose another with --run-dir",
         path, error.what());
  }
}

/// Returns `path` relative to `folder`, both with links resolved.
std::string relative_to(const std::string& folder, const std::string& path) {
  std::error_code ignored;
  return fs::weakly_canonical(path, ignored)
      .lexically_relative(fs::weakly_canonical(folder, ignored))
      .string();
}

/// Refuses `path` if it lies inside a folder that another run created for its own files and may
/// remove.
void check_is_no_part_of_run(const std::string& path) {
  constexpr std::array<std::string_view, 6> kParts = {"checkpoints", "logs",     "tensorboard",
                                                      kReplaced,     kRestoring, kMoving};
  std::error_code ignored;
  for (fs::path part = fs::weakly_canonical(path, ignored); part.has_relative_path();
       part = part.parent_path()) {
    const std::string name = part.filename().string(), run = part.parent_path().string();
    const bool is_part = std::find(kParts.begin(), kParts.end(), name) != kParts.end();
    if (!is_part || !is_run_of_dpt(run)) continue;
    if (name == kReplaced) {
      fail(ErrorKind::usage,
           "{} is the run that --overwrite replaced in {}; nothing was changed. Bring it back "
           "first: dpt runs --restore {}",
           path, run, run);
    }
    fail(ErrorKind::usage,
         "{} is a part of the run in {}; nothing was changed. Choose another folder with --run-dir",
         path, run);
  }
}

std::string without_slashes_at_end(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

/// Returns the names of the runs in a folder that is not itself a run.
std::vector<std::string> runs_in(const HeldPath& folder) {
  std::vector<std::string> runs;
  if (entry_type(folder) != EntryType::folder || is_marked(folder)) return runs;
  for (const std::string& name : list_names(folder)) {
    const HeldPath inside = folder / name;
    const bool is_run = entry_type(inside) == EntryType::folder && is_run_folder(inside.text()) &&
                        (is_marked(inside) || has_log_of_dpt(inside));
    if (is_run) runs.push_back(name);
  }
  if (!runs.empty() && is_run_of_dpt(folder)) runs.clear();
  return runs;
}

/// Refuses a folder of runs, because commands would take it for one run and not see the runs in it.
void check_holds_no_runs(const std::string& path) {
  std::vector<std::string> runs = runs_in(path);
  if (runs.empty()) return;
  constexpr std::size_t kMax = 3;
  const std::size_t more = runs.size() > kMax ? runs.size() - kMax : 0;
  runs.resize(runs.size() - more);
  fail(ErrorKind::usage,
       "{} holds runs ({}{}), which a run in this folder would hide; nothing was changed. Give the "
       "run a folder of its own, such as --run-dir {}/NAME",
       path, fmt::join(runs, ", "), more > 0 ? fmt::format(" and {} more", more) : "",
       without_slashes_at_end(path));
}

}  // namespace

RunFolder::RunFolder(Unopened, std::string path, const std::vector<std::string>& outputs)
    : path_(without_slashes_at_end(std::move(path))),
      is_new_(entry_type(path_, false) == EntryType::none),
      root_(open_run_folder(path_)) {
  for (const std::string& output : outputs) {
    const std::string name = output.empty() ? std::string() : relative_to(path_, output);
    if (!name.empty() && name.find('/') == std::string::npos) outputs_.push_back(name);
  }
}

RunFolder::RunFolder(std::string path, const std::vector<std::string>& outputs)
    : RunFolder(Unopened(), std::move(path), outputs) {
  if (open()) return;
  fail(ErrorKind::usage,
       "the run folder {} is in use by another dpt process: wait for it, stop it, or choose "
       "another folder with --run-dir",
       path_);
}

std::optional<RunFolder> RunFolder::open_unless_held(std::string path,
                                                     const std::vector<std::string>& outputs) {
  RunFolder folder(Unopened(), std::move(path), outputs);
  if (!folder.open()) return std::nullopt;
  return folder;
}

bool RunFolder::open() {
  if (!lock()) return false;
  check_replaced_run(root_);
  write_marker(root_, outputs_);
  linked_ = hold_linked_checkpoints(root_);
  check_checkpoints();
  const RestoredRun restored = recover_replaced_run(root_);
  restored_ = restored.any;
  if (!restored.abandoned.empty()) kept_of_new_ = checkpoints() + "/" + restored.abandoned;
  make_folders(root_ / "checkpoints");
  return true;
}

bool RunFolder::lock() {
  // Do not follow a link: the lock must be in this folder.
  lock_ = open_file(at(kLockFile), O_RDWR | O_CREAT | O_NOFOLLOW, 0666);
  if (!lock_.is_open()) {
    fail(ErrorKind::data, "cannot write into the run folder {}: {}. Choose another with --run-dir",
         path_, std::strerror(errno));
  }
  const LockResult result = try_lock(lock_);
  if (result == LockResult::failed) {
    fail(ErrorKind::data, "cannot lock {}/{}: {}", path_, kLockFile, std::strerror(errno));
  }
  return result == LockResult::locked;
}

bool RunFolder::lock_again() {
  // A folder that is being removed has no marker any more, or will have none at the next call.
  if (!is_marked(root_)) return false;
  FileHandle file = open_file(at(kLockFile), O_RDWR | O_CREAT | O_EXCL, 0666);
  if (!file.is_open() || try_lock(file) != LockResult::locked) return false;
  lock_ = std::move(file);
  return true;
}

bool RunFolder::has_lock() {
  struct stat mine {
  }, there{};
  if (::fstatat(root_.at(), kLockFile, &there, AT_SYMLINK_NOFOLLOW) == 0) {
    return ::fstat(lock_.fd(), &mine) == 0 && mine.st_dev == there.st_dev &&
           mine.st_ino == there.st_ino;
  }
  if (errno == ENOENT) return lock_again();
  // After an unknown error, the next write reports its own reason.
  return errno != ESTALE;
}

void RunFolder::check_checkpoints() const {
  check_same_checkpoints(root_, linked_, current_path());
}

bool RunFolder::leads_here(const std::string& path) const {
  return is_same_entry(path, root_);
}

std::string RunFolder::check_held() {
  if (!has_lock()) {
    fail(ErrorKind::data,
         "the run folder {} was removed or replaced while this process was writing to it; nothing "
         "more is written there. Start the run again, with another --run-dir if a run is there now",
         path_);
  }
  check_checkpoints();
  if (said_moved_ || leads_here(path_)) return {};
  said_moved_ = true;
  const std::string now = current_path();
  return fmt::format("the run folder {} was moved{}: the run continues to write to it there", path_,
                     now == path_ ? std::string() : " to " + now);
}

std::string RunFolder::current_path() const {
  if (leads_here(path_)) return path_;
  std::error_code failure;
  const std::string link = fmt::format("/proc/self/fd/{}", root_.at());
  const std::string now = fs::read_symlink(link, failure).string();
  return !failure && leads_here(now) ? now : path_;
}

HeldPath RunFolder::at(const std::string& name) const {
  constexpr std::string_view kCheckpoints = "checkpoints";
  if (linked_ && name == kCheckpoints) return linked_->place;
  if (linked_ && name.starts_with("checkpoints/")) {
    return linked_->place / name.substr(kCheckpoints.size() + 1);
  }
  return root_ / name;
}

std::string RunFolder::checkpoint(std::int64_t step) const {
  return checkpoints() + "/" + checkpoint_name(step);
}

HeldPath RunFolder::checkpoint_place(std::int64_t step) const {
  return at("checkpoints") / checkpoint_name(step);
}

std::string RunFolder::entry_at(const std::string& path) const {
  if (path.empty() || entry_type(path) == EntryType::none) return {};
  std::string inside = relative_to(path_, path);
  // checkpoints/ may be a link to a folder elsewhere.
  const std::string below = relative_to(checkpoints(), path);
  if (below == ".") inside = "checkpoints";
  if (!below.starts_with(".") && !below.starts_with(kReplacedCheckpoints)) {
    inside = "checkpoints/" + below;
  }
  for (const std::string& name : entries_of_run(root_)) {
    const bool is_in = name == "checkpoints" && inside.starts_with("checkpoints/");
    if (inside == name || is_in) return inside;
  }
  return {};
}

std::string RunFolder::after_set_aside(const std::string& path) const {
  const std::string inside = entry_at(path);
  return inside.empty() || has_replaced() ? path : file(kReplaced) + "/" + inside;
}

void RunFolder::check_stays(const std::string& path) const {
  if (!has_replaced() || entry_at(path).empty()) return;
  fail(ErrorKind::usage,
       "{} belongs to the unfinished run in {}, which --overwrite removes (the run before it stays "
       "in {}): copy the file to another folder, or choose another folder with --run-dir",
       path, path_, file(kReplaced));
}

void RunFolder::check_only_ours() const {
  const auto refuse = [&](const std::string& name) {
    fail(ErrorKind::usage,
         "--overwrite: {} holds {}, which is not part of a run; nothing was changed. Choose "
         "another folder with --run-dir",
         path_, name);
  };
  const OwnNames own(root_);
  for (const std::string& name : list_names(root_)) {
    if (!own.has(name)) refuse(name);
  }
  const bool is_link = linked_.has_value();
  for (const std::string& name : list_names(at("checkpoints"))) {
    const bool is_set_aside_there = is_link && name == kReplacedCheckpoints;
    if (is_record_of_checkpoints(name)) continue;
    if (!is_checkpoint_name(name) && !is_set_aside_there) refuse("checkpoints/" + name);
    const HeldPath inside = at("checkpoints") / name;
    if (entry_type(inside, false) != EntryType::folder) continue;
    const OwnNames own_inside(inside);
    for (const std::string& each : list_names(inside)) {
      if (!is_checkpoint_name(each) && !own_inside.has(each)) {
        refuse("checkpoints/" + name + "/" + each);
      }
    }
  }
  for (const char* name : {kReplaced, kRemoved, kMoving, kRestoring}) {
    if (entry_type(at(name), false) != EntryType::none && !is_set_aside(root_, name)) refuse(name);
  }
}

void RunFolder::set_aside() {
  check_checkpoints();
  set_run_aside(root_);
}

void RunFolder::give_up_replaced() {
  check_checkpoints();
  remove_replaced_run(root_);
}

bool RunFolder::has_replaced() const {
  return has_replaced_run(root_);
}

bool RunFolder::put_back() {
  check_checkpoints();
  const RestoredRun restored = restore_replaced_run(root_);
  if (!restored.abandoned.empty()) kept_of_new_ = checkpoints() + "/" + restored.abandoned;
  return restored.any;
}

void RunFolder::remove_if_new() {
  const bool holds_work = entry_type(best_place()) != EntryType::none ||
                          entry_type(at("logs")) != EntryType::none ||
                          !list_steps(at("checkpoints")).empty();
  if (!is_new_ || holds_work) return;
  check_held();
  const OwnNames own(root_);
  for (const std::string& name : list_names(root_)) {
    if (name != kLockFile && own.has(name)) remove_tree(at(name));
  }
  // Remove the lock last: without it, another process may take the folder at any time.
  remove_tree(at(kLockFile));
  remove_if_empty(current_path());
}

HeldPath RunFolder::make_abandoned() const {
  return make_abandoned_in(at("checkpoints"));
}

void check_may_write(const std::string& path) {
  check_is_no_part_of_run(path);
  const std::string checkpoints = path + "/checkpoints";
  const bool is_link = entry_type(checkpoints, false) == EntryType::link;
  // A link to nothing has no real path; the next check reports it.
  if (is_link && entry_type(checkpoints) == EntryType::folder) check_is_no_part_of_run(checkpoints);
  check_linked_checkpoints(path);
  check_holds_no_runs(path);
  const std::vector<std::string> names = names_in_the_way(path);
  if (names.empty()) return;
  fail(ErrorKind::usage,
       "{} is not a run folder of dpt, but holds {}, which a run would overwrite; nothing was "
       "changed. Choose another folder with --run-dir",
       path, fmt::join(names, ", "));
}

bool is_locked_run(const std::string& path) {
  return is_locked(HeldPath(path) / kLockFile);
}

bool is_run_folder(const std::string& path) {
  std::error_code ignored;
  for (const char* name : {"config.yaml", kReplaced, kMoving, kRestoring}) {
    if (fs::exists(path + "/" + name, ignored)) return true;
  }
  const std::string checkpoints = path + "/checkpoints";
  if (!fs::is_directory(checkpoints, ignored)) return false;
  std::error_code failure;
  for (fs::directory_iterator entry(checkpoints, failure), end; !failure && entry != end;
       entry.increment(failure)) {
    if (!is_record_of_checkpoints(entry->path().filename().string())) return true;
  }
  return static_cast<bool>(failure);
}

bool is_file_of_run(const std::string& path) {
  std::error_code error;
  const fs::path file = fs::weakly_canonical(path, error);
  const fs::path folder = file.parent_path();
  if (is_run_of_dpt(folder.string())) {
    return OwnNames(folder.string()).has(file.filename().string());
  }
  // A checkpoint is in checkpoints/, or in a folder there.
  for (const fs::path& checkpoints : {folder, folder.parent_path()}) {
    if (checkpoints.filename() == "checkpoints" &&
        is_run_of_dpt(checkpoints.parent_path().string())) {
      return true;
    }
  }
  return false;
}

std::string folder_of_run(const std::string& path) {
  const HeldPath folder(path);
  for (const char* name : {kReplaced, kMoving, kRestoring}) {
    const bool has_run = is_set_aside(folder, name) &&
                         entry_type(folder / name / "checkpoints") == EntryType::folder;
    if (has_run &&
        (std::string_view(name) != kReplaced || list_steps(folder / "checkpoints").empty())) {
      return path + "/" + name;
    }
  }
  return path;
}

std::string free_run_folder(const std::string& name, int first) {
  for (int i = first;; ++i) {
    const std::string path = i == 1 ? "runs/" + name : fmt::format("runs/{}-{}", name, i);
    if (!is_run_folder(path) && names_in_the_way(path).empty() && runs_in(path).empty()) {
      return path;
    }
  }
}

RunFolder open_free_run_folder(const std::string& name, const std::vector<std::string>& outputs) {
  for (int i = 1;; ++i) {
    const std::string path = free_run_folder(name, i);
    auto folder = RunFolder::open_unless_held(path, outputs);
    // Another process may have taken the name, and even ended, in between.
    if (folder && !is_run_folder(path)) return std::move(*folder);
  }
}

}  // namespace dpt
