// The folder of a run: its place, its lock, and its files. See docs/reference/log-format.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/run/linked_checkpoints.h"
#include "kernels/base/file_handle.h"
#include "kernels/base/file_io.h"
#include "kernels/base/held_path.h"

namespace dpt {

/// An open run folder, locked by this process until it is destroyed (or the process dies). Used by
/// one thread at a time.
///
/// The folder is held open by a descriptor: at() refers to files in it even after it was moved, and
/// another folder that has taken its path is never written to. The same holds for the folder to
/// which `checkpoints` leads if it is a link. Paths are only for messages.
///
/// `--overwrite`: set_aside() moves the old run into replaced/, and give_up_replaced() removes it
/// when the new run has saved its first regular checkpoint. Until then the old run can be restored:
/// with put_back() or restore(), or, while the new one has no checkpoint, by the next process that
/// opens the folder (replaced_run.h).
class RunFolder {
 public:
  /// Creates an object without a folder, for a process that does not write the run folder. Only
  /// checkpoints() may be called on it.
  RunFolder() = default;
  /// Creates the folder if needed, locks it, marks it as a run folder, and completes what a crash
  /// has interrupted. Throws ErrorKind::usage if another process holds the folder or
  /// check_may_write() throws it, and ErrorKind::data if the folder cannot be created or written.
  /// `outputs`: paths of other files that the command writes; those in the folder belong to the
  /// run.
  explicit RunFolder(std::string path, const std::vector<std::string>& outputs = {});
  /// Does the same, or returns nothing if another process holds the folder.
  static std::optional<RunFolder> open_unless_held(std::string path,
                                                   const std::vector<std::string>& outputs);
  RunFolder(RunFolder&& other) noexcept = default;
  RunFolder& operator=(RunFolder&&) = delete;

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  std::string checkpoints() const { return path_ + "/checkpoints"; }
  std::string checkpoint(std::int64_t step) const;
  std::string best() const { return path_ + "/best.safetensors"; }
  /// Return the folder, held open, and what is in it.
  const HeldPath& place() const { return root_; }
  HeldPath at(const std::string& name) const;
  HeldPath checkpoint_place(std::int64_t step) const;
  HeldPath best_place() const { return at("best.safetensors"); }
  /// Returns the path that an old run's file has after set_aside(). Returns other paths unchanged.
  std::string after_set_aside(const std::string& path) const;
  /// Throws ErrorKind::usage if set_aside() would remove the file.
  void check_stays(const std::string& path) const;

  /// Checks that the folder is still this process's. Throws ErrorKind::data if it was removed, if
  /// another process has taken it over, or if `checkpoints` no longer leads where it did. Returns a
  /// message, once, if the folder was moved.
  std::string check_held();
  /// Returns the current path of the folder, as far as it is known.
  std::string current_path() const;

  /// Throws ErrorKind::usage if the folder holds files that dpt does not write.
  void check_only_ours() const;
  /// Moves all files that dpt wrote there into replaced/. If that already holds a run, instead
  /// removes the unfinished run that was to replace it.
  void set_aside();
  /// Removes the old run, because the new one has a regular checkpoint. Does nothing if nothing was
  /// set aside.
  void give_up_replaced();
  /// Returns true if an old run is in replaced/ while the new one has a checkpoint.
  bool has_replaced() const;
  /// Restores the old run, because the new one has saved no checkpoint. Returns true if there was
  /// an old run.
  bool put_back();
  /// Returns the folder abandoned-N in which put_back() left the best weights, log and messages of
  /// the new run, or all its files if it had checkpoints. Empty if it had none of these.
  const std::string& kept_of_new() const { return kept_of_new_; }
  /// Returns true if opening the folder restored a run that a crash had left in replaced/.
  bool restored() const { return restored_; }

  /// Removes the run if this object created the folder and the folder holds neither weights nor
  /// logs of other processes. Foreign files stay, and the folder with them.
  void remove_if_new();

  /// Creates a folder for files that a run moves aside: checkpoints/abandoned-1, -2, ...
  HeldPath make_abandoned() const;

 private:
  struct Unopened {};
  /// Returns the name that a file of the run has in the folder; empty for other files.
  std::string entry_at(const std::string& path) const;
  RunFolder(Unopened, std::string path, const std::vector<std::string>& outputs);
  /// Locks the folder and marks it as a run folder. Returns false if another process holds it.
  bool open();
  bool lock();
  /// Returns true if the lock file in the folder is the one that this process holds.
  bool has_lock();
  /// Takes the lock again after its file was removed. Returns false if another process was faster.
  bool lock_again();
  bool leads_here(const std::string& path) const;
  /// Throws ErrorKind::data if `checkpoints` no longer leads where it led when the folder was
  /// opened.
  void check_checkpoints() const;

  std::string path_;
  bool is_new_ = false;  ///< true if this object created the folder
  HeldPath root_{""};
  FileHandle lock_;
  std::optional<LinkedCheckpoints> linked_;  ///< if `checkpoints` is a link
  bool restored_ = false, said_moved_ = false;
  std::string kept_of_new_;
  std::vector<std::string> outputs_;  ///< names in the folder
};

/// Throws ErrorKind::usage if `path` holds files that no run of dpt wrote and that a run would
/// overwrite. Changes nothing.
void check_may_write(const std::string& path);

/// Returns true if a process holds the lock of the run folder at `path`. Takes no lock.
bool is_locked_run(const std::string& path);

/// Returns true if the folder holds a run (its config.yaml or checkpoints).
bool is_run_folder(const std::string& path);

/// Returns true if `path` is a file of a run: one that dpt wrote at the top of a run folder, or one
/// in its checkpoints/.
bool is_file_of_run(const std::string& path);

/// Returns the folder that holds the run at `path`: `path` itself, or its replaced/,
/// replaced.moving/ or replaced.restoring/ if a crash of --overwrite left the run there. (Opening
/// the folder restores that run.) Changes nothing.
std::string folder_of_run(const std::string& path);

/// Returns the first free folder of "runs/NAME", "runs/NAME-2", "runs/NAME-3", ... Free means
/// without a run and without files that a run would overwrite. `first`: the number to begin with.
std::string free_run_folder(const std::string& name, int first = 1);
/// Opens the first free run folder that no other process takes at the same time.
RunFolder open_free_run_folder(const std::string& name, const std::vector<std::string>& outputs);

}  // namespace dpt
