// Detects the kind of data at a path: folders, tables, arrays or shards.
#include "app/config/starter_data.h"

#include <algorithm>
#include <filesystem>

#include <fmt/ranges.h>

#include "datasets/image_walk.h"
#include "engine/config/paths.h"
#include "engine/config/scalars.h"
#include "kernels/base/error.h"
#include "kernels/base/shell_word.h"
#include "kernels/image/image_formats.h"

namespace dpt {
namespace {

namespace fs = std::filesystem;

bool ends_with(const std::string& path, const std::string& extension) {
  const std::string name = lower_case(path);
  return name.size() > extension.size() && name.ends_with(extension);
}

bool is_folder(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const FolderEntry& entry : entries_of_folder(folder)) names.push_back(entry.name);
  return names;
}

/// Throws for a folder without the layout of a data set. The message has a remedy.
[[noreturn]] void refuse_folder(const std::string& folder, const std::vector<std::string>& names) {
  const auto with = [&](const char* extension) {
    // Prefer the file of the training samples, then a file that is not named after another part.
    for (const bool is_train : {true, false}) {
      for (const std::string& name : names) {
        const auto has = [&](const char* part) { return name.find(part) != std::string::npos; };
        const bool is_other = has("test") || has("val");
        if (ends_with(name, extension) && (is_train ? has("train") : !is_other)) {
          return (fs::path(folder) / name).string();
        }
      }
    }
    return std::string();
  };
  for (const char* extension : {".csv", ".tsv", ".npz", ".npy"}) {
    if (const std::string file = with(extension); !file.empty()) {
      fail(ErrorKind::usage,
           "--data {}: expected a folder with train/CLASS/*.jpg, or a file: give the file, e.g. "
           "--data {}",
           folder, file);
    }
  }
  const fs::path clean = fs::path(folder).lexically_normal();
  const std::string name = (clean.has_filename() ? clean : clean.parent_path()).filename().string();
  const auto is_class = [&](const std::string& each) { return is_folder(fs::path(folder) / each); };
  const bool has_folders = std::any_of(names.begin(), names.end(), is_class);
  if (has_folders && (name == "train" || name == "val" || name == "test")) {
    fail(ErrorKind::usage,
         "--data {}: expected the folder that contains {}: give the parent folder", folder, name);
  }
  for (const std::string& each : names) {
    if (!is_class(each)) continue;
    if (const std::string word = lower_case(each); word == "train" || word == "training") {
      fail(ErrorKind::data,
           "--data {}: the folder has no subfolder 'train', but has {}: rename it (mv {} {}), and "
           "rename the folders of the other splits to val and test",
           folder, each, shell_quoted((fs::path(folder) / each).string()),
           shell_quoted((fs::path(folder) / "train").string()));
    }
    if (is_folder(fs::path(folder) / each / "train")) {
      fail(ErrorKind::data,
           "--data {}: the folder has no subfolder 'train', but {} has one: give --data {}", folder,
           each, shell_quoted((fs::path(folder) / each).string()));
    }
  }
  if (has_folders) {
    fail(ErrorKind::data,
         "--data {}: the folder has no subfolder 'train'. If its subfolders are the classes, "
         "create a folder "
         "that contains it as 'train': mkdir DATA && ln -s \"$(realpath {})\" DATA/train, then "
         "--data DATA",
         folder, shell_quoted(folder));
  }
  fail(ErrorKind::data,
       "--data {}: expected a folder with train/CLASS/*.jpg or tar shards, found {}", folder,
       names.empty()
           ? "an empty folder"
           : fmt::format(
                 "{}",
                 fmt::join(names.begin(),
                           names.begin() + std::min<std::ptrdiff_t>(5, std::ssize(names)), ", ")));
}

}  // namespace

std::string yaml_path(const std::string& path) {
  // In a config, a leading ~ is the home folder, and NAME:// begins a URL.
  const bool has_meaning = path.starts_with("~") || path.find("://") != std::string::npos;
  return yaml_string(escape_variables(has_meaning ? "./" + path : path));
}

