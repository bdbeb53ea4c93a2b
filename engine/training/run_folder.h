// The folder of a run: where it is, who holds it, and what is kept in it. See docs/log-format.md.
#pragma once

#include <cstdint>
#include <string>

namespace dpt {

/// An open run folder, locked by this process until it is destroyed (or the process dies).
class RunFolder {
 public:
  /// Creates the folder if needed and locks it. Throws ErrorKind::usage when another process holds
  /// it, ErrorKind::data when it cannot be made or written.
  explicit RunFolder(std::string path);
  ~RunFolder();
  RunFolder(RunFolder&& other) noexcept;
  RunFolder& operator=(RunFolder&&) = delete;

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  std::string checkpoints() const { return path_ + "/checkpoints"; }
  std::string best() const { return path_ + "/best.safetensors"; }

  /// Removes everything that dpt wrote there. Throws ErrorKind::usage, and removes nothing, when
  /// the folder holds anything else.
  void wipe();

 private:
  std::string path_;
  int lock_ = -1;
};

/// Whether the folder holds a run (its config.yaml or checkpoints).
bool is_run_folder(const std::string& path);

/// "runs/NAME" if that is free, else "runs/NAME-2", "runs/NAME-3", ...
std::string free_run_folder(const std::string& name);

/// Makes `to` another name of `from` (hard link, or a copy where links are not possible), so that a
/// crash leaves the old `to` or the new one.
void publish_link(const std::string& from, const std::string& to);

}  // namespace dpt
