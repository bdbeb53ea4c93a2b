// Finds the arrays that belong to an array of samples: its targets, and the arrays of other parts.
#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <optional>

#include <fmt/ranges.h>

#include "app/config/starter_data.h"
#include "datasets/npy_array.h"
#include "engine/config/scalars.h"
#include "kernels/base/error.h"
#include "kernels/base/mapped_file.h"
#include "kernels/base/zip_archive.h"

namespace dpt {
namespace {

namespace fs = std::filesystem;

/// Words in array names that mean samples or targets.
constexpr std::array kImageWords = {"images", "features", "inputs", "data", "x", "X"};
constexpr std::array kTargetWords = {"labels", "targets", "target", "label", "classes", "y", "Y"};

/// Arrays of a data set: files, or members of an archive. A path is `prefix` + name + `suffix`.
struct Arrays {
  std::string prefix, suffix;
  std::vector<std::string> names;

  bool has(const std::string& name) const {
    return std::find(names.begin(), names.end(), name) != names.end();
  }
  std::string path(const std::string& name) const { return prefix + name + suffix; }
};

Arrays arrays_of_archive(const std::string& file) {
  const MappedFile mapped(file);
  const ZipArchive archive(mapped.bytes(), file, "numpy.savez writes one");
  Arrays arrays{file + ":", "", {}};
  for (const ZipMember& member : archive.members()) {
    const std::string& name = member.name;
    arrays.names.push_back(name.ends_with(".npy") ? name.substr(0, name.size() - 4) : name);
  }
  return arrays;
}

Arrays arrays_next_to(const std::string& file) {
  const fs::path path(file);
  const fs::path folder = path.parent_path();
  Arrays arrays{folder.empty() ? "" : (folder / "").string(), ".npy", {}};
  std::error_code error;
  for (fs::directory_iterator it(folder.empty() ? "." : folder, error), end; !error && it != end;
       it.increment(error)) {
    if (it->path().extension() == ".npy") arrays.names.push_back(it->path().stem().string());
  }
  std::sort(arrays.names.begin(), arrays.names.end());
  return arrays;
}

/// Returns the position of the first `word` in `name` that has no letter on either side.
std::optional<std::size_t> find_word(const std::string& name, const std::string& word) {
  const auto is_letter = [](char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; };
  for (std::size_t at = name.find(word); at != std::string::npos; at = name.find(word, at + 1)) {
    const std::size_t end = at + word.size();
    const bool begins = at == 0 || !is_letter(name[at - 1]);
    if (begins && (end == name.size() || !is_letter(name[end]))) return at;
  }
  return std::nullopt;
}

/// Returns the array with the targets of `images`; empty if there is none.
std::string targets_of(const Arrays& arrays, const std::string& images) {
  for (const char* word : kImageWords) {
    const std::optional<std::size_t> at = find_word(images, word);
    if (!at) continue;
    for (const char* target : kTargetWords) {
      std::string name = images;
      name.replace(*at, std::string(word).size(), target);
      if (name != images && arrays.has(name)) return name;
    }
  }
  return {};
}

/// Returns an archive's array of samples, preferably of the training samples.
std::string images_of(const Arrays& arrays) {
  for (const bool is_train : {true, false}) {
    for (const std::string& name : arrays.names) {
      const bool says_train = name.find("train") != std::string::npos;
      if (says_train == is_train && !targets_of(arrays, name).empty()) return name;
    }
  }
  return {};
}

/// Derives the kind of targets from the values of their rows.
StarterTargets kind_of_rows(const NpyArray& array) {
  const auto width = static_cast<std::size_t>(array.shape()[1]);
  const std::size_t rows = std::min<std::size_t>(1000, static_cast<std::size_t>(array.shape()[0]));
  bool are_zero_or_one = true, are_shares = width > 1;
  for (std::size_t i = 0; i < rows; ++i) {
    double sum = 0;
    for (std::size_t k = 0; k < width; ++k) {
      const double value = array.number(i * width + k);
      sum += value;
      are_zero_or_one = are_zero_or_one && (value == 0 || value == 1);
      are_shares = are_shares && value >= 0;
    }
    are_shares = are_shares && std::abs(sum - 1) < 1e-3;
  }
  if (are_shares) return StarterTargets::soft_labels;
  return are_zero_or_one ? StarterTargets::multi_hot : StarterTargets::values;
}

/// Returns true if the first 1000 targets are whole numbers below kMaxClasses.
bool are_small_numbers(const NpyArray& array) {
  constexpr double kMaxClasses = 100;
  const std::size_t count = std::min<std::size_t>(1000, static_cast<std::size_t>(array.shape()[0]));
  for (std::size_t i = 0; i < count; ++i) {
    const double value = array.number(i);
    if (!(value >= 0 && value < kMaxClasses) || value != std::floor(value)) return false;
  }
  return count > 0;
}

void add_targets(const NpyArray& array, StarterData& data) {
  const std::size_t dims = array.shape().size();
  if (dims == 1) {
    if (array.is_integral()) return;
    data.targets = StarterTargets::values;
    if (are_small_numbers(array)) {
      data.lines.emplace_back(
          "# the targets are whole numbers: if they are classes, store them as integers (int64)");
    }
    return;
  }
  if (dims != 2) {
    fail(ErrorKind::data, "{}: expected targets (N,) or (N, K), found {}", array.path(),
         array.text());
  }
  data.targets = kind_of_rows(array);
  const char* name = data.targets == StarterTargets::soft_labels ? "soft_labels"
                     : data.targets == StarterTargets::multi_hot ? "multi_hot"
                                                                 : "values";
  data.lines.push_back(fmt::format("target: {}", name));
}

void add_shape(const NpyArray& images, StarterData& data) {
  const std::vector<std::int64_t>& dims = images.shape();
  if (dims.size() < 2 || dims.size() > 4) {
    fail(ErrorKind::data,
         "{}: expected images (N, H, W, C) or (N, H, W), or features (N, F), found {}",
         images.path(), images.text());
  }
  if (dims.size() == 4 && dims[3] > 4 && (dims[1] == 1 || dims[1] == 3)) {
    fail(ErrorKind::data,
         "{}: expected images (N, H, W, C), found {}, which look like (N, C, H, W): "
         "numpy.save(file, numpy.ascontiguousarray(array.transpose(0, 2, 3, 1))) converts them",
         images.path(), images.text());
  }
  data.is_features = dims.size() == 2;
  data.input = {dims[1], 1, 1};
  if (dims.size() > 2) data.input = {dims.size() == 4 ? dims[3] : 1, dims[1], dims[2]};
}

std::string files_of_part(const Arrays& arrays, const std::string& images,
                          const std::string& targets) {
  return fmt::format("{{images: {}, targets: {}}}", yaml_path(arrays.path(images)),
                     yaml_path(arrays.path(targets)));
}

/// Returns the same array of another part; empty if there is none.
std::string name_of_part(const Arrays& arrays, const std::string& name, const std::string& part) {
  const std::size_t at = name.find("train");
  if (at == std::string::npos) return {};
  std::string other = name;
  other.replace(at, 5, part);
  return arrays.has(other) ? other : std::string();
}

}  // namespace

StarterData starter_of_npy(const std::string& file) {
  const std::size_t colon = file.rfind(".npz:");
  const bool is_archive = colon != std::string::npos || lower_case(file).ends_with(".npz");
  const std::string archive = file.substr(0, colon == std::string::npos ? colon : colon + 4);
  const Arrays arrays = is_archive ? arrays_of_archive(archive) : arrays_next_to(file);
  const std::string images = colon != std::string::npos ? file.substr(colon + 5)
                             : is_archive               ? images_of(arrays)
                                                        : fs::path(file).stem().string();
  const std::string targets = images.empty() ? "" : targets_of(arrays, images);
  if (targets.empty()) {
    fail(ErrorKind::data,
         "--data {}: expected an array of samples and an array of targets {}, such as x and y, or "
         "train_images and train_labels; found {}. Rename the arrays, or write data.train: "
         "{{images: ..., "
         "targets: ...}} in a config",
         file, is_archive ? "in the archive" : "next to it",
         arrays.names.empty() ? "none" : known_names(arrays.names));
  }
  StarterData data;
  data.summary = "arrays of NumPy";
  data.lines = {"dataset: npy", "train: " + files_of_part(arrays, images, targets)};
  for (const auto& [part, names] : {std::pair("val", std::array{"val", "valid"}),
                                    std::pair("test", std::array{"test", "test"})}) {
    for (const char* name : names) {
      const std::string x = name_of_part(arrays, images, name);
      const std::string y = name_of_part(arrays, targets, name);
      if (x.empty() || y.empty()) continue;
      data.lines.push_back(fmt::format("{}: {}", part, files_of_part(arrays, x, y)));
      break;
    }
    // Look for another archive with arrays of the same names.
    const std::string other = is_archive ? file_of_part(archive, part) : std::string();
    if (other.empty() || data.lines.back().starts_with(part)) continue;
    const Arrays arrays_of_other = arrays_of_archive(other);
    if (!arrays_of_other.has(images) || !arrays_of_other.has(targets)) continue;
    data.lines.push_back(
        fmt::format("{}: {}", part, files_of_part(arrays_of_other, images, targets)));
  }
  add_shape(NpyArray(arrays.path(images)), data);
  add_targets(NpyArray(arrays.path(targets)), data);
  return data;
}

}  // namespace dpt
