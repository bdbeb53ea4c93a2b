// A library for LD_PRELOAD that observes a program's file system calls. It records every call that
// changes files below one folder, in order, and makes the n-th of them fail.
//
//   DPT_IO_ROOT     the watched folder
//   DPT_IO_LOG      the file for the recorded calls; the bytes of writes go to the same name with
//                   ".data" appended
//   DPT_IO_FAIL_AT  number of the call that fails, counted from 1
//   DPT_IO_FAULT    ENOSPC, EIO, EINTR, "short" for a write that takes half of its bytes, "nothing"
//                   for one that takes none, or "KILL" to kill the process before the call
//
// One line per call: number, kind, path, second path, inode, flags or offset, bytes, errno, each
// followed by a tab (tests use no paths with tabs). Calls are serialised, so that the log has the
// order in which they happened. The library's own output uses system calls, which it does not
// record.
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <string>

namespace {

constexpr int kMaxFiles = 4096;

struct Watched {
  bool is_open = false, is_folder = false, appends = false;
  std::string path;
};

struct Shim {
  std::recursive_mutex lock;
  std::string root, fault;
  long fail_at = 0, calls = 0;
  int log = -1, data = -1;
  Watched files[kMaxFiles];

  Shim() {
    const auto variable = [](const char* name) {
      const char* value = getenv(name);
      return std::string(value ? value : "");
    };
    root = variable("DPT_IO_ROOT");
    fault = variable("DPT_IO_FAULT");
    fail_at = atol(variable("DPT_IO_FAIL_AT").c_str());
    const std::string path = variable("DPT_IO_LOG");
    if (root.empty() || path.empty()) return;
    log = open_raw(path);
    data = open_raw(path + ".data");
  }
  static int open_raw(const std::string& path) {
    const long fd = syscall(SYS_openat, AT_FDCWD, path.c_str(),
                            O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    // Use a high descriptor, outside the program's range.
    return fd < 0 ? -1 : fcntl(static_cast<int>(fd), F_DUPFD_CLOEXEC, 900);
  }
  bool on() const { return log >= 0; }
};

/// Returns the shim, which is never destroyed: a program may write while it exits.
Shim& shim() {
  static Shim* const made = new Shim;
  return *made;
}

template <class Function>
Function real(Function, const char* name) {
  static_assert(sizeof(void*) == sizeof(Function));
  void* const found = dlsym(RTLD_NEXT, name);
  Function function;
  memcpy(&function, &found, sizeof found);
  return function;
}
#define REAL(name)                                     \
  ([] {                                                \
    static const auto function = real(&::name, #name); \
    return function;                                   \
  }())

/// Makes the path absolute, without "." and double slashes (tests use no "..").
std::string absolute(int folder, const char* path) {
  std::string whole;
  if (path[0] != '/') {
    char base[4096];
    const std::string link =
        folder == AT_FDCWD ? "/proc/self/cwd" : "/proc/self/fd/" + std::to_string(folder);
    const ssize_t n = readlink(link.c_str(), base, sizeof base);
    if (n > 0) whole.assign(base, static_cast<std::size_t>(n));
    whole += '/';
  }
  whole += path;
  std::string clean;
  for (std::size_t at = 0; at < whole.size();) {
    const std::size_t end = std::min(whole.find('/', at), whole.size());
    const std::string part = whole.substr(at, end - at);
    if (!part.empty() && part != ".") clean += "/" + part;
    at = end + 1;
  }
  return clean;
}

bool is_watched(const std::string& path) {
  const std::string& root = shim().root;
  return path.compare(0, root.size(), root) == 0 &&
         (path.size() == root.size() || path[root.size()] == '/');
}

Watched* watched_file(int fd) {
  if (!shim().on() || fd < 0 || fd >= kMaxFiles || !shim().files[fd].is_open) return nullptr;
  return &shim().files[fd];
}

unsigned long inode_of(const std::string& path) {
  struct stat status {};
  return lstat(path.c_str(), &status) == 0 ? status.st_ino : 0;
}

void put(int fd, const char* bytes, std::size_t size) {
  while (size > 0) {
    const long n = syscall(SYS_write, fd, bytes, size);
    if (n <= 0) return;
    bytes += n;
    size -= static_cast<std::size_t>(n);
  }
}

/// One watched call: counts it, lets it fail or makes it, and records it.
class Call {
 public:
  Call(const char* kind, std::string path, std::string second = {})
      : guard_(shim().lock), kind_(kind), path_(std::move(path)), second_(std::move(second)) {
    number_ = ++shim().calls;
    fails_ = number_ == shim().fail_at;
    inode_ = inode_of(path_);
  }
  /// Returns the errno with which the call must fail; 0 if it must be made.
  int failure() const {
    if (!fails_ || shim().fault == "short" || shim().fault == "nothing") return 0;
    if (shim().fault == "KILL") kill(getpid(), SIGKILL);
    return shim().fault == "ENOSPC" ? ENOSPC : shim().fault == "EINTR" ? EINTR : EIO;
  }
  bool is_short() const { return fails_ && shim().fault == "short"; }
  bool takes_nothing() const { return fails_ && shim().fault == "nothing"; }

  template <class Result>
  Result done(Result result, long where = 0, long bytes = 0, const char* data = nullptr) {
    const int error = result == static_cast<Result>(-1) ? errno : 0;
    if (inode_ == 0) inode_ = inode_of(path_);
    const std::string line = std::to_string(number_) + '\t' + kind_ + '\t' + path_ + '\t' +
                             second_ + '\t' + std::to_string(inode_) + '\t' +
                             std::to_string(where) + '\t' + std::to_string(bytes) + '\t' +
                             std::to_string(error) + "\t\n";
    put(shim().log, line.data(), line.size());
    if (data && error == 0) put(shim().data, data, static_cast<std::size_t>(bytes));
    errno = error;
    return result;
  }

 private:
  std::lock_guard<std::recursive_mutex> guard_;
  const char* kind_;
  std::string path_, second_;
  unsigned long inode_ = 0;
  long number_ = 0;
  bool fails_ = false;
};

/// Makes a call with one or two paths.
template <class Make>
int with_path(const char* kind, const std::string& path, const std::string& second,
              const Make& make) {
  const bool watched = shim().on() && (is_watched(path) || (!second.empty() && is_watched(second)));
  if (!watched) return make();
  Call call(kind, path, second);
  if (const int error = call.failure()) {
    errno = error;
    return call.done(-1);
  }
  return call.done(make());
}

template <class Make>
int open_file(int folder, const char* path, int flags, const Make& make) {
  if (!shim().on() || !path) return make();
  const std::string whole = absolute(folder, path);
  if (!is_watched(whole)) return make();
  struct stat status {};
  const bool is_folder = stat(whole.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
  const bool writes = (flags & O_ACCMODE) != O_RDONLY;
  Call call(is_folder ? "open_folder" : writes ? "open" : "read", whole);
  if (const int error = call.failure()) {
    errno = error;
    return call.done(-1, flags);
  }
  const int fd = make();
  if (fd >= 0 && fd < kMaxFiles) {
    shim().files[fd] = {true, is_folder, (flags & O_APPEND) != 0, whole};
  }
  return call.done(fd, flags);
}

/// Makes a write of `size` bytes, which begin at `data`; `make(limit)` writes up to `limit` of
/// them.
template <class Make>
ssize_t write_file(int fd, long offset, const char* data, std::size_t size, const Make& make) {
  const Watched* file = watched_file(fd);
  if (!file) return make(size);
  if (offset < 0) offset = static_cast<long>(lseek(fd, 0, file->appends ? SEEK_END : SEEK_CUR));
  Call call("write", file->path);
  if (const int error = call.failure()) {
    errno = error;
    return call.done(static_cast<ssize_t>(-1), offset);
  }
  if (call.takes_nothing()) return call.done(static_cast<ssize_t>(0), offset);
  const ssize_t n = make(call.is_short() && size > 1 ? size / 2 : size);
  return call.done(n, offset, std::max<long>(n, 0), data);
}

template <class Make>
int with_file(const char* kind, int fd, long where, const Make& make) {
  const Watched* file = watched_file(fd);
  if (!file) return make();
  const bool folder = file->is_folder && strcmp(kind, "fsync") == 0;
  Call call(folder ? "fsync_folder" : kind, file->path);
  if (const int error = call.failure()) {
    errno = error;
    return call.done(-1, where);
  }
  return call.done(make(), where);
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = va_arg(arguments, mode_t);
  va_end(arguments);
  return open_file(AT_FDCWD, path, flags, [&] { return REAL(open)(path, flags, mode); });
}
int open64(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = va_arg(arguments, mode_t);
  va_end(arguments);
  return open_file(AT_FDCWD, path, flags, [&] { return REAL(open64)(path, flags, mode); });
}
int openat(int folder, const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = va_arg(arguments, mode_t);
  va_end(arguments);
  return open_file(folder, path, flags, [&] { return REAL(openat)(folder, path, flags, mode); });
}
int openat64(int folder, const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = va_arg(arguments, mode_t);
  va_end(arguments);
  return open_file(folder, path, flags, [&] { return REAL(openat64)(folder, path, flags, mode); });
}

// libstdc++'s streams open with fopen, then write with write and writev.
static FILE* open_stream(const char* path, const char* mode,
                         FILE* (*make)(const char*, const char*)) {
  FILE* made = nullptr;
  const int flags = mode[0] == 'r' && !strchr(mode, '+') ? O_RDONLY
                    : mode[0] == 'a'                     ? O_RDWR | O_CREAT | O_APPEND
                    : mode[0] == 'w'                     ? O_RDWR | O_CREAT | O_TRUNC
                                                         : O_RDWR;
  open_file(AT_FDCWD, path, flags, [&] {
    made = make(path, mode);
    return made ? fileno(made) : -1;
  });
  return made;
}
FILE* fopen(const char* path, const char* mode) {
  return open_stream(path, mode, REAL(fopen));
}
FILE* fopen64(const char* path, const char* mode) {
  return open_stream(path, mode, REAL(fopen64));
}
size_t fwrite(const void* bytes, size_t size, size_t count, FILE* file) {
  const int fd = shim().on() ? fileno(file) : -1;
  if (!watched_file(fd) || size == 0) return REAL(fwrite)(bytes, size, count, file);
  const ssize_t n =
      write_file(fd, -1, static_cast<const char*>(bytes), size * count, [&](size_t limit) {
        const size_t put = REAL(fwrite)(bytes, 1, limit, file);
        fflush(file);
        return static_cast<ssize_t>(put);
      });
  return n < 0 ? 0 : static_cast<size_t>(n) / size;
}
size_t fwrite_unlocked(const void* bytes, size_t size, size_t count, FILE* file) {
  return fwrite(bytes, size, count, file);
}

int close(int fd) {
  if (Watched* file = watched_file(fd)) {
    const std::lock_guard guard(shim().lock);
    file->is_open = false;
  }
  return REAL(close)(fd);
}
int fclose(FILE* file) {
  if (shim().on()) {
    const std::lock_guard guard(shim().lock);
    if (Watched* watched = watched_file(fileno(file))) watched->is_open = false;
  }
  return REAL(fclose)(file);
}

ssize_t write(int fd, const void* bytes, size_t size) {
  return write_file(fd, -1, static_cast<const char*>(bytes), size,
                    [&](size_t limit) { return REAL(write)(fd, bytes, limit); });
}
ssize_t pwrite(int fd, const void* bytes, size_t size, off_t offset) {
  return write_file(fd, offset, static_cast<const char*>(bytes), size,
                    [&](size_t limit) { return REAL(pwrite)(fd, bytes, limit, offset); });
}
ssize_t pwrite64(int fd, const void* bytes, size_t size, off64_t offset) {
  return pwrite(fd, bytes, size, offset);
}
ssize_t writev(int fd, const struct iovec* parts, int count) {
  if (!watched_file(fd)) return REAL(writev)(fd, parts, count);
  std::string all;
  for (int i = 0; i < count; ++i) {
    all.append(static_cast<const char*>(parts[i].iov_base), parts[i].iov_len);
  }
  return write(fd, all.data(), all.size());
}
// A copy inside the kernel would hide its bytes, so the call fails and the caller falls back to
// read and write.
ssize_t sendfile(int to, int from, off_t* offset, size_t count) {
  if (watched_file(to)) {
    errno = ENOSYS;
    return -1;
  }
  return REAL(sendfile)(to, from, offset, count);
}
ssize_t copy_file_range(int from, off64_t* from_at, int to, off64_t* to_at, size_t size,
                        unsigned flags) {
  if (watched_file(to)) {
    errno = ENOSYS;
    return -1;
  }
  return REAL(copy_file_range)(from, from_at, to, to_at, size, flags);
}

int fsync(int fd) {
  return with_file("fsync", fd, 0, [&] { return REAL(fsync)(fd); });
}
int fdatasync(int fd) {
  return with_file("fsync", fd, 0, [&] { return REAL(fdatasync)(fd); });
}
int ftruncate(int fd, off_t size) {
  return with_file("truncate", fd, size, [&] { return REAL(ftruncate)(fd, size); });
}
int ftruncate64(int fd, off64_t size) {
  return ftruncate(fd, size);
}
int truncate(const char* path, off_t size) {
  if (!shim().on() || !is_watched(absolute(AT_FDCWD, path))) return REAL(truncate)(path, size);
  Call call("truncate", absolute(AT_FDCWD, path));
  if (const int error = call.failure()) {
    errno = error;
    return call.done(-1, size);
  }
  return call.done(REAL(truncate)(path, size), size);
}

int rename(const char* from, const char* to) {
  return with_path("rename", absolute(AT_FDCWD, from), absolute(AT_FDCWD, to),
                   [&] { return REAL(rename)(from, to); });
}
int renameat(int a, const char* from, int b, const char* to) {
  return with_path("rename", absolute(a, from), absolute(b, to),
                   [&] { return REAL(renameat)(a, from, b, to); });
}
int link(const char* from, const char* to) {
  return with_path("link", absolute(AT_FDCWD, from), absolute(AT_FDCWD, to),
                   [&] { return REAL(link)(from, to); });
}
int linkat(int a, const char* from, int b, const char* to, int flags) {
  return with_path("link", absolute(a, from), absolute(b, to),
                   [&] { return REAL(linkat)(a, from, b, to, flags); });
}
int symlink(const char* target, const char* path) {
  return with_path("symlink", absolute(AT_FDCWD, path), {},
                   [&] { return REAL(symlink)(target, path); });
}
int symlinkat(const char* target, int folder, const char* path) {
  return with_path("symlink", absolute(folder, path), {},
                   [&] { return REAL(symlinkat)(target, folder, path); });
}
int unlink(const char* path) {
  return with_path("unlink", absolute(AT_FDCWD, path), {}, [&] { return REAL(unlink)(path); });
}
int unlinkat(int folder, const char* path, int flags) {
  return with_path("unlink", absolute(folder, path), {},
                   [&] { return REAL(unlinkat)(folder, path, flags); });
}
int remove(const char* path) {
  return with_path("unlink", absolute(AT_FDCWD, path), {}, [&] { return REAL(remove)(path); });
}
int rmdir(const char* path) {
  return with_path("unlink", absolute(AT_FDCWD, path), {}, [&] { return REAL(rmdir)(path); });
}
int mkdir(const char* path, mode_t mode) {
  return with_path("mkdir", absolute(AT_FDCWD, path), {}, [&] { return REAL(mkdir)(path, mode); });
}
int mkdirat(int folder, const char* path, mode_t mode) {
  return with_path("mkdir", absolute(folder, path), {},
                   [&] { return REAL(mkdirat)(folder, path, mode); });
}

}  // extern "C"
