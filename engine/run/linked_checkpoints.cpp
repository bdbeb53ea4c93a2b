#include "engine/run/linked_checkpoints.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "engine/checkpoints/checkpoint.h"
#include "engine/run/run_files.h"
#include "engine/run/run_lock.h"
#include "engine/run/run_log.h"
#include "kernels/base/error.h"
#include "kernels/base/file_handle.h"
#include "kernels/base/held_path.h"
#include "kernels/base/json_text.h"

namespace dpt {
namespace fs = std::filesystem;
namespace {

struct Owner {
  std::string id, run;  ///< both empty if nothing is recorded
};

Owner owner_of(const HeldPath& checkpoints) {
  if (entry_type(checkpoints / kOwnerFile) != EntryType::file) return {};
  const Json record = Json::parse(read_whole_file(checkpoints / kOwnerFile), nullptr, false);
  const auto text = [&](const char* key) {
    const auto found = record.is_object() ? record.find(key) : record.end();
    return found != record.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  return {text("id"), text("run")};
}

std::string real_path(const HeldPath& path) {
  std::error_code ignored;
  return fs::weakly_canonical(path.text(), ignored).string();
}

bool is_linked(const HeldPath& path) {
  return entry_type(path, false) == EntryType::link;
}

bool leads_elsewhere(const HeldPath& checkpoints) {
  return is_linked(checkpoints) && entry_type(checkpoints) == EntryType::folder;
}

/// Returns the target of a link, even if nothing exists there.
std::string target_of_link(const std::string& link) {
  std::error_code failure;
  const fs::path target = fs::read_symlink(link, failure);
  return failure ? link : real_path((fs::path(link).parent_path() / target).string());
}

/// Refuses a link to a missing folder: without the folder, nothing is known about the run.
void check_leads_to_folder(const HeldPath& checkpoints) {
  if (!is_linked(checkpoints) || leads_elsewhere(checkpoints)) return;
  fail(ErrorKind::data,
       "{}: expected a folder, found a link to {}, which is not a folder: is the disk mounted? "
       "Nothing was changed. Mount it, or make {} a link to a folder",
       checkpoints.text(), target_of_link(checkpoints.text()), checkpoints.text());
}

bool holds_checkpoints(const HeldPath& checkpoints) {
  const std::vector<std::string> names = list_names(checkpoints);
  return std::any_of(names.begin(), names.end(), [](const std::string& name) {
    return is_checkpoint_name(name) || name == kReplacedCheckpoints;
  });
}

/// Returns true if a run has trained in the folder before, even if --overwrite moved it aside.
bool has_trained(const HeldPath& run) {
  const auto places = {run, run / kReplaced, run / kMoving, run / kRestoring};
  return std::any_of(places.begin(), places.end(), has_log_of_dpt);
}

/// Returns true if the recorded run folder is another folder whose checkpoints lead to the same
/// place. One of the two folders is then a copy of the other, with the same id.
bool has_copy(const HeldPath& run, const Owner& owner) {
  return !owner.run.empty() && !is_same_entry(owner.run, run) &&
         is_same_entry(owner.run + "/checkpoints", run / "checkpoints");
}

/// Returns a description of the other owner of the folder's checkpoints, or an empty string if they
/// are this run's.
std::string other_owner(const HeldPath& run) {
  const HeldPath checkpoints = run / "checkpoints";
  if (!leads_elsewhere(checkpoints) || !holds_checkpoints(checkpoints)) return {};
  const Owner owner = owner_of(checkpoints);
  if (owner.id.empty()) {
    // Earlier versions recorded no owner.
    return has_trained(run) ? std::string() : "checkpoints, but this run has not saved any yet";
  }
  const bool is_own = owner.id == id_in_marker(run);
  if (is_own && !has_copy(run, owner)) return {};
  return "the checkpoints of the run in " + owner.run;
}

}  // namespace

bool has_record_of_run(const HeldPath& run) {
  const std::string id = owner_of(run / "checkpoints").id;
  return !id.empty() && id == id_in_marker(run);
}

void check_linked_checkpoints(const HeldPath& run) {
  check_leads_to_folder(run / "checkpoints");
  const std::string found = other_owner(run);
  if (found.empty()) return;
  const std::string path = (run / "checkpoints").text();
  fail(ErrorKind::usage,
       "{} is a link to {}: expected an empty folder or the checkpoints of this run there, found "
       "{}; nothing was changed. Give each run its own folder: make {} a link to an empty folder. "
       "After that, --resume can continue from a checkpoint in {}",
       path, real_path(path), found, path, real_path(path));
}

std::optional<LinkedCheckpoints> hold_linked_checkpoints(const HeldPath& run) {
  if (!leads_elsewhere(run / "checkpoints")) return std::nullopt;
  const HeldPath checkpoints = HeldPath::hold((run / "checkpoints").text());
  const std::string where = real_path(checkpoints);
  FileHandle lock = open_file(checkpoints / kLockFile, O_RDWR | O_CREAT | O_NOFOLLOW, 0666);
  if (!lock.is_open()) {
    fail(ErrorKind::data, "cannot write into {}, to which {} leads: {}", where, checkpoints.text(),
         std::strerror(errno));
  }
  const LockResult result = try_lock(lock);
  if (result == LockResult::failed) {
    fail(ErrorKind::data, "cannot lock {}/{}: {}", where, kLockFile, std::strerror(errno));
  }
  const Owner owner = owner_of(checkpoints);
  if (result == LockResult::held_by_other) {
    fail(ErrorKind::usage,
         "{} is a link to {}, which is in use by another dpt process{}: wait for it, stop it, or "
         "make {} a link to an empty folder",
         checkpoints.text(), where, owner.run.empty() ? "" : ", of the run in " + owner.run,
         checkpoints.text());
  }
  check_linked_checkpoints(run);
  const std::string id = make_id_in_marker(run), path = real_path(run);
  if (owner.id != id || owner.run != path) {
    write_file_atomically(checkpoints / kOwnerFile,
                          json_text(Json{{"v", 1}, {"id", id}, {"run", path}}) + "\n");
  }
  return LinkedCheckpoints{checkpoints, where, std::move(lock)};
}

void check_same_checkpoints(const HeldPath& run, const std::optional<LinkedCheckpoints>& held,
                            const std::string& path) {
  const HeldPath now = run / "checkpoints";
  // If checkpoints/ was not a link and still is not one, it belongs to this run. The next save
  // creates it if it is missing.
  if (held ? is_same_entry(now, held->place) : !is_linked(now)) return;
  const std::string text = path + "/checkpoints";
  const std::string expected = held ? "leads to " + held->real_path : "is a folder";
  const std::string found = is_linked(now) ? "is a link to " + target_of_link(text)
                            : entry_type(now, false) == EntryType::none ? "is missing"
                                                                        : "is another folder";
  fail(ErrorKind::data,
       "{} no longer {}: it {}. The folder may be another run's, so nothing more is written or "
       "removed there. Restore it, and start the run again",
       text, expected, found);
}

}  // namespace dpt
