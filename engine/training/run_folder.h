// The folder of a run: where it is, who holds it, and what is kept in it. See docs/log-format.md.
#pragma once

#include <cstdint>
#include <string>

namespace dpt {

/// An open run folder, locked by this process until it is destroyed (or the process dies).
///
/// `--overwrite`: set_aside() moves the old run into replaced/, and give_up_replaced() removes it
/// when the new run has saved its first checkpoint. Until then the old run can be restored: with
/// put_back(), or, after a crash, by the next process that opens the folder.
class RunFolder {
 public:
  /// No folder: of a process that does not write the run's. Nothing else of it may be called but
  /// checkpoints().
  RunFolder() = default;
  /// Creates the folder if needed, locks it, and finishes what a crash left half done. Throws
  /// ErrorKind::usage when another process holds it, ErrorKind::data when it cannot be made or
  /// written.
  explicit RunFolder(std::string path);
  ~RunFolder();
  RunFolder(RunFolder&& other) noexcept;
  RunFolder& operator=(RunFolder&&) = delete;

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  std::string checkpoints() const { return path_ + "/checkpoints"; }
  std::string checkpoint(std::int64_t step) const;
  std::string best() const { return path_ + "/best.safetensors"; }
  /// Where a file of the old run is after set_aside(). Other paths stay as they are.
  std::string after_set_aside(const std::string& path) const;

  /// Throws ErrorKind::usage when the folder holds anything that dpt does not write.
  void check_only_ours() const;
  /// Moves everything that dpt wrote there into replaced/.
  void set_aside();
  /// The new run has a checkpoint: removes the old one. Does nothing when nothing was set aside.
  void give_up_replaced();
  /// The new run has saved no checkpoint: restores the old one. Returns whether there was one.
  bool put_back();
  /// Where put_back() left the best weights, log and messages of the new run, an abandoned-N;
  /// empty where it had no best.
  const std::string& kept_of_new() const { return kept_of_new_; }
  /// Whether opening the folder has put back the run that a crash had left in replaced/.
  bool restored() const { return restored_; }

  /// Creates a folder for what a run moves aside: checkpoints/abandoned-1, -2, ...
  std::string make_abandoned() const;

 private:
  std::string replaced() const { return path_ + "/replaced"; }
  void leave_new_run();

  std::string path_;
  int lock_ = -1;
  bool restored_ = false;
  std::string kept_of_new_;
};

/// Whether the folder holds a run (its config.yaml or checkpoints).
bool is_run_folder(const std::string& path);

/// The folder that holds the run at `path`: `path` itself, or the replaced/ in it, where a crash of
/// --overwrite left the run that opening the folder restores. Changes nothing.
std::string folder_of_run(const std::string& path);

/// "runs/NAME" if that is free, else "runs/NAME-2", "runs/NAME-3", ...
std::string free_run_folder(const std::string& name);

}  // namespace dpt
