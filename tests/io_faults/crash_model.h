// What a disk may hold after a power cut, worked out from the calls that a run made.
//
// POSIX promises little: the bytes of a file are on the disk after fsync of the file, and its name,
// after a creation, link, rename or removal, after fsync of its folder. Everything else may be
// there or not. (kill -9 loses nothing of this: the page cache lives on, so it can't test an
// fsync.)
#pragma once

#include <map>
#include <memory>
#include <string>

#include "tests/io_faults/harness.h"

namespace dpt::testing {

class CrashModel {
 public:
  /// What of the changes that nothing has made durable reaches the disk.
  enum class Keeps {
    nothing,  ///< neither names nor bytes
    names     ///< names of files, whose bytes are as they were at their last fsync: often none
  };

  /// Everything below `folder` is on the disk when the run begins.
  explicit CrashModel(const std::string& folder);

  void apply(const IoCall& call, const std::string& data);

  /// The files that are left, by absolute path.
  std::map<std::string, std::string> after_crash(Keeps keeps) const;

 private:
  /// A file or a folder. A folder that is moved takes along what is durable in it.
  struct Node {
    bool is_folder = false;
    std::string bytes, durable;                              // of a file
    std::map<std::string, std::shared_ptr<Node>> now, disk;  // of a folder
  };
  using NodePtr = std::shared_ptr<Node>;

  /// The folder in which `path` stands now; null when it is not below the watched one.
  Node* parent(const std::string& path) const;
  NodePtr find(const std::string& path) const;

  std::string folder_;
  NodePtr root_;
};

}  // namespace dpt::testing
