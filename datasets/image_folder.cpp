// Images with one folder per class: in and below ROOT/train/CLASS and, if present, ROOT/val/CLASS
// and ROOT/test/CLASS. The files are listed once, sorted by name.
#include <algorithm>
#include <filesystem>
#include <map>
#include <system_error>

#include "datasets/class_table.h"
#include "datasets/dataset.h"
#include "datasets/fingerprint.h"
#include "datasets/folder_listing.h"
#include "datasets/image_file.h"
#include "datasets/image_source.h"
#include "datasets/kinds.h"
#include "datasets/requirements.h"
#include "engine/data/data_sets.h"
#include "engine/data/unreadable_samples.h"
#include "kernels/base/error.h"

namespace dpt {
namespace {

namespace fs = std::filesystem;

constexpr const char* kAuto = "auto";
constexpr const char* kNone = "none";

struct ImageFolderOptions {
  std::string root;
  std::string val = kAuto;
  std::string test;
  std::int64_t cache_mib = 1024;
};

class ImageFolderSource final : public ImageSource {
 public:
  ImageFolderSource(const std::string& root, std::vector<std::string> files, Samples samples,
                    const DataRequirements& requirements, std::int64_t cache_bytes,
                    std::string fingerprint)
      : ImageSource(root, std::move(samples), requirements, cache_bytes, std::move(fingerprint)),
        root_(root),
        files_(std::move(files)) {}

  std::string describe(std::int64_t index) const override {
    return (fs::path(root_) / files_[index]).string();
  }

 protected:
  std::vector<std::byte> read_file(std::int64_t index) const override {
    return read_image_file(describe(index));
  }

 private:
  std::string root_;
  std::vector<std::string> files_;  ///< relative to the root
};

/// Returns true if the root has a folder of that name. Throws if the system cannot tell.
bool has_folder(const std::string& root, const std::string& name) {
  std::error_code error;
  const fs::file_type type = fs::status(fs::path(root) / name, error).type();
  if (type == fs::file_type::none) {
    fail(ErrorKind::data,
         "image_folder: {}: cannot open {} in it: {}; expected a folder with one folder per "
         "class, or a link to one",
         root, name, error.message());
  }
  return type == fs::file_type::directory;
}

/// Returns `name`, the folder that the config's `field` names. Throws if it does not exist.
std::string named_folder(const std::string& root, const char* field, const std::string& name) {
  if (has_folder(root, name)) return name;
  fail(ErrorKind::data, "image_folder: {} has no folder {}, which data.{} names", root, name,
       field);
}

/// Returns the folder of the test set; empty if there is none.
std::string test_folder(const ImageFolderOptions& options) {
  const std::string& root = options.root;
  if (!options.test.empty()) return named_folder(root, "test", options.test);
  if (has_folder(root, "test")) return "test";
  // Runs of earlier releases have `val: none` and use the folder val as test set.
  return options.val == kNone && has_folder(root, "val") ? "val" : "";
}

/// Returns the folder of the validation set; empty if there is none.
std::string val_folder(const ImageFolderOptions& options, const std::string& test) {
  if (options.val == kNone) return {};
  const std::string& root = options.root;
  if (options.val != kAuto) return named_folder(root, "val", options.val);
  std::vector<std::string> found;
  for (const char* name : {"val", "valid", "validation"}) {
    if (name != test && has_folder(root, name)) found.emplace_back(name);
  }
  if (found.size() > 1) {
    fail(ErrorKind::data,
         "image_folder: {}: expected one folder of validation samples, found {}: choose one, "
         "e.g. with data.val={}",
         root, fmt::join(found, " and "), found[0]);
  }
  return found.empty() ? std::string() : found[0];
}

/// Folders of a root, by part; empty if there is no such part.
struct PartFolders {
  std::string train = "train", val, test;

  explicit PartFolders(const ImageFolderOptions& options) {
    test = test_folder(options);
    val = val_folder(options, test);
    check_differ(options.root, "validation", val, "training", train);
    check_differ(options.root, "test", test, "training", train);
    check_differ(options.root, "test", test, "validation", val);
  }
  const std::string& of(DataPart part) const {
    return part == DataPart::train ? train : part == DataPart::val ? val : test;
  }

