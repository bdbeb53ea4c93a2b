#include "engine/checkpoints/file_io.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "kernels/error.h"
#include "kernels/heartbeat.h"

namespace dpt {
namespace {

namespace fs = std::filesystem;

// Linux transfers at most 2 GiB a call; smaller chunks keep a signal from waiting long, and show
// the other replicas that a slow disk gets on.
constexpr std::size_t kLargestTransfer = std::size_t{8} << 20;

std::string reason(int error) {
  return std::generic_category().message(error);
}

/// Makes a system call until no signal interrupts it.
template <class Call>
int uninterrupted(Call call) {
  int result = 0;
  do {
    result = call();
  } while (result < 0 && errno == EINTR);
  return result;
}

/// fsync, once: after a failed one the kernel may have dropped the data and report success the next
/// time. (One that a signal interrupted has not failed.)
int sync_once(int fd) {
  const SystemCall call("syncing a file to disk");
  return uninterrupted([fd] { return ::fsync(fd); });
}

/// close, once: on Linux the descriptor is gone even when a signal interrupted the call.
int close_once(int fd) {
  const SystemCall call("closing a file");  // network file systems write what is left
  return ::close(fd) == 0 || errno == EINTR ? 0 : -1;
}

int unlink_file(const std::string& path) {
  const SystemCall call("removing a file");
  return uninterrupted([&] { return ::unlink(path.c_str()); });
}

int rename_file(const std::string& from, const std::string& to) {
  const SystemCall call("renaming a file");
  return uninterrupted([&] { return ::rename(from.c_str(), to.c_str()); });
}

void require_durable_folder(const std::string& path, const std::string& entry, const char* done) {
  const int error = sync_folder(path);
  if (error != 0) {
    fail(ErrorKind::data, "{}: {}, but its folder cannot be synced to disk: {}", entry, done,
         reason(error));
  }
}

}  // namespace

FileHandle open_file(const std::string& path, int flags, unsigned mode) {
  return FileHandle(uninterrupted(
      [&] { return ::open(path.c_str(), flags | O_CLOEXEC, static_cast<mode_t>(mode)); }));
}

int sync_folder(const std::string& path) {
  const FileHandle folder = open_file(path, O_RDONLY | O_DIRECTORY);
  if (!folder.is_open()) return errno;
  // Some network file systems do not have an fsync of folders and say EINVAL: there, rename is all.
  return sync_once(folder.fd()) == 0 || errno == EINVAL ? 0 : errno;
}

FileHandle& FileHandle::operator=(FileHandle&& other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = other.release();
  }
  return *this;
}

FileHandle::~FileHandle() {
  if (fd_ >= 0) ::close(fd_);
}

int FileHandle::release() noexcept {
  return std::exchange(fd_, -1);
}

FileHandle open_regular_file(const std::string& path, std::uint64_t& size) {
  // O_NONBLOCK: a named pipe must be refused, not waited for.
  FileHandle file = open_file(path, O_RDONLY | O_NONBLOCK);
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
    if (put == 0) return EIO;  // No progress and no reason: it would loop for ever.
    bytes = bytes.subspan(static_cast<std::size_t>(put));
  }
  return 0;
}

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

AtomicFile::AtomicFile(std::string path)
    : path_(std::move(path)), temporary_(path_ + kTemporarySuffix) {
  // A left-over of a crash, or something planted there: never written through.
  unlink_file(temporary_);
  file_ = open_file(temporary_, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0666);
  if (!file_.is_open()) fail_at("create its temporary file", errno);
  remove_ = true;
}

AtomicFile::~AtomicFile() {
  if (remove_) unlink_file(temporary_);
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  const int error = write_all(file_.fd(), bytes);
  if (error != 0) fail_at("write", error);
  written_ += bytes.size();
}

void AtomicFile::commit() {
  if (sync_once(file_.fd()) != 0) fail_at("sync to disk", errno);
  if (close_once(file_.release()) != 0) fail_at("close", errno);
  if (rename_file(temporary_, path_) != 0) fail_at("rename into place", errno);
  remove_ = false;
  require_durable_folder(folder_of(path_), path_, "is in place");
}

void AtomicFile::fail_at(const char* doing, int error) const {
  fail(ErrorKind::data,
       "{}: cannot {} (after {} bytes): {}; a file that was there before is unchanged", path_,
       doing, written_, reason(error));
}

void write_file_atomically(const std::string& path, const std::string& text) {
  AtomicFile file(path);
  file.write(std::as_bytes(std::span(text)));
  file.commit();
}

std::string read_whole_file(const std::string& path) {
  std::uint64_t size = 0;
  const FileHandle file = open_regular_file(path, size);
  std::string text(size, '\0');
  read_exactly(file, path, 0, std::as_writable_bytes(std::span(text)));
  return text;
}

void make_folders(const std::string& path) {
  std::error_code ignored;
  if (path.empty() || fs::is_directory(path, ignored)) return;
  const std::string above = folder_of(path);
  if (above != path) make_folders(above);
  if (uninterrupted([&] { return ::mkdir(path.c_str(), 0777); }) != 0 && errno != EEXIST) {
    fail(ErrorKind::data, "{}: cannot create the folder: {}", path, reason(errno));
  }
  if (!fs::is_directory(path, ignored)) {
    const bool dangles = fs::is_symlink(fs::symlink_status(path, ignored));
    fail(ErrorKind::data, "{}: expected a folder, found {}", path,
         dangles ? "a link to " + fs::read_symlink(path, ignored).string() +
                       ", which is not a folder: make that folder, or remove the link"
                 : "a file");
  }
  require_durable_folder(above, path, "is created");
}

void move_durably(const std::string& from, const std::string& to) {
  if (rename_file(from, to) != 0) {
    fail(ErrorKind::data, "{}: cannot move it to {}: {}", from, to, reason(errno));
  }
  require_durable_folder(folder_of(to), to, "is in place");
  if (folder_of(from) != folder_of(to)) require_durable_folder(folder_of(from), from, "is moved");
}

void copy_durably(const std::string& from, const std::string& to) {
  std::uint64_t size = 0;
  const FileHandle source = open_regular_file(from, size);
  AtomicFile copy(to);
  std::vector<std::byte> block(std::min<std::uint64_t>(size, std::uint64_t{1} << 20));
  for (std::uint64_t at = 0; at < size;) {
    const auto part = std::span(block).first(std::min<std::uint64_t>(block.size(), size - at));
    read_exactly(source, from, at, part);
    copy.write(part);
    at += part.size();
  }
  copy.commit();
}

void remove_durably(const std::string& path) {
  if (unlink_file(path) != 0) {
    if (errno == ENOENT) return;
    fail(ErrorKind::data, "{}: cannot remove it: {}", path, reason(errno));
  }
  require_durable_folder(folder_of(path), path, "is removed");
}

}  // namespace dpt
