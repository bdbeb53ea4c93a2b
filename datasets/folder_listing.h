// The listing of folders of pictures, one folder per class.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace dpt {

/// A picture in a class folder.
struct ListedPicture {
  std::string name;         ///< of the file, without its folder
  std::uint64_t bytes = 0;  ///< its size
};

/// Lists one root. Links may point anywhere below it, and nowhere else. Hidden entries (.git,
/// .ipynb_checkpoints) are ignored. Everything is sorted by name byte by byte. Throws
/// ErrorKind::data naming the entry; of several that are wrong always the same one.
class FolderListing {
 public:
  explicit FolderListing(const std::string& root);

  /// The class folders of a part ("train").
  std::vector<std::string> classes(const std::string& part) const;

  /// The pictures of class folders of a part, in the order of `classes`. One stat a file, because
  /// sizes tell whether data has changed; several folders at a time.
  std::vector<std::vector<ListedPicture>> pictures(const std::string& part,
                                                   const std::vector<std::string>& classes) const;

 private:
  void check_inside(const std::filesystem::directory_entry& entry) const;
  void check_unusual(const std::filesystem::directory_entry& entry) const;

  std::string root_, real_root_;
};

}  // namespace dpt
