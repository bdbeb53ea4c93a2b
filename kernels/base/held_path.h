// A location in the file system: a path, or a name in a folder that is held open. A held folder is
// found even after it has been moved, and a new folder at its old path is never mistaken for it.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "kernels/base/file_handle.h"

namespace dpt {

/// Name of a file or folder, for the functions of file_io.h. The file or folder need not exist. A
/// string converts implicitly, as a path. Copies share the held folder. Immutable, so any thread
/// may use it.
class HeldPath {
 public:
  HeldPath(std::string path);  // NOLINT(google-explicit-constructor): callers have strings
  HeldPath(const char* path);  // NOLINT(google-explicit-constructor)
  /// Opens and holds the folder `path`. Throws ErrorKind::data if it cannot be opened.
  static HeldPath hold(const std::string& path);

  /// Returns the file or folder `name` in this folder.
  HeldPath operator/(std::string_view name) const;
  /// Returns the folder that contains this file or folder; for a held folder, itself.
  HeldPath folder() const;
  /// Returns this name with `suffix` appended.
  HeldPath operator+(std::string_view suffix) const;

  /// Returns the path for messages. It does not change when a held folder is moved.
  const std::string& text() const { return text_; }
  /// Returns the last part of the path.
  std::string last_name() const;
  /// These two return the descriptor and the name to pass to openat(2) and similar calls.
  int at() const;
  const char* name() const { return name_.c_str(); }

 private:
  std::shared_ptr<const FileHandle> held_;  ///< null: `name_` is a path
  std::string name_, text_;
};

/// Returns the folder part of a path, or "." if it has none.
std::string folder_of(const std::string& path);

}  // namespace dpt
