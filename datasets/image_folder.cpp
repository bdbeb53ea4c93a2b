// One folder per class: ROOT/train/CLASS/*.jpg|png and ROOT/test (or val)/CLASS/*. The files are
// listed once, sorted by name.
#include <algorithm>
#include <filesystem>
#include <map>
#include <system_error>

#include "datasets/class_table.h"
#include "datasets/fingerprint.h"
#include "datasets/folder_listing.h"
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

/// The class folders of a part by their labels.
using LabelledFolders = std::map<std::int32_t, std::string>;

/// Their labels in `table`, which those of the training set make.
LabelledFolders label_folders(const std::string& root, const std::string& part,
                              const std::vector<std::string>& names, bool is_training,
                              ClassTable& table) {
  std::vector<std::int32_t> labels;
  for (const std::string& name : names) {
    labels.push_back(
        table.label_of_name(name, [&] { return (fs::path(root) / part / name).string(); }));
  }
  if (is_training) table.close(ClassOrder::bytes, labels);
  LabelledFolders folders;
  for (std::size_t i = 0; i < names.size(); ++i) folders[labels[i]] = names[i];
  return folders;
}

void check_image_root(const std::string& root, const DataRequirements& requirements) {
  check_root("image_folder", root, "train/CLASS/*.jpg or *.png, and test or val likewise", "");
  check_picture_channels("image_folder: " + root, requirements);
}

void check_train_folder(const std::string& root) {
  if (has_folder(root, "train")) return;
  fail(ErrorKind::data, "image_folder: {}: no folder train in it; expected {}/train/CLASS/*.jpg",
       root, root);
}

/// The pictures of a part, folder by folder in the order of their labels. `samples` has the classes
/// and is given the labels.
std::shared_ptr<const DataSource> open_folders(const FolderListing& listing,
                                               const std::string& root, const std::string& part,
                                               const LabelledFolders& folders, bool may_be_empty,
                                               PictureSource::Samples samples,
                                               const DataRequirements& requirements,
                                               std::int64_t cache_bytes) {
  Fingerprint hash;
  hash.add(fmt::format("image_folder v1 {}x{}x{}", requirements.input.h, requirements.input.w,
                       requirements.input.c));
  std::vector<std::string> names, files;
  for (const auto& [label, name] : folders) names.push_back(name);
  const std::vector<std::vector<ListedPicture>> pictures = listing.pictures(part, names);
  auto listed = pictures.begin();
  for (const auto& [label, name] : folders) {
    const std::string folder = part + "/" + name;
    if (listed->empty() && !may_be_empty) {
      fail(ErrorKind::data, "{}: empty class folder: expected *.jpg, *.jpeg or *.png in it",
           (fs::path(root) / folder).string());
    }
    for (const ListedPicture& picture : *listed) {
      files.push_back(folder + "/" + picture.name);
      hash.add(files.back());
      hash.add(std::to_string(picture.bytes));
      samples.labels.push_back(label);
    }
    ++listed;
  }
  if (files.empty()) {
    fail(ErrorKind::data, "{}: no pictures in the class folders; expected {}/CLASS/*.jpg or *.png",
         (fs::path(root) / part).string(), (fs::path(root) / part).string());
  }
  check_picture_count(root, files.size());
  return std::make_shared<ImageFolderSource>(root, std::move(files), std::move(samples),
                                             requirements, cache_bytes, hash.text());
}

DataSets open_image_folder(const Variant& variant, const DataRequirements& requirements) {
  const auto& options = variant.as<ImageFolderOptions>();
  const std::string& root = options.root;
  check_image_root(root, requirements);
  check_train_folder(root);
  const FolderListing listing(root);
  ClassTable table({}, fmt::format("{}/train", root), requirements);
  const auto open = [&](const std::string& part, bool is_training) {
    const LabelledFolders folders =
        label_folders(root, part, listing.classes(part), is_training, table);
    if (is_training && table.is_from_samples()) {
      check_classes(fmt::format("image_folder: {}/train ({})", root, some_of(table.names())),
                    table.names().size(), requirements);
    }
    PictureSource::Samples samples;
    samples.classes = table.names();
    return open_folders(listing, root, part, folders, !is_training, std::move(samples),
                        requirements, options.cache_mib << 20);
  };
  DataSets sets;
  sets.train = open("train", true);
  const std::string part = test_part(options);
  if (!part.empty()) {
    std::error_code error;
    if (fs::equivalent(fs::path(root) / part, fs::path(root) / "train", error)) {
      fail(ErrorKind::data,
           "image_folder: {}: expected a test set in {}, found the training set itself; for a "
           "result on the training samples: dpt eval RUN --split train",
           root, part);
    }
    sets.test = open(part, false);
  }
  return sets;
}

/// Folders may be of any classes; those of the checkpoint come first, in its order, so that samples
/// have the numbers that they have in an evaluation.
std::shared_ptr<const DataSource> open_image_folder_unlabelled(const Variant& variant,
                                                               DataPart part,
                                                               const DataRequirements& requirements,
                                                               UnreadableSamples& /*unreadable*/) {
  const auto& options = variant.as<ImageFolderOptions>();
  const std::string& root = options.root;
  check_image_root(root, requirements);
  if (part == DataPart::train) check_train_folder(root);
  const std::string folder = part == DataPart::train ? "train" : test_part(options);
  if (folder.empty()) return nullptr;
  const FolderListing listing(root);
  const std::vector<std::string>& known = requirements.known_classes;
  LabelledFolders folders;
  auto next = static_cast<std::int32_t>(known.size());
  for (const std::string& name : listing.classes(folder)) {
    const auto found = std::find(known.begin(), known.end(), name);
    folders[found == known.end() ? next++ : static_cast<std::int32_t>(found - known.begin())] =
        name;
  }
  return open_folders(listing, root, folder, folders, true, {}, requirements, 0);
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
  DatasetKind kind = {&table, open_image_folder, open_image_folder_unlabelled, true};
  kind.declares = [](const Variant&) {
    return DeclaredSamples{true, TargetKind::class_index, false, DType::u8};
  };
  return kind;
}

}  // namespace dpt
