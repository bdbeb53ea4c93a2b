// One folder per class: ROOT/train/CLASS/*.jpg|png and ROOT/test (or val)/CLASS/*. The files are
// listed once, sorted by name.
#include <algorithm>
#include <filesystem>
#include <system_error>

#include "datasets/fingerprint.h"
#include "datasets/image.h"
#include "datasets/kinds.h"
#include "datasets/picture_source.h"
#include "datasets/requirements.h"
#include "kernels/error.h"

namespace dpt {
namespace {

namespace fs = std::filesystem;

struct ImageFolderOptions {
  std::string root;
  std::string test;
  std::int64_t cache_mib = 1024;
};

class ImageFolderSource final : public PictureSource {
 public:
  ImageFolderSource(const std::string& root, std::vector<std::string> files, Samples samples,
                    const DataRequirements& requirements, std::int64_t cache_bytes,
                    std::string fingerprint)
      : PictureSource(root, std::move(samples), requirements, cache_bytes, std::move(fingerprint)),
        root_(root),
        files_(std::move(files)) {}

  std::string describe(std::int64_t index) const override {
    return (fs::path(root_) / files_[static_cast<std::size_t>(index)]).string();
  }

 protected:
  std::vector<std::byte> read_file(std::int64_t index) const override {
    return read_image_file(describe(index));
  }

 private:
  std::string root_;
  std::vector<std::string> files_;  ///< relative to the root
};

/// Whether the root has a folder of that name. Throws where the system cannot tell.
bool has_folder(const std::string& root, const std::string& name) {
  std::error_code error;
  const fs::file_type type = fs::status(fs::path(root) / name, error).type();
  if (type == fs::file_type::none) {
    fail(ErrorKind::data,
         "image_folder: {}: {} in it cannot be opened: {}; expected a folder with one folder per "
         "class, or a link to one below {}",
         root, name, error.message(), root);
  }
  return type == fs::file_type::directory;
}

/// The entries of a folder except hidden ones, sorted by name byte by byte.
std::vector<fs::directory_entry> sorted_entries(const fs::path& folder) {
  std::vector<fs::directory_entry> entries;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (!it->path().filename().string().starts_with(".")) entries.push_back(*it);
  }
  if (error) fail(ErrorKind::data, "{}: cannot be listed: {}", folder.string(), error.message());
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return a.path().filename().string() < b.path().filename().string();
  });
  return entries;
}

/// Lists one root. Links may point anywhere below it, and nowhere else.
class Lister {
 public:
  explicit Lister(const std::string& root) : root_(root) {
    std::error_code error;
    real_root_ = fs::canonical(root, error).string();
    if (error) fail(ErrorKind::data, "{}: {}", root, error.message());
    if (!real_root_.ends_with("/")) real_root_ += '/';
  }

  /// The classes of a part ("train"): its folders.
  std::vector<std::string> classes(const std::string& part) const {
    const fs::path folder = fs::path(root_) / part;
    check_inside(fs::directory_entry(folder));
    std::vector<std::string> names;
    for (const fs::directory_entry& entry : sorted_entries(folder)) {
      check_inside(entry);
      if (is_folder(entry)) {
        names.push_back(entry.path().filename().string());
      } else if (is_image_name(entry.path().string())) {
        fail(ErrorKind::data, "{}: an image next to the class folders; expected {}/CLASS/{}",
             entry.path().string(), folder.string(), entry.path().filename().string());
      }
    }
    if (names.empty()) {
      fail(ErrorKind::data, "{}: no class folders; expected {}/CLASS/*.jpg or *.png",
           folder.string(), folder.string());
    }
    return names;
  }

  /// The files of a part, relative to the root; their labels are added to `labels`.
  std::vector<std::string> files(const std::string& part, const std::vector<std::string>& classes,
                                 Fingerprint& hash, std::vector<std::int32_t>& labels) const {
    std::vector<std::string> result;
    for (std::size_t label = 0; label < classes.size(); ++label) {
      const std::string folder = part + "/" + classes[label];
      const std::size_t before = result.size();
      for (const fs::directory_entry& entry : sorted_entries(fs::path(root_) / folder)) {
        check_file(entry);
        const std::string path = folder + "/" + entry.path().filename().string();
        hash.add(path);
        std::error_code error;
        const std::uintmax_t bytes = entry.file_size(error);
        if (error) fail(ErrorKind::data, "{}: {}", entry.path().string(), error.message());
        hash.add(std::to_string(bytes));
        result.push_back(path);
        labels.push_back(static_cast<std::int32_t>(label));
      }
      if (result.size() == before) {
        fail(ErrorKind::data, "{}: empty class folder: expected *.jpg, *.jpeg or *.png in it",
             (fs::path(root_) / folder).string());
      }
    }
    check_picture_count(root_, result.size());
    return result;
  }

 private:
  static bool is_folder(const fs::directory_entry& entry) {
    std::error_code error;
    const bool is = entry.is_directory(error);
    if (error) fail(ErrorKind::data, "{}: {}", entry.path().string(), error.message());
    return is;
  }