 private:
  static void check_differ(const std::string& root, const char* set, const std::string& part,
                           const char* other_set, const std::string& other) {
    std::error_code error;
    if (part.empty() || other.empty()) return;
    if (!fs::equivalent(fs::path(root) / part, fs::path(root) / other, error)) return;
    fail(ErrorKind::data, "image_folder: {}: expected a {} set in {}, found the {} set itself; {}",
         root, set, part, other_set,
         other == "train" ? "for a result on the training samples: dpt eval RUN --split train"
                          : "name another folder in data.test or data.val");
  }
};

/// Returns a note about folders that are not parts of the data set; empty if there are none.
std::string note_of_other_folders(const std::string& root, const PartFolders& parts) {
  std::vector<std::string> others;
  std::error_code error;
  for (fs::directory_iterator it(root, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    const std::string name = it->path().filename().string();
    const bool is_part = name == parts.train || name == parts.val || name == parts.test;
    if (!is_part && !name.starts_with(".") && it->is_directory(ignored)) others.push_back(name);
  }
  if (others.empty()) return {};
  std::sort(others.begin(), others.end());
  return fmt::format(
      "image_folder: {}: not read: {}; the splits are in train, val (or valid, validation) and "
      "test, "
      "unless data.val and data.test name others",
      root, some_of(others));
}

/// Indices of the class folders in a ListedPart, by label.
using LabelledFolders = std::map<std::int32_t, std::size_t>;

/// Assigns labels to the class folders of a part. Adds a class that is not in the table to
/// `report`, as a problem.
LabelledFolders label_folders(const std::string& root, const ListedPart& listed, bool is_training,
                              ClassTable& table, FolderReport& report) {
  std::vector<std::int32_t> labels;
  for (const std::string& name : listed.classes) {
    const auto where = [&] { return (fs::path(root) / listed.part / name).string(); };
    try {
      labels.push_back(table.label_of_name(name, where));
    } catch (const Error& error) {
      if (is_training || error.kind() != ErrorKind::data) throw;
      report.add_problem(error.what());
      labels.push_back(-1);
    }
  }
  if (is_training) table.close(ClassOrder::bytes, labels);
  LabelledFolders folders;
  for (std::size_t i = 0; i < labels.size(); ++i) folders[labels[i]] = i;
  return folders;
}

void check_folder_of_images(const std::string& root) {
  check_root("image_folder", root,
             "train/CLASS/IMAGE, and, if present, val/CLASS/IMAGE and test/CLASS/IMAGE", "");
}

void check_image_root(const std::string& root, const DataRequirements& requirements) {
  check_folder_of_images(root);
  check_image_channels("image_folder: " + root, requirements);
}

void check_train_folder(const std::string& root) {
  if (has_folder(root, "train")) return;
  fail(ErrorKind::data, "image_folder: {} has no folder train; expected {}/train/CLASS/IMAGE", root,
       root);
}

/// Adds a problem to `report` for each class without images in the training part, and for any other
/// part without images.
void check_images(const std::string& root, const ListedPart& listed, bool is_training,
                  FolderReport& report) {
  const std::string folder = (fs::path(root) / listed.part).string();
  bool has_images = false;
  for (std::size_t i = 0; i < listed.classes.size(); ++i) {
    has_images = has_images || !listed.images[i].empty();
    if (listed.images[i].empty() && is_training) {
      report.add_empty_class(folder + "/" + listed.classes[i]);
    }
  }
  if (has_images || is_training || listed.classes.empty()) return;
  report.add_problem(
      fmt::format("{}: no images in the class folders; expected {}/CLASS/IMAGE", folder, folder));
}

/// Opens the images of a part, folder by folder in the order of their labels. `samples` has the
/// classes; the labels are added to it.
std::shared_ptr<const DataSource> open_folders(const std::string& root, const ListedPart& listed,
                                               const LabelledFolders& folders,
                                               ImageSource::Samples samples,
                                               const DataRequirements& requirements,
                                               std::int64_t cache_bytes) {
  Fingerprint hash;
  hash.add(fmt::format("image_folder v1 {}x{}x{}", requirements.input.h, requirements.input.w,
                       requirements.input.c));
  std::vector<std::string> files;
  for (const auto& [label, place] : folders) {
    const std::string folder = listed.part + "/" + listed.classes[place];
    for (const ListedImage& image : listed.images[place]) {
      files.push_back(folder + "/" + image.name);
      hash.add(files.back());
      hash.add(std::to_string(image.bytes));
      samples.labels.push_back(label);
    }
  }
  check_image_count(root, files.size());
  return std::make_shared<ImageFolderSource>(root, std::move(files), std::move(samples),
                                             requirements, cache_bytes, hash.text());
}

DataSets open_image_folder(const Variant& variant, const DataRequirements& requirements) {
  const auto& options = variant.as<ImageFolderOptions>();
  const std::string& root = options.root;
  check_image_root(root, requirements);
  if (requirements.wants(DataPart::train)) check_train_folder(root);
  const PartFolders parts(options);
  FolderReport report("image_folder: " + root, requirements.leaves_out_files);
  std::map<DataPart, ListedPart> listed;
  for (const DataPart part : {DataPart::train, DataPart::val, DataPart::test}) {
    if (parts.of(part).empty() || !requirements.wants(part)) continue;
    listed[part] = list_part(root, parts.of(part), report);
    check_images(root, listed[part], part == DataPart::train, report);
  }
  if (requirements.wants(DataPart::train) && listed[DataPart::train].classes.empty()) {
    report.check();
  }
  ClassTable table({}, fmt::format("{}/train", root), requirements);
  std::map<DataPart, LabelledFolders> folders;
  for (const auto& [part, each] : listed) {
    folders[part] = label_folders(root, each, part == DataPart::train, table, report);
  }
  // Report problems before comparing the number of classes: an empty folder may be the cause.
  report.check();
  if (table.is_from_samples()) {
    check_classes(fmt::format("image_folder: {}/train ({})", root, some_of(table.names())),
                  table.names().size(), requirements);
  }
  const auto open = [&](DataPart part) -> std::shared_ptr<const DataSource> {
    if (!listed.contains(part)) return nullptr;
    ImageSource::Samples samples;
    samples.classes = table.names();
    return open_folders(root, listed[part], folders[part], std::move(samples), requirements,
                        options.cache_mib << 20);
  };
  DataSets sets{open(DataPart::train), open(DataPart::test), open(DataPart::val), {}};
  if (std::string note = note_of_other_folders(root, parts); !note.empty()) {
    sets.notes.push_back(std::move(note));
  }
  for (std::string& note : report.notes()) sets.notes.push_back(std::move(note));
  return sets;
}

/// Opens the images of a part for prediction. Its folders may have any names. The folders of the
/// checkpoint's classes come first, in the checkpoint's order, so that samples have the same
/// indices as in an evaluation.
std::shared_ptr<const DataSource> open_image_folder_unlabelled(const Variant& variant,
                                                               DataPart part,
                                                               const DataRequirements& requirements,
                                                               UnreadableSamples& unreadable) {
  const auto& options = variant.as<ImageFolderOptions>();
  const std::string& root = options.root;
  check_image_root(root, requirements);
  if (part == DataPart::train) check_train_folder(root);
  const std::string folder = PartFolders(options).of(part);
  if (folder.empty()) return nullptr;
  FolderReport report("image_folder: " + root, requirements.leaves_out_files);
  const ListedPart listed = list_part(root, folder, report);
  check_images(root, listed, false, report);
  report.check();
  for (const std::string& note : report.notes()) unreadable.add_note(note);
  const std::vector<std::string>& known = requirements.known_classes;
  LabelledFolders folders;
  auto next = static_cast<std::int32_t>(known.size());
  for (std::size_t i = 0; i < listed.classes.size(); ++i) {
    const auto found = std::find(known.begin(), known.end(), listed.classes[i]);
    folders[found == known.end() ? next++ : static_cast<std::int32_t>(found - known.begin())] = i;
  }
  return open_folders(root, listed, folders, {}, requirements, 0);
}

}  // namespace

DatasetKind image_folder_dataset() {
  static const ObjectTable table = object_table<ImageFolderOptions>(
      "image_folder",
      "Images (JPEG, PNG, WebP, BMP, GIF, TIFF, PNM) in one folder per class, or in folders below "
      "it; resized to the model's input (bilinear, antialiased) and converted to its channels "
      "(grey or RGB). Links are followed. Other files are left out, with a note that counts them.",
      {path_field("root", &ImageFolderOptions::root,
                  "Folder with train/CLASS/*.jpg and, if present, val/CLASS/* for validation and "
                  "test/CLASS/* for testing.")
           .required(),
       field("val", &ImageFolderOptions::val,
             "Name of the validation set's folder. auto: val, valid or validation, whichever "
             "exists and is not the test set. none: no validation set; the folder val is then the "
             "test set if there is no folder test, as in releases without this field.")
           .stored_as(std::string(kNone)),
       field("test", &ImageFolderOptions::test,
             "Name of the test set's folder; empty: test, if it exists."),
       field("cache_mib", &ImageFolderOptions::cache_mib,
             "Decoded images are kept in memory if the whole set fits in this many MiB.")
           .range(0, 1048576)
           .changeable()});
  DatasetKind kind = {&table, open_image_folder, open_image_folder_unlabelled, true};
  kind.declares = [](const Variant& variant) {
    DeclaredSamples declared{true, TargetKind::class_index, false, DType::u8};
    const std::string& val = variant.as<ImageFolderOptions>().val;
    declared.validation = val == kNone ? std::optional(false) : std::nullopt;
    if (val != kNone && val != kAuto) declared.validation = true;
    return declared;
  };
  kind.outputs = [](const Variant& variant) -> std::optional<std::int64_t> {
    const std::string& root = variant.as<ImageFolderOptions>().root;
    check_folder_of_images(root);
    check_train_folder(root);
    return static_cast<std::int64_t>(class_folders(root, "train").size());
  };
  return kind;
}

}  // namespace dpt
