// A walk through folders of image files, including nested folders and links.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace dpt {

/// An image file below a folder.
struct ListedImage {
  std::string name;         ///< relative to the folder
  std::uint64_t bytes = 0;  ///< size of the file
};

/// Reasons why a file with the extension of an image cannot be read.
enum class BadFileKind : std::uint8_t { unread_format, dead_link, not_regular };

struct BadFile {
  BadFileKind kind;
  std::string path;
};

/// Files below a folder, without hidden entries (.git, ._photo.jpg).
struct WalkedFolder {
  std::vector<ListedImage> images;             ///< sorted by name, byte by byte
  std::vector<BadFile> bad;                    ///< sorted by path
  std::map<std::string, std::int64_t> others;  ///< number of other files, by group_of_file
  std::vector<std::string> loops;              ///< paths of links to a folder above them
};

/// Returns the group under which a file that is not an image is counted: its extension in lower
/// case, or its name if it has no extension or belongs to the system (Thumbs.db).
std::string group_of_file(const std::string& name);

/// Walks the folders, several at a time. Calls stat once per image, because sizes show whether data
/// has changed. The result does not depend on the order in which the system lists entries. Throws
/// ErrorKind::data for a folder that cannot be listed.
std::vector<WalkedFolder> walk_folders(const std::vector<std::string>& folders);

/// An entry of a folder.
struct FolderEntry {
  std::string name;
  unsigned char type;  ///< a DT_ constant of dirent.h; may be DT_UNKNOWN
};

/// Lists a folder without its hidden entries, sorted by name byte by byte. Throws ErrorKind::data.
std::vector<FolderEntry> entries_of_folder(const std::string& path);

}  // namespace dpt
