// Files, carefully: whole reads and writes, and a new file that appears complete or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/base/file_handle.h"
#include "kernels/base/held_path.h"

namespace dpt {

/// Opens a regular file for reading and says how long it is. Throws ErrorKind::data.
FileHandle open_regular_file(const HeldPath& path, std::uint64_t& size);

/// Reads exactly `to.size()` bytes at `offset`. Throws ErrorKind::data, also when the file ends
/// before (it was truncated after it was opened).
void read_exactly(const FileHandle& file, const std::string& path, std::uint64_t offset,
                  std::span<std::byte> to);

/// Writes all bytes, however many calls that takes. Returns 0 or the errno of the failure.
int write_all(int fd, std::span<const std::byte> bytes);

/// A file that replaces `path` in one step, or leaves it as it was: everything goes to a temporary
/// file in the same folder; commit() makes it durable (fsync), renames it and makes the folder
/// durable. Without commit the temporary file is removed. All failures throw ErrorKind::data with
/// the path and the system's reason.
class AtomicFile {
 public:
  explicit AtomicFile(HeldPath path);
  AtomicFile(const AtomicFile&) = delete;
  ~AtomicFile();
  void write(std::span<const std::byte> bytes);
  void commit();
  /// Replaces the file in one step too, without waiting for the disk: after a crash of the system,
  /// it may be empty.
  void commit_unsynced();

 private:
  [[noreturn]] void fail_at(const char* doing, int error) const;

  HeldPath path_, temporary_;
  FileHandle file_;
  std::uint64_t written_ = 0;
  bool remove_ = false;
};

/// Writes a small text file with the same steps.
void write_file_atomically(const HeldPath& path, const std::string& text);

/// A whole file as text. Throws ErrorKind::data.
std::string read_whole_file(const HeldPath& path);

enum class EntryType : std::uint8_t { none, file, folder, link, other };
/// Returns the type of the entry; for a link, the type of its target (`none` if that is missing)
/// unless `follow` is false. Returns `none` if the entry cannot be examined.
EntryType entry_type(const HeldPath& path, bool follow = true);
/// Returns true if two paths lead to the same existing file or folder.
bool is_same_entry(const HeldPath& a, const HeldPath& b);
/// Returns true if `path` still leads to the open `file`: nobody has removed or replaced it.
bool is_same_entry(const HeldPath& path, const FileHandle& file);
/// Returns the names in a folder, sorted; empty if it is missing. Throws ErrorKind::data.
std::vector<std::string> list_names(const HeldPath& folder);

// Functions that change folders. Each throws ErrorKind::data with the path and the system's reason,
// and returns after the folders concerned are durable.

/// Makes the folder `path`, and those above it, where they are missing.
void make_folders(const HeldPath& path);
/// Renames the file, folder or link `from` to `to`. Across file systems, copies it and removes the
/// original when the copy is durable: a crash leaves `from`, or both.
void move_durably(const HeldPath& from, const HeldPath& to);
/// Makes `to` a copy of the file `from`, so that a crash leaves the old `to` or the new one. No
/// hard link: whoever writes into one of the two names (cp does) would change the other.
void copy_durably(const HeldPath& from, const HeldPath& to);
/// Creates the link `to`, which must not exist, with the target `target`.
void link_durably(const std::string& target, const HeldPath& to);
/// Removes a file or link; a missing one is not an error.
void remove_durably(const HeldPath& path);
/// Removes a file, a link, or a folder with all that is in it; targets of links stay.
void remove_tree(const HeldPath& path);
/// Removes a folder if it is empty; ignores one that is missing or not empty.
void remove_if_empty(const HeldPath& folder);

/// fsync of a folder. Returns 0 or the errno of the failure; a file system without it counts as
/// success.
int sync_folder(const HeldPath& path);
/// open(2) with O_CLOEXEC, repeated if a signal interrupts it. On failure errno says why.
FileHandle open_file(const HeldPath& path, int flags, unsigned mode = 0);

/// The suffix of temporary files: a crash may leave one, and nobody reads it.
inline constexpr const char* kTemporarySuffix = ".tmp";

}  // namespace dpt
