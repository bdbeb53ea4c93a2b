#include "datasets/folder_listing.h"

#include <dirent.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "kernels/base/error.h"
#include "kernels/image/image_formats.h"

namespace dpt {
namespace {

namespace fs = std::filesystem;

/// Returns true if an entry is a folder or a link to one. Throws for a link whose target does not
/// exist, because its class would be missing.
bool is_folder(const FolderEntry& entry, const fs::path& path) {
  if (entry.type == DT_DIR) return true;
  if (entry.type == DT_REG) return false;
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) {
    fail(ErrorKind::data, "{}: {}", path.string(),
         error ? error.message() : std::string("No such file or directory"));
  }
  return fs::is_directory(status);
}

}  // namespace

std::vector<std::string> class_folders(const std::string& root, const std::string& part) {
  const fs::path folder = fs::path(root) / part;
  std::vector<std::string> names;
  for (const FolderEntry& entry : entries_of_folder(folder.string())) {
    if (is_folder(entry, folder / entry.name)) names.push_back(entry.name);
  }
  if (!names.empty()) return names;
  fail(ErrorKind::data, "{}: no class folders; expected {}/CLASS/*.jpg or *.png", folder.string(),
       folder.string());
}

ListedPart list_part(const std::string& root, const std::string& part, FolderReport& report) {
  const fs::path folder = fs::path(root) / part;
  ListedPart listed{part, {}, {}};
  std::vector<std::string> paths;
  for (const FolderEntry& entry : entries_of_folder(folder.string())) {
    const fs::path path = folder / entry.name;
    if (is_folder(entry, path)) {
      listed.classes.push_back(entry.name);
      paths.push_back(path.string());
    } else if (is_image_name(entry.name)) {
      report.add_image_next_to_classes(path.string());
    } else {
      report.add_other_file(entry.name);
    }
  }
  if (paths.empty()) {
    report.add_problem(fmt::format("{}: no class folders; expected {}/CLASS/IMAGE", folder.string(),
                                   folder.string()));
  }
  for (WalkedFolder& walked : walk_folders(paths)) {
    report.add(walked);
    listed.images.push_back(std::move(walked.images));
  }
  return listed;
}

}  // namespace dpt