  void check_inside(const fs::directory_entry& entry) const {
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

  void check_file(const fs::directory_entry& entry) const {
    check_inside(entry);
    const std::string path = entry.path().string();
    if (is_folder(entry)) {
      fail(ErrorKind::data,
           "{}: a folder inside a class folder; images must be directly in the class folder", path);
    }
    if (!is_image_name(entry.path().string())) {
      fail(ErrorKind::data, "{}: not named *.jpg, *.jpeg or *.png: remove or convert it", path);
    }
    std::error_code error;  // is_folder has seen that there is none
    if (!entry.is_regular_file(error)) fail(ErrorKind::data, "{}: not a regular file", path);
  }

  std::string root_, real_root_;
};

/// "cat, dog, ..." for messages.
std::string some_of(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size() && i < 5; ++i) text += (i ? ", " : "") + names[i];
  return names.size() > 5 ? text + ", ..." : text;
}

/// The folder of the test set: as configured, or `test` or `val`, whichever exists; or empty.
std::string test_part(const ImageFolderOptions& options) {
  const auto is_there = [&](const char* part) { return has_folder(options.root, part); };
  if (!options.test.empty()) {
    if (has_folder(options.root, options.test)) return options.test;
    fail(ErrorKind::data, "image_folder: {}: no folder {} in it, which data.test names",
         options.root, options.test);
  }
  if (is_there("test") && is_there("val")) {
    fail(ErrorKind::data,
         "image_folder: {}: both test and val exist: choose the test set with test: test or test: "
         "val",
         options.root);
  }
  return is_there("test") ? "test" : is_there("val") ? "val" : "";
}

void check_same_classes(const std::string& root, const std::string& part,
                        const std::vector<std::string>& train,
                        const std::vector<std::string>& test) {
  for (const std::string& name : test) {
    if (!std::binary_search(train.begin(), train.end(), name)) {
      fail(ErrorKind::data, "{}/{}/{}: a class that {}/train does not have", root, part, name,
           root);
    }
  }
  for (const std::string& name : train) {
    if (!std::binary_search(test.begin(), test.end(), name)) {
      fail(ErrorKind::data, "{}/{}: no folder for the class {}", root, part, name);
    }
  }
}

DataSets open_image_folder(const Variant& variant, const DataRequirements& requirements) {
  const auto& options = variant.as<ImageFolderOptions>();
  const std::string& root = options.root;
  check_root("image_folder", root, "train/CLASS/*.jpg or *.png, and test or val likewise", "");
  check_picture_channels("image_folder: " + root, requirements);
  if (!has_folder(root, "train")) {
    fail(ErrorKind::data, "image_folder: {}: no folder train in it; expected {}/train/CLASS/*.jpg",
         root, root);
  }
  const Lister lister(root);
  const std::vector<std::string> classes = lister.classes("train");
  check_classes(fmt::format("image_folder: {}/train ({})", root, some_of(classes)), classes.size(),
                requirements);
  const auto open = [&](const std::string& part) {
    Fingerprint hash;
    hash.add(fmt::format("image_folder v1 {}x{}x{}", requirements.input.h, requirements.input.w,
                         requirements.input.c));
    PictureSource::Samples samples;
    samples.classes = classes;
    std::vector<std::string> files = lister.files(part, classes, hash, samples.labels);
    return std::make_shared<ImageFolderSource>(root, std::move(files), std::move(samples),
                                               requirements, options.cache_mib << 20, hash.text());
  };
  DataSets sets;
  sets.train = open("train");
  const std::string part = test_part(options);
  if (!part.empty()) {
    std::error_code error;
    if (fs::equivalent(fs::path(root) / part, fs::path(root) / "train", error)) {
      fail(ErrorKind::data,
           "image_folder: {}: expected a test set in {}, found the training set itself; for a "
           "result on the training samples: dpt eval RUN --split train",
           root, part);
    }
    check_same_classes(root, part, classes, lister.classes(part));
    sets.test = open(part);
  }
  return sets;
}

}  // namespace

DatasetKind image_folder_kind() {
  static const ObjectTable table = object_table<ImageFolderOptions>(
      "image_folder",
      "JPEG and PNG files in one folder per class; resized to the model's input (bilinear, "
      "antialiased) and converted to its channels (grey or RGB).",
      {path_field("root", &ImageFolderOptions::root,
                  "Folder with train/CLASS/*.jpg and, for a test set, test/CLASS/* or val/CLASS/*.")
           .required(),
       field("test", &ImageFolderOptions::test,
             "Name of the test set's folder; empty: test or val, whichever exists."),
       field("cache_mib", &ImageFolderOptions::cache_mib,
             "Decoded images are kept in memory if the whole set fits in this many MiB.")
           .range(0, 1048576)
           .changeable()});
  return {&table, open_image_folder, true};
}

}  // namespace dpt
