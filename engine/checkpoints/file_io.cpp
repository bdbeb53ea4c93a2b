#include "engine/checkpoints/file_io.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <system_error>
#include <utility>

#include "kernels/error.h"
#include "kernels/heartbeat.h"

namespace dpt {
namespace {

// Linux transfers at most 2 GiB a call; smaller chunks keep a signal from waiting long, and show
// the other replicas that a slow disk gets on.
constexpr std::size_t kLargestTransfer = std::size_t{8} << 20;

std::string reason(int error) {
  return std::generic_category().message(error);
}

}  // namespace

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
  FileHandle file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
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
    beat("writing a file");
    const ssize_t put = ::write(fd, bytes.data(), std::min(bytes.size(), kLargestTransfer));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return errno;
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
  ::unlink(temporary_.c_str());
  file_ = FileHandle(
      ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666));
  if (!file_.is_open()) fail_at("create its temporary file", errno);
  remove_ = true;
}

AtomicFile::~AtomicFile() {
  if (remove_) ::unlink(temporary_.c_str());
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  const int error = write_all(file_.fd(), bytes);
  if (error != 0) fail_at("write", error);
  written_ += bytes.size();
}

void AtomicFile::commit() {
  beat("making a file durable");
  // After a failed fsync the kernel may have dropped the data and report success the next time, so
  // it is never tried again.
  if (::fsync(file_.fd()) != 0) fail_at("make durable", errno);
  beat("renaming a file");
  if (::close(file_.release()) != 0) fail_at("close", errno);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail_at("rename into place", errno);
  remove_ = false;
  const FileHandle folder(::open(folder_of(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // Some network file systems know no fsync of a folder and say EINVAL: there, rename is all.
  if (!folder.is_open() || (::fsync(folder.fd()) != 0 && errno != EINVAL)) {
    fail(ErrorKind::data, "{}: is in place, but its folder cannot be made durable: {}", path_,
         reason(errno));
  }
}

void AtomicFile::fail_at(const char* doing, int error) const {
  fail(ErrorKind::data, "{}: cannot {} (after {} bytes): {}; what was there before is unchanged",
       path_, doing, written_, reason(error));
}

}  // namespace dpt
