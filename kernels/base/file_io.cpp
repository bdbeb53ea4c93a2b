#include "kernels/base/file_io.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <system_error>
#include <utility>
#include <vector>

#include "kernels/base/error.h"
#include "kernels/base/heartbeat.h"

namespace dpt {
namespace {

// Linux transfers at most 2 GiB per call. Smaller chunks keep signals from waiting long, and show
// the other replicas that a slow disk still makes progress.
constexpr std::size_t kLargestTransfer = std::size_t{8} << 20;

std::string reason(int error) {
  return std::generic_category().message(error);
}

/// Calls fsync once. Does not repeat it after a failure, because the kernel may have dropped the
/// data and would report success the next time. An interruption by a signal is not a failure.
int sync_once(int fd) {
  const SystemCall call("syncing a file to disk");
  return uninterrupted([fd] { return ::fsync(fd); });
}

/// Calls close once. On Linux the descriptor is closed even if a signal interrupts the call.
int close_once(int fd) {
  const SystemCall call("closing a file");  // network file systems write the remaining data here
  return ::close(fd) == 0 || errno == EINTR ? 0 : -1;
}

/// Removes an entry. `flags` is 0, or AT_REMOVEDIR for an empty folder.
int unlink_entry(const HeldPath& path, int flags = 0) {
  const SystemCall call("removing a file");
  return uninterrupted([&] { return ::unlinkat(path.at(), path.name(), flags); });
}

int rename_entry(const HeldPath& from, const HeldPath& to) {
  const SystemCall call("renaming a file");
  return uninterrupted([&] { return ::renameat(from.at(), from.name(), to.at(), to.name()); });
}

bool read_status(const HeldPath& path, bool follow, struct stat& status) {
  return ::fstatat(path.at(), path.name(), &status, follow ? 0 : AT_SYMLINK_NOFOLLOW) == 0;
}

bool is_same(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

void require_durable_folder(const HeldPath& folder, const HeldPath& entry, const char* done) {
  const int error = sync_folder(folder);
  if (error != 0) {
    fail(ErrorKind::data, "{}: {}, but its folder cannot be synced to disk: {}", entry.text(), done,
         reason(error));
  }
}

std::string read_link(const HeldPath& path) {
  std::string target(4096, '\0');
  const ssize_t size = ::readlinkat(path.at(), path.name(), target.data(), target.size());
  if (size < 0) fail(ErrorKind::data, "{}: cannot read the link: {}", path.text(), reason(errno));
  target.resize(static_cast<std::size_t>(size));
  return target;
}

/// Copies a file, a link or a whole folder to `to`, which must not exist.
void copy_entry(const HeldPath& from, const HeldPath& to) {
  switch (entry_type(from, false)) {
    case EntryType::folder:
      make_folders(to);
      for (const std::string& name : list_names(from)) copy_entry(from / name, to / name);
      break;
    case EntryType::link:
      link_durably(read_link(from), to);
      break;
    default:
      copy_durably(from, to);
  }
}

/// Removes a file, a link, or a folder with its content. Does not make the removal durable.
void remove_entries(const HeldPath& path) {
  const bool is_folder = entry_type(path, false) == EntryType::folder;
  if (is_folder) {
    for (const std::string& name : list_names(path)) remove_entries(path / name);
  }
  if (unlink_entry(path, is_folder ? AT_REMOVEDIR : 0) != 0 && errno != ENOENT) {
    fail(ErrorKind::data, "{}: cannot remove it: {}", path.text(), reason(errno));
  }
}

/// Moves an entry to another file system, where renaming is impossible.
void move_by_copy(const HeldPath& from, const HeldPath& to) {
  const HeldPath copy = to + kTemporarySuffix;
  remove_tree(copy);
  copy_entry(from, copy);
  move_durably(copy, to);
  remove_tree(from);
}

}  // namespace

FileHandle open_file(const HeldPath& path, int flags, unsigned mode) {
  return FileHandle(uninterrupted([&] {
    return ::openat(path.at(), path.name(), flags | O_CLOEXEC, static_cast<mode_t>(mode));
  }));
}

EntryType entry_type(const HeldPath& path, bool follow) {
  struct stat status {};
  if (!read_status(path, follow, status)) return EntryType::none;
  if (S_ISREG(status.st_mode)) return EntryType::file;
  if (S_ISDIR(status.st_mode)) return EntryType::folder;
  return S_ISLNK(status.st_mode) ? EntryType::link : EntryType::other;
}

bool is_same_entry(const HeldPath& a, const HeldPath& b) {
  struct stat first {
  }, second{};
  return read_status(a, true, first) && read_status(b, true, second) && is_same(first, second);
}

bool is_same_entry(const HeldPath& path, const FileHandle& file) {
  struct stat there {
  }, open{};
  return read_status(path, true, there) && ::fstat(file.fd(), &open) == 0 && is_same(there, open);
}

std::vector<std::string> list_names(const HeldPath& folder) {
  std::vector<std::string> names;
  FileHandle file = open_file(folder, O_RDONLY | O_DIRECTORY);
  if (!file.is_open() && errno == ENOENT) return names;
  const std::unique_ptr<DIR, int (*)(DIR*)> list(file.is_open() ? ::fdopendir(file.fd()) : nullptr,
                                                 ::closedir);
  if (list) {
    file.release();  // closedir closes it
    errno = 0;
    while (const dirent* entry = ::readdir(list.get())) {
      const std::string name = entry->d_name;
      if (name != "." && name != "..") names.push_back(name);
      errno = 0;
    }
  }
  if (errno != 0) {
    fail(ErrorKind::data, "{}: cannot list the folder: {}", folder.text(), reason(errno));
  }
  std::sort(names.begin(), names.end());
  return names;
}

int sync_folder(const HeldPath& path) {
  const FileHandle folder = open_file(path, O_RDONLY | O_DIRECTORY);
  if (!folder.is_open()) return errno;
  // Some network file systems lack fsync for folders and return EINVAL. There, the rename has to
  // suffice.
  return sync_once(folder.fd()) == 0 || errno == EINVAL ? 0 : errno;
}

FileHandle open_regular_file(const HeldPath& place, std::uint64_t& size) {
  const std::string& path = place.text();
  // Use O_NONBLOCK, because a named pipe must be refused, not waited for.
  FileHandle file = open_file(place, O_RDONLY | O_NONBLOCK);
  if (!file.is_open()) fail(ErrorKind::data, "{}: cannot open: {}", path, reason(errno));
  struct stat status {};
  if (::fstat(file.fd(), &status) != 0) {
    fail(ErrorKind::data, "{}: cannot read its size: {}", path, reason(errno));
  }
  if (!S_ISREG(status.st_mode)) {
    fail(ErrorKind::data, "{}: expected a file, found {}", path,
         S_ISDIR(status.st_mode) ? "a folder" : "a device, pipe or socket");
  }
  size = static_cast<std::uint64_t>(status.st_size);
  return file;
}

void read_exactly(const FileHandle& file, const std::string& path, std::uint64_t offset,
                  std::span<std::byte> to) {
  while (!to.empty()) {
    beat("reading a file");
    const std::size_t chunk = std::min(to.size(), kLargestTransfer);
    const ssize_t got = ::pread(file.fd(), to.data(), chunk, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      fail(ErrorKind::data, "{}: cannot read at byte {}: {}", path, offset, reason(errno));
    }
    if (got == 0) {
      fail(ErrorKind::data, "{}: expected {} more bytes at byte {}, found the end of the file",
           path, to.size(), offset);
    }
    to = to.subspan(static_cast<std::size_t>(got));
    offset += static_cast<std::uint64_t>(got);
  }
}

int write_all(int fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const SystemCall call("writing a file");
    const ssize_t put = ::write(fd, bytes.data(), std::min(bytes.size(), kLargestTransfer));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return errno;
    if (put == 0) return EIO;  // no progress and no reason: avoid an endless loop
    bytes = bytes.subspan(static_cast<std::size_t>(put));
  }
  return 0;
}

AtomicFile::AtomicFile(HeldPath path)
    : path_(std::move(path)), temporary_(path_ + kTemporarySuffix) {
  // Remove a temporary file that a crash left or that somebody planted, instead of writing through
  // it.
  unlink_entry(temporary_);
  file_ = open_file(temporary_, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0666);
  if (!file_.is_open()) {
    fail(ErrorKind::data,
         "{}: cannot create a temporary file in its folder: {}; if the file already existed, it is "
         "unchanged",
         path_.text(), reason(errno));
  }
  remove_ = true;
}

AtomicFile::~AtomicFile() {
  if (remove_) unlink_entry(temporary_);
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  const int error = write_all(file_.fd(), bytes);
  if (error != 0) fail_at("write", error);
  written_ += bytes.size();
}

void AtomicFile::commit() {
  if (sync_once(file_.fd()) != 0) fail_at("sync to disk", errno);
  commit_unsynced();
  require_durable_folder(path_.folder(), path_, "is in place");
}

void AtomicFile::commit_unsynced() {
  if (close_once(file_.release()) != 0) fail_at("close", errno);
  if (rename_entry(temporary_, path_) != 0) fail_at("rename into place", errno);
  remove_ = false;
}

void AtomicFile::fail_at(const char* doing, int error) const {
  fail(ErrorKind::data,
       "{}: cannot {} (after {} bytes): {}; if the file already existed, it is unchanged",
       path_.text(), doing, written_, reason(error));
}

void write_file_atomically(const HeldPath& path, const std::string& text) {
  AtomicFile file(path);
  file.write(std::as_bytes(std::span(text)));
  file.commit();
}

std::string read_whole_file(const HeldPath& path) {
  std::uint64_t size = 0;
  const FileHandle file = open_regular_file(path, size);
  std::string text(size, '\0');
  read_exactly(file, path.text(), 0, std::as_writable_bytes(std::span(text)));
  return text;
}

void make_folders(const HeldPath& path) {
  if (path.text().empty() || entry_type(path) == EntryType::folder) return;
  const HeldPath above = path.folder();
  if (above.text() != path.text()) make_folders(above);
  if (uninterrupted([&] { return ::mkdirat(path.at(), path.name(), 0777); }) != 0 &&
      errno != EEXIST) {
    fail(ErrorKind::data, "{}: cannot create the folder: {}", path.text(), reason(errno));
  }
  if (entry_type(path) != EntryType::folder) {
    const bool is_link = entry_type(path, false) == EntryType::link;
    fail(ErrorKind::data, "{}: expected a folder, found {}", path.text(),
         is_link ? "a link to " + read_link(path) +
                       ", which is not a folder: create that folder, or remove the link"
                 : "a file");
  }
  require_durable_folder(above, path, "is created");
}

void move_durably(const HeldPath& from, const HeldPath& to) {
  if (rename_entry(from, to) != 0) {
    if (errno == EXDEV) return move_by_copy(from, to);
    fail(ErrorKind::data, "{}: cannot move it to {}: {}", from.text(), to.text(), reason(errno));
  }
  require_durable_folder(to.folder(), to, "is in place");
  if (from.folder().text() != to.folder().text()) {
    require_durable_folder(from.folder(), from, "is moved");
  }
}

void copy_durably(const HeldPath& from, const HeldPath& to) {
  std::uint64_t size = 0;
  const FileHandle source = open_regular_file(from, size);
  AtomicFile copy(to);
  std::vector<std::byte> block(std::min<std::uint64_t>(size, std::uint64_t{1} << 20));
  for (std::uint64_t at = 0; at < size;) {
    const auto part = std::span(block).first(std::min<std::uint64_t>(block.size(), size - at));
    read_exactly(source, from.text(), at, part);
    copy.write(part);
    at += part.size();
  }
  copy.commit();
}

void link_durably(const std::string& target, const HeldPath& to) {
  if (uninterrupted([&] { return ::symlinkat(target.c_str(), to.at(), to.name()); }) != 0) {
    fail(ErrorKind::data, "{}: cannot create the link: {}", to.text(), reason(errno));
  }
  require_durable_folder(to.folder(), to, "is created");
}

void remove_durably(const HeldPath& path) {
  if (unlink_entry(path) != 0) {
    if (errno == ENOENT) return;
    fail(ErrorKind::data, "{}: cannot remove it: {}", path.text(), reason(errno));
  }
  require_durable_folder(path.folder(), path, "is removed");
}

void remove_tree(const HeldPath& path) {
  remove_entries(path);
  require_durable_folder(path.folder(), path, "is removed");
}

void remove_if_empty(const HeldPath& folder) {
  unlink_entry(folder, AT_REMOVEDIR);
}

}  // namespace dpt
