#include "datasets/folder_listing.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "datasets/image.h"
#include "datasets/parallel_parts.h"
#include "kernels/error.h"

namespace dpt {
namespace fs = std::filesystem;
namespace {

std::string reason_of(int error) {
  return std::generic_category().message(error);
}

/// An open folder.
class OpenFolder {
 public:
  explicit OpenFolder(const std::string& path)
      : fd_(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    if (fd_ < 0) fail(ErrorKind::data, "{}: cannot be listed: {}", path, reason_of(errno));
  }
  OpenFolder(const OpenFolder&) = delete;
  ~OpenFolder() { close(fd_); }
  int fd() const { return fd_; }

 private:
  int fd_;
};

/// An entry of a folder, of which only its name and what kind it is are known.
struct FolderEntry {
  std::string name;
  unsigned char type = DT_UNKNOWN;
};

/// The entries of a folder except hidden ones, sorted by name byte by byte.
std::vector<FolderEntry> entries_of(const std::string& path) {
  const auto refuse = [&](int error) {
    fail(ErrorKind::data, "{}: cannot be listed: {}", path, reason_of(error));
  };
  DIR* folder = opendir(path.c_str());
  if (!folder) refuse(errno);
  std::vector<FolderEntry> entries;
  for (;;) {
    errno = 0;
    const dirent* entry = readdir(folder);
    if (!entry) break;
    if (entry->d_name[0] != '.') entries.push_back({entry->d_name, entry->d_type});
  }
  const int error = errno;
  closedir(folder);
  if (error != 0) refuse(error);
  std::sort(entries.begin(), entries.end(),
            [](const FolderEntry& a, const FolderEntry& b) { return a.name < b.name; });
  return entries;
}

bool is_folder(const fs::directory_entry& entry) {
  std::error_code error;
  const bool is = entry.is_directory(error);
  if (error) fail(ErrorKind::data, "{}: {}", entry.path().string(), error.message());
  return is;
}

}  // namespace

FolderListing::FolderListing(const std::string& root) : root_(root) {
  std::error_code error;
  real_root_ = fs::canonical(root, error).string();
  if (error) fail(ErrorKind::data, "{}: {}", root, error.message());
  if (!real_root_.ends_with("/")) real_root_ += '/';
}

std::vector<std::string> FolderListing::classes(const std::string& part) const {
  const fs::path folder = fs::path(root_) / part;
  check_inside(fs::directory_entry(folder));
  std::vector<std::string> names;
  for (const FolderEntry& found : entries_of(folder.string())) {
    if (found.type == DT_DIR) {
      names.push_back(found.name);
      continue;
    }
    const fs::path path = folder / found.name;
    // Of a link that leads nowhere, the error is that of what follows.
    std::error_code ignored;
    const fs::directory_entry entry(path, ignored);
    check_inside(entry);
    if (is_folder(entry)) {
      names.push_back(found.name);
    } else if (is_image_name(found.name)) {
      fail(ErrorKind::data, "{}: an image next to the class folders; expected {}/CLASS/{}",
           path.string(), folder.string(), found.name);
    }
  }
  if (names.empty()) {
    fail(ErrorKind::data, "{}: no class folders; expected {}/CLASS/*.jpg or *.png", folder.string(),
         folder.string());
  }
  return names;
}

std::vector<std::vector<ListedPicture>> FolderListing::pictures(
    const std::string& part, const std::vector<std::string>& classes) const {
  const auto path_of = [&](std::size_t c) {
    return (fs::path(root_) / part / classes[c]).string();
  };
  std::vector<std::vector<FolderEntry>> entries(classes.size());
  for_each_part(classes.size(), "lister of " + root_,
                [&](std::size_t c) { entries[c] = entries_of(path_of(c)); });
  // A class may have a million files.
  constexpr std::size_t kAtOnce = 1024;
  std::vector<std::vector<ListedPicture>> pictures(classes.size());
  std::vector<std::pair<std::size_t, std::size_t>> chunks;  // a class, and its first entry
  for (std::size_t c = 0; c < classes.size(); ++c) {
    pictures[c].resize(entries[c].size());
    for (std::size_t at = 0; at < entries[c].size(); at += kAtOnce) chunks.emplace_back(c, at);
  }
  for_each_part(chunks.size(), "lister of " + root_, [&](std::size_t i) {
    const std::size_t c = chunks[i].first, first = chunks[i].second;
    const std::size_t end = std::min(first + kAtOnce, entries[c].size());
    const std::string folder = path_of(c);
    const OpenFolder open_folder(folder);
    for (std::size_t k = first; k < end; ++k) {
      FolderEntry& entry = entries[c][k];
      // What kind the others are is asked of the file system.
      if (entry.type != DT_REG || !is_image_name(entry.name)) {
        std::error_code ignored;
        check_unusual(fs::directory_entry(fs::path(folder) / entry.name, ignored));
      }
      struct stat status = {};
      if (fstatat(open_folder.fd(), entry.name.c_str(), &status, 0) != 0) {
        fail(ErrorKind::data, "{}/{}: {}", folder, entry.name, reason_of(errno));
      }
      pictures[c][k] = {std::move(entry.name), static_cast<std::uint64_t>(status.st_size)};
    }
  });
  return pictures;
}

void FolderListing::check_inside(const fs::directory_entry& entry) const {
  std::error_code error;
  const bool is_link = entry.is_symlink(error);
  if (error) fail(ErrorKind::data, "{}: {}", entry.path().string(), error.message());
  if (!is_link) return;
  const std::string real = fs::canonical(entry.path(), error).string();
  if (error) fail(ErrorKind::data, "{}: {}", entry.path().string(), error.message());
  if (!(real + "/").starts_with(real_root_)) {
    fail(ErrorKind::data, "{}: a link to {}, outside of {}: refused; copy the files or move root",
         entry.path().string(), real, root_);
  }
}

/// An entry of a class folder that is not, by its name and kind alone, a picture.
void FolderListing::check_unusual(const fs::directory_entry& entry) const {
  check_inside(entry);
  const std::string path = entry.path().string();
  if (is_folder(entry)) {
    fail(ErrorKind::data,
         "{}: a folder inside a class folder; images must be directly in the class folder", path);
  }
  if (!is_image_name(path)) {
    fail(ErrorKind::data, "{}: not named *.jpg, *.jpeg or *.png: remove or convert it", path);
  }
  std::error_code error;  // is_folder has seen that there is none
  if (!entry.is_regular_file(error)) fail(ErrorKind::data, "{}: not a regular file", path);
}

}  // namespace dpt
