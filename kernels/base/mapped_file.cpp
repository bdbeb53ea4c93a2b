#include "kernels/base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "kernels/base/error.h"

namespace dpt {

MappedFile::MappedFile(const std::string& path) {
  // Use O_NONBLOCK, because opening a pipe without a writer must not block.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) fail(ErrorKind::data, "{}: cannot be opened: {}", path, std::strerror(errno));
  struct stat status = {};
  const bool is_file = fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
  size_ = is_file ? static_cast<std::size_t>(status.st_size) : 0;
  void* at = size_ > 0 ? mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd, 0) : nullptr;
  const int error = errno;
  close(fd);
  if (!is_file) fail(ErrorKind::data, "{}: not a file", path);
  if (at == MAP_FAILED) {
    fail(ErrorKind::data, "{}: cannot be mapped into memory: {}", path, std::strerror(error));
  }
  at_ = static_cast<const std::byte*>(at);
}

MappedFile::~MappedFile() {
  if (at_) munmap(const_cast<std::byte*>(at_), size_);
}

}  // namespace dpt
