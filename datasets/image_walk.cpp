#include "datasets/image_walk.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <deque>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "datasets/parallel_parts.h"
#include "kernels/base/error.h"
#include "kernels/image/image_formats.h"

namespace dpt {
namespace fs = std::filesystem;
namespace {

/// Folder in the walk.
struct Folder {
  std::size_t start;               ///< index of the folder in which the walk began
  std::string path;                ///< path by which the user reaches it
  std::string below;               ///< path relative to the start, ending with a slash; or empty
  std::string real;                ///< canonical path
  const Folder* parent = nullptr;  ///< folder through which it was reached
  std::vector<FolderEntry> entries{};  ///< set when it is listed
};

/// A part of a folder's entries, and the results for it.
struct Chunk {
  const Folder* folder;
  std::size_t first, end;
  std::vector<Folder> folders{};
  WalkedFolder found{};
};

class OpenFolder {
 public:
  explicit OpenFolder(const std::string& path)
      : fd_(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    if (fd_ < 0) {
      fail(ErrorKind::data, "{}: cannot be listed: {}", path,
           std::generic_category().message(errno));
    }
  }
  OpenFolder(const OpenFolder&) = delete;
  ~OpenFolder() { close(fd_); }
  /// Returns the status of an entry, or of the target of a link; nothing if that does not exist.
  std::optional<struct stat> status_of(const std::string& name) const {
    struct stat status = {};
    if (fstatat(fd_, name.c_str(), &status, 0) != 0) return std::nullopt;
    return status;
  }

 private:
  int fd_;
};

std::string canonical_path(const std::string& path) {
  std::error_code error;
  std::string real = fs::canonical(path, error).string();
  if (error) fail(ErrorKind::data, "{}: {}", path, error.message());
  return real;
}

std::string joined(const std::string& folder, const std::string& name) {
  return folder.ends_with("/") ? folder + name : folder + "/" + name;
}

bool is_in(const std::string& path, const std::string& folder) {
  return folder == "/" || (path + "/").starts_with(folder + "/");
}

/// Returns true if `real`, the target of a link in `from`, is `from` or a folder above it, so that
/// the walk would not end.
bool is_loop(const Folder& from, const std::string& real) {
  for (const Folder* folder = &from; folder; folder = folder->parent) {
    if (is_in(folder->real, real)) return true;
  }
  return false;
}

void add_folder(const FolderEntry& entry, Chunk& chunk) {
  const Folder& from = *chunk.folder;
  std::string path = joined(from.path, entry.name);
  std::string real = entry.type == DT_DIR ? joined(from.real, entry.name) : canonical_path(path);
  if (entry.type != DT_DIR && is_loop(from, real)) {
    chunk.found.loops.push_back(std::move(path));
    return;
  }
  chunk.folders.push_back(
      {from.start, std::move(path), from.below + entry.name + "/", std::move(real), &from, {}});
}

void add_entry(const FolderEntry& entry, const OpenFolder& open_folder, Chunk& chunk) {
  if (entry.type == DT_DIR) return add_folder(entry, chunk);
  const ImageFormat* format = format_of_name(entry.name);
  if (entry.type == DT_REG && !format) {
    ++chunk.found.others[group_of_file(entry.name)];
    return;
  }
  const std::optional<struct stat> status = open_folder.status_of(entry.name);
  if (status && S_ISDIR(status->st_mode)) return add_folder(entry, chunk);
  const auto bad = [&](BadFileKind kind) {
    chunk.found.bad.push_back({kind, joined(chunk.folder->path, entry.name)});
  };
  if (!format) {
    ++chunk.found.others[group_of_file(entry.name)];
  } else if (!status) {
    bad(BadFileKind::dead_link);
  } else if (!S_ISREG(status->st_mode)) {
    bad(BadFileKind::not_regular);
  } else if (!format->decode) {
    bad(BadFileKind::unread_format);
  } else {
    chunk.found.images.push_back(
        {chunk.folder->below + entry.name, static_cast<std::uint64_t>(status->st_size)});
  }
}

/// Divides the entries of folders into chunks, because a class may have a million files.
std::vector<Chunk> chunks_of(const std::vector<Folder*>& folders) {
  constexpr std::size_t kAtOnce = 1024;
  std::vector<Chunk> chunks;
  for (const Folder* folder : folders) {
    for (std::size_t at = 0; at < folder->entries.size(); at += kAtOnce) {
      chunks.push_back({folder, at, std::min(at + kAtOnce, folder->entries.size())});
    }
  }
  return chunks;
}

void append(WalkedFolder& to, WalkedFolder&& from) {
  const auto move_all = [](auto& all, auto& more) {
    all.insert(all.end(), std::make_move_iterator(more.begin()),
               std::make_move_iterator(more.end()));
  };
  move_all(to.images, from.images);
  move_all(to.bad, from.bad);
  move_all(to.loops, from.loops);
  for (const auto& [group, count] : from.others) to.others[group] += count;
}

void sort_found(WalkedFolder& walked) {
  std::sort(walked.images.begin(), walked.images.end(),
            [](const ListedImage& a, const ListedImage& b) { return a.name < b.name; });
  std::sort(walked.bad.begin(), walked.bad.end(),
            [](const BadFile& a, const BadFile& b) { return a.path < b.path; });
  std::sort(walked.loops.begin(), walked.loops.end());
}

}  // namespace

std::string group_of_file(const std::string& name) {
  if (name == "Thumbs.db" || name == "desktop.ini") return name;
  std::string extension = fs::path(name).extension().string();
  for (char& c : extension) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return extension.empty() ? name : extension;
}

std::vector<FolderEntry> entries_of_folder(const std::string& path) {
  const auto refuse = [&](int error) {
    fail(ErrorKind::data, "{}: cannot be listed: {}", path, std::generic_category().message(error));
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

std::vector<WalkedFolder> walk_folders(const std::vector<std::string>& folders) {
  const std::string name = "lister of folders";
  std::vector<WalkedFolder> walked(folders.size());
  std::deque<Folder> all;  // a deque does not move its elements
  std::vector<Folder*> level;
  for (std::size_t i = 0; i < folders.size(); ++i) {
    level.push_back(&all.emplace_back(Folder{i, folders[i], "", "", nullptr, {}}));
  }
  // Walk one level of nesting after another.
  while (!level.empty()) {
    for_each_part(level.size(), name, [&](std::size_t i) {
      if (level[i]->real.empty()) level[i]->real = canonical_path(level[i]->path);
      level[i]->entries = entries_of_folder(level[i]->path);
    });
    std::vector<Chunk> chunks = chunks_of(level);
    for_each_part(chunks.size(), name, [&](std::size_t i) {
      Chunk& chunk = chunks[i];
      const OpenFolder open_folder(chunk.folder->path);
      for (std::size_t k = chunk.first; k < chunk.end; ++k) {
        add_entry(chunk.folder->entries[k], open_folder, chunk);
      }
    });
    for (Folder* folder : level) folder->entries = {};
    level.clear();
    for (Chunk& chunk : chunks) {
      append(walked[chunk.folder->start], std::move(chunk.found));
      for (Folder& folder : chunk.folders) level.push_back(&all.emplace_back(std::move(folder)));
    }
  }
  for (WalkedFolder& each : walked) sort_found(each);
  return walked;
}

}  // namespace dpt
