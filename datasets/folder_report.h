// Collects problems in a data set's folders, and the files in them that are left out.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "datasets/image_walk.h"

namespace dpt {

class FolderReport {
 public:
  /// `owner` begins messages: "image_folder: data/pets". If `leaves_out` is true, files that cannot
  /// be read are left out and counted; otherwise they are problems.
  FolderReport(std::string owner, bool leaves_out)
      : owner_(std::move(owner)), leaves_out_(leaves_out) {}

  void add_empty_class(const std::string& folder) { add(Kind::empty_class, folder); }
  void add_image_next_to_classes(const std::string& path) { add(Kind::next_to_classes, path); }
  /// Adds a problem with its own message.
  void add_problem(const std::string& message) { add(Kind::message, message); }
  void add_other_file(const std::string& name) { ++others_[group_of_file(name)]; }
  void add(const WalkedFolder& walked);

  /// Throws ErrorKind::data with a line for each kind of problem, if there are any.
  void check() const;
  /// Returns a note for each kind of skipped entry.
  std::vector<std::string> notes() const;

 private:
  /// Kinds of problems, in the order in which they are reported.
  enum class Kind : std::uint8_t {
    empty_class,
    next_to_classes,
    message,
    unread_format,
    dead_link,
    not_regular
  };
  struct Group {
    std::string label;      ///< name of skipped entries in notes: "AVIF", "broken link"
    std::string one, many;  ///< "an empty class folder", "empty class folders"
    std::string remedy_of_one, remedy_of_many;
    std::vector<std::string> paths{};
  };

  static Group group_of(Kind kind, const std::string& path);
  void add(Kind kind, const std::string& path);
  std::string line_of(const Group& group, Kind kind) const;

  std::string owner_;
  bool leaves_out_;
  std::map<Kind, std::vector<Group>> problems_;
  std::map<std::string, std::int64_t> others_;
  std::vector<std::string> loops_;
};

}  // namespace dpt
