// Files that this process has read completely and found good, so that it need not read them again.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

namespace dpt {

/// Size and times of the last changes, in nanoseconds. Equal stamps show, without reading, that a
/// file has the same bytes as before.
struct FileStamp {
  std::int64_t size = -1, modified = 0, changed = 0;
  std::uint64_t device = 0, inode = 0;
  bool operator==(const FileStamp&) const = default;
};

/// Remembers verified files by their stamps, under any name. Thread-safe.
///
/// Does not remember a file that was changed just before it was read: a second change in the same
/// tick of the file system's clock would leave its stamp unchanged.
class VerifiedFiles {
 public:
  /// Returns true if the bytes of the open file were found good.
  bool contains(int fd) const;
  /// Returns the stamp of an open file that is about to be read, for add(); nothing if it cannot be
  /// remembered.
  static std::optional<FileStamp> stamp_before_reading(int fd);
  /// Records that the file was read completely and found good. Does nothing if it has changed since
  /// `before`.
  void add(int fd, const FileStamp& before);
  /// Records that a file that this process has just written is good. REQUIRES: no other process
  /// could write to it meanwhile.
  void add_written(int fd);

 private:
  using Key = std::pair<std::uint64_t, std::uint64_t>;  ///< device, inode
  mutable std::mutex mutex_;
  std::map<Key, FileStamp> stamps_;
};

/// Returns the instance of this process.
VerifiedFiles& verified_files();

}  // namespace dpt
