// Safe file access: reading and writing whole files, and new files that appear either complete or
// not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/base/file_handle.h"
#include "kernels/base/held_path.h"

namespace dpt {

/// Opens a regular file for reading and returns its length. Throws ErrorKind::data.
FileHandle open_regular_file(const HeldPath& path, std::uint64_t& size);

/// Reads exactly `to.size()` bytes at `offset`. Throws ErrorKind::data, also if the file ends
/// earlier because it was truncated after it was opened.
void read_exactly(const FileHandle& file, const std::string& path, std::uint64_t offset,
                  std::span<std::byte> to);

/// Writes all bytes, with as many calls as necessary. Returns 0 or the errno of the failure.
int write_all(int fd, std::span<const std::byte> bytes);

/// A file that replaces `path` in one step, or leaves it unchanged. All data go to a temporary file
/// in the same folder. commit() makes it durable (fsync), renames it and makes the folder durable.
/// Without commit, the temporary file is removed. All failures throw ErrorKind::data with the path
/// and the system's reason.
class AtomicFile {
 public:
  explicit AtomicFile(HeldPath path);
  AtomicFile(const AtomicFile&) = delete;
  ~AtomicFile();
  void write(std::span<const std::byte> bytes);
  void commit();
  /// Replaces the file in one step without waiting for the disk. After a system crash the file may
  /// be empty.
  void commit_unsynced();

 private:
  [[noreturn]] void fail_at(const char* doing, int error) const;

  HeldPath path_, temporary_;
  FileHandle file_;
  std::uint64_t written_ = 0;
  bool remove_ = false;
};

/// Writes a small text file as AtomicFile does.
void write_file_atomically(const HeldPath& path, const std::string& text);

/// Returns the content of a file. Throws ErrorKind::data.
std::string read_whole_file(const HeldPath& path);

enum class EntryType : std::uint8_t { none, file, folder, link, other };
/// Returns the type of the entry, or `none` if it cannot be examined. For a link, returns the type
/// of its target (`none` if that is missing), unless `follow` is false.
EntryType entry_type(const HeldPath& path, bool follow = true);
/// Returns true if two paths lead to the same existing file or folder.
bool is_same_entry(const HeldPath& a, const HeldPath& b);
/// Returns true if `path` still leads to the open `file`: nobody has removed or replaced it.
bool is_same_entry(const HeldPath& path, const FileHandle& file);
/// Returns the names in a folder, sorted; empty if it is missing. Throws ErrorKind::data.
std::vector<std::string> list_names(const HeldPath& folder);

// Functions that change folders. Each throws ErrorKind::data with the path and the system's reason,
// and returns after the folders concerned are durable.

/// Creates the folder `path` and its parents if they are missing.
void make_folders(const HeldPath& path);
/// Renames the file, folder or link `from` to `to`. Across file systems, copies it, and removes the
/// original once the copy is durable. A crash leaves either `from` or both.
void move_durably(const HeldPath& from, const HeldPath& to);
/// Makes `to` a copy of the file `from`. A crash leaves the old `to` or the new one. Does not
/// create a hard link, because a program that writes into one of the names (such as cp) would
/// change the other, too.
void copy_durably(const HeldPath& from, const HeldPath& to);
/// Creates the link `to` to the target `target`. `to` must not exist.
void link_durably(const std::string& target, const HeldPath& to);
/// Removes a file or link; a missing one is not an error.
void remove_durably(const HeldPath& path);
/// Removes a file, a link, or a folder with its content. Does not follow links.
void remove_tree(const HeldPath& path);
/// Removes a folder if it is empty. Does nothing if it is missing or not empty.
void remove_if_empty(const HeldPath& folder);

/// Calls fsync on a folder. Returns 0 or the errno of the failure. Returns 0 if the file system has
/// no fsync for folders.
int sync_folder(const HeldPath& path);
/// Calls open(2) with O_CLOEXEC. Repeats the call if a signal interrupts it. Sets errno on failure.
FileHandle open_file(const HeldPath& path, int flags, unsigned mode = 0);

/// Suffix of temporary files. A crash may leave such a file, but it is never read.
inline constexpr const char* kTemporarySuffix = ".tmp";

}  // namespace dpt
