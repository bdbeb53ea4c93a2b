// The listing of a data set's folders: one folder per class in each part.
#pragma once

#include <string>
#include <vector>

#include "datasets/folder_report.h"
#include "datasets/image_walk.h"

namespace dpt {

/// Class folders of a part ("train"), sorted by name byte by byte, and the images below each.
struct ListedPart {
  std::string part;
  std::vector<std::string> classes;
  std::vector<std::vector<ListedImage>> images;  ///< one list per class
};

/// Returns the names of a part's class folders, sorted byte by byte. Throws ErrorKind::data.
std::vector<std::string> class_folders(const std::string& root, const std::string& part);

/// Lists a part of the folder `root`. Follows links and ignores hidden entries (.git, ._photo.jpg).
/// Adds problems and left-out files to `report`; a part without class folders is a problem. Throws
/// ErrorKind::data for a folder that cannot be listed.
ListedPart list_part(const std::string& root, const std::string& part, FolderReport& report);

}  // namespace dpt
