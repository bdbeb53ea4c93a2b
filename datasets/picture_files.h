// Pictures without labels, from a list of files.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/data/source.h"

namespace dpt {

/// What is wrong with files, by their index. Thread-safe.
class UnreadablePictures {
 public:
  void add(std::int64_t index, const std::string& problem);
  /// Those of the files before `end` that were not taken yet.
  std::map<std::int64_t, std::string> take_below(std::int64_t end);

 private:
  std::mutex mutex_;
  std::map<std::int64_t, std::string> problems_;
};

/// The files that `paths` name, in their order; of a folder all pictures below it, sorted by path.
/// Hidden files and folders, and links to folders below it, are left out. Other paths are taken as
/// they are, whether or not they can be read. Throws ErrorKind::data for a folder that cannot be
/// listed or has no pictures.
std::vector<std::string> list_pictures(const std::vector<std::string>& paths);

struct PictureFiles {
  std::vector<std::string> paths;
  std::vector<std::string> classes;  ///< names of the model's outputs
  TargetShape targets;               ///< all 0, of what kind the model's loss takes
};

/// One sample for each file, with the label 0. A file that cannot be read is added to `unreadable`
/// and gives a black picture. Throws ErrorKind::data for a model whose input is no picture.
std::shared_ptr<const DataSource> open_picture_files(
    PictureFiles files, const DataRequirements& requirements,
    std::shared_ptr<UnreadablePictures> unreadable);

}  // namespace dpt
