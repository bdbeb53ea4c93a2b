#include "kernels/base/held_path.h"

#include <fcntl.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "kernels/base/error.h"

namespace dpt {

HeldPath::HeldPath(std::string path) : name_(std::move(path)), text_(name_) {}

HeldPath::HeldPath(const char* path) : HeldPath(std::string(path)) {}

HeldPath HeldPath::hold(const std::string& path) {
  // O_PATH opens a folder even if this process may not list it.
  FileHandle folder(
      uninterrupted([&] { return ::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC); }));
  if (!folder.is_open()) {
    fail(ErrorKind::data, "{}: cannot open the folder: {}", path, std::strerror(errno));
  }
  HeldPath place(path);
  place.held_ = std::make_shared<const FileHandle>(std::move(folder));
  place.name_ = ".";
  return place;
}

int HeldPath::at() const {
  return held_ ? held_->fd() : AT_FDCWD;
}

HeldPath HeldPath::operator/(std::string_view name) const {
  HeldPath inner = *this;
  inner.name_ = held_ && name_ == "." ? std::string(name) : name_ + "/" + std::string(name);
  inner.text_ = text_ + "/" + std::string(name);
  return inner;
}

HeldPath HeldPath::operator+(std::string_view suffix) const {
  HeldPath other = *this;
  other.name_ += suffix;
  other.text_ += suffix;
  return other;
}

HeldPath HeldPath::folder() const {
  if (!held_) return folder_of(text_);
  if (name_ == ".") return *this;
  HeldPath above = *this;
  above.name_ = folder_of(name_);
  above.text_ = text_.substr(0, text_.rfind('/'));
  return above;
}

std::string HeldPath::last_name() const {
  return text_.substr(text_.rfind('/') + 1);
}

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace dpt
