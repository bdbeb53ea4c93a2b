// Files of a run folder. dpt's own are recognised by the marker .dpt-run or, in folders older than
// the marker, by their content. Other files in a folder are never overwritten, moved or removed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/held_path.h"

namespace dpt {

/// First file that a run writes: JSON, {"v":1, "files":[...]}, with the names that dpt uses in the
/// folder, and perhaps "id".
inline constexpr const char* kMarkerFile = ".dpt-run";
inline constexpr const char* kLockFile = ".lock";

// Folders for files of the run that --overwrite replaces (replaced_run.h).
inline constexpr const char* kReplaced = "replaced";
inline constexpr const char* kMoving = "replaced.moving";
inline constexpr const char* kRestoring = "replaced.restoring";
inline constexpr const char* kRemoved = "replaced.tmp";

/// Folder in a linked checkpoints/ that holds the old run's checkpoints.
inline constexpr const char* kReplacedCheckpoints = "replaced";

/// Returns true if `name` is one that a run uses in its checkpoints/.
bool is_checkpoint_name(std::string_view name);

/// Record, in the folder to which `checkpoints` leads, of the run that saves there
/// (linked_checkpoints.h).
inline constexpr const char* kOwnerFile = ".dpt-checkpoints";
/// Returns true for the names of the lock and the record.
bool is_record_of_checkpoints(std::string_view name);

/// Returns true if the text is a whole number as dpt writes it: digits, no leading zero.
bool is_number(std::string_view text);

/// Returns "abandoned-N", the name of a folder in checkpoints/ for files that a run moves aside.
std::string abandoned_name(std::int64_t number);
/// Returns N of "abandoned-N", or -1 for another name.
std::int64_t number_of_abandoned(std::string_view name);

/// Returns true if the folder has the marker.
bool is_marked(const HeldPath& folder);

/// Returns true if the folder has a metrics.jsonl that begins like dpt's.
bool has_log_of_dpt(const HeldPath& folder);

/// Returns true if dpt made the folder: it has the marker or, if it is older than the marker, a
/// metrics.jsonl that begins like dpt's or an intact checkpoint (which is read completely). Also
/// true if its replaced/ holds a run that --overwrite replaces.
bool is_run_of_dpt(const HeldPath& folder);

/// Lists the entries of a folder that no run created but a run would overwrite; empty if there are
/// none.
std::vector<std::string> names_in_the_way(const HeldPath& folder);

/// Writes the marker unless it exists and has all names that this version uses and all of `more`.
/// Keeps names that another version has written there.
void write_marker(const HeldPath& folder, const std::vector<std::string>& more = {});

/// Returns the run folder's random id from its marker; empty if it has none. Only folders whose
/// checkpoints are elsewhere have one (linked_checkpoints.h).
std::string id_in_marker(const HeldPath& folder);
/// Returns the run folder's id from its marker, and creates one if it has none. REQUIRES: the
/// folder has a marker.
std::string make_id_in_marker(const HeldPath& folder);

/// Names at the top of `folder` that dpt may have written. `name` may end in ".tmp".
class OwnNames {
 public:
  explicit OwnNames(const HeldPath& folder);
  bool has(std::string_view name) const;

 private:
  HeldPath folder_;
  std::vector<std::string> names_;
};

/// Lists the entries that belong to the run in a folder, relative to the folder: "checkpoints"
/// first, then files, and dpt's files in logs/ and tensorboard/.
std::vector<std::string> entries_of_run(const HeldPath& folder);

/// Returns true if a file at the top of a run folder is the output of another command, which this
/// run may replace: it begins like a verdict, a file for Prometheus or a report.
bool is_output_of_dpt(const HeldPath& file);

/// Returns true if a file begins like a dpt log of messages, with a time and a level.
bool is_message_log(const HeldPath& file);

/// Marks by which a run recognises dpt's own files: the first characters of the files of --verdict,
/// --junit and log.prometheus, and a text near the beginning of a report.
inline constexpr const char* kMarkdownMark = "# dpt ";
inline constexpr const char* kJUnitMark =
    "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"dpt ";
inline constexpr const char* kPrometheusMark = "# HELP dpt_";
inline constexpr const char* kReportMarker = "<meta name=\"generator\" content=\"dpt report\">";

}  // namespace dpt