std::string file_of_part(const std::string& file, const std::string& part) {
  const std::size_t base = file.rfind('/') == std::string::npos ? 0 : file.rfind('/') + 1;
  const std::size_t at = file.rfind("train");
  if (at == std::string::npos || at < base) return {};
  const std::vector<std::string> names =
      part == "val" ? std::vector<std::string>{"val", "valid", "validation"}
                    : std::vector<std::string>{part};
  for (const std::string& name : names) {
    std::string other = file;
    other.replace(at, 5, name);
    std::error_code error;
    if (fs::exists(other, error)) return other;
  }
  return {};
}

StarterData starter_of_folder(const std::string& folder) {
  const std::vector<std::string> names = names_in(folder);
  if (is_folder(fs::path(folder) / "train")) {
    StarterData data;
    data.summary = "a folder of images, one folder for each class";
    data.lines = {"dataset: image_folder",
                  fmt::format("root: {}   # train/CLASS/*, and val/ and test/ if present",
                              yaml_path(folder))};
    return data;
  }
  const auto has = [&](const char* beginning, const char* extension) {
    return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
      return name.starts_with(beginning) && ends_with(name, extension);
    });
  };
  if (has("train", ".tar")) return starter_of_shards((fs::path(folder) / "train*.tar").string());
  if (has("", ".tar")) return starter_of_shards((fs::path(folder) / "*.tar").string());
  refuse_folder(folder, names);
}

StarterData starter_of_shards(const std::string& pattern) {
  StarterData data;
  data.summary = "tar shards of images (WebDataset)";
  data.lines = {"dataset: webdataset", fmt::format("train: {{shards: {}}}", yaml_path(pattern))};
  // Look for shards of other parts, whose pattern has the part's name in place of `train`.
  for (const char* part : {"val", "test"}) {
    const std::size_t at = pattern.rfind("train");
    const std::size_t slash = pattern.rfind('/');
    if (at == std::string::npos || (slash != std::string::npos && at < slash)) continue;
    const fs::path folder = slash == std::string::npos ? "." : pattern.substr(0, slash);
    const auto is_part = [&](const std::string& name) {
      return name.starts_with(part) && ends_with(name, ".tar");
    };
    const std::vector<std::string> names = names_in(folder.string());
    const bool is_listed = pattern.find('*') != std::string::npos;
    if (!is_listed || !std::any_of(names.begin(), names.end(), is_part)) continue;
    std::string other = pattern;
    data.lines.push_back(
        fmt::format("{}: {{shards: {}}}", part, yaml_path(other.replace(at, 5, part))));
  }
  return data;
}

StarterData find_starter_data(const std::string& path) {
  std::error_code error;
  if (is_folder(path)) return starter_of_folder(path);
  const bool is_shards = ends_with(path, ".tar");
  const bool is_pattern = path.find_first_of("*?[{") != std::string::npos;
  const std::string file = path.substr(
      0, path.rfind(".npz:") == std::string::npos ? std::string::npos : path.rfind(".npz:") + 4);
  if (!fs::exists(file, error) && !(is_shards && is_pattern)) {
    fail(ErrorKind::data,
         "--data {}: no such file or folder; expected a folder with train/CLASS/*.jpg, a .csv "
         "file, a .npy or .npz file, or .tar shards",
         path);
  }
  if (is_shards) return starter_of_shards(path);
  if (ends_with(path, ".csv") || ends_with(path, ".tsv")) return starter_of_csv(path);
  if (ends_with(file, ".npy") || ends_with(file, ".npz")) return starter_of_npy(path);
  if (format_of_name(path)) {
    fail(ErrorKind::usage,
         "--data {}: expected a data set, found one image: give the folder that contains "
         "train/CLASS/*.jpg",
         path);
  }
  fail(ErrorKind::usage,
       "--data {}: expected a folder with train/CLASS/*.jpg, a .csv file, a .npy or .npz file, or "
       ".tar shards; a table in another format can be saved as CSV, arrays with numpy.save",
       path);
}

}  // namespace dpt
