// Data sets of CSV files: rows of features, or images whose paths are in a column.
#include <sys/stat.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <set>
#include <system_error>

#include <fmt/ranges.h>

#include "datasets/csv_table.h"
#include "datasets/dataset.h"
#include "datasets/fingerprint.h"
#include "datasets/image_file.h"
#include "datasets/kinds.h"
#include "datasets/parallel_parts.h"
#include "datasets/requirements.h"
#include "datasets/shared_files.h"
#include "datasets/split_files.h"
#include "engine/data/data_sets.h"
#include "kernels/base/error.h"
#include "kernels/base/text.h"

namespace dpt {
namespace {

void add_targets_to(Fingerprint& hash, const CsvTable& table) {
  const ImageSource::Samples& samples = table.samples;
  hash.add(fmt::format("{} {}", static_cast<int>(samples.targets.kind), samples.targets.values));
  if (table.by_name) {
    for (const std::string& name : samples.classes) hash.add(name);
  }
  hash.add(samples.labels.data(), samples.labels.size() * sizeof(std::int32_t));
  hash.add(samples.rows.data(), samples.rows.size() * sizeof(float));
}

/// Rows of features.
class CsvFeatureSource final : public DataSource {
 public:
  CsvFeatureSource(std::string path, CsvTable table)
      : path_(std::move(path)), table_(std::move(table)) {
    Fingerprint hash;
    hash.add(fmt::format("csv features v1 {}", shape().c));
    hash.add(table_.features.data(), table_.features.size() * sizeof(float));
    add_targets_to(hash, table_);
    fingerprint_ = hash.text();
  }

  std::int64_t size() const override { return static_cast<std::int64_t>(table_.lines.size()); }
  SampleShape shape() const override {
    return {1, 1, static_cast<std::int64_t>(table_.feature_names.size())};
  }
  DType type() const override { return DType::f32; }
  const std::vector<std::string>& classes() const override { return table_.samples.classes; }
  TargetShape targets() const override { return table_.samples.targets; }
  const std::vector<std::string>& features() const override { return table_.feature_names; }
  void read(std::int64_t index, std::span<std::byte> pixels, std::int32_t& label) const override {
    assert(0 <= index && index < size());
    const auto i = static_cast<std::size_t>(index), n = table_.feature_names.size();
    std::memcpy(pixels.data(), table_.features.data() + i * n, n * sizeof(float));
    label = table_.samples.labels[i];
  }
  std::span<const std::int64_t> groups() const override { return table_.samples.groups; }
  std::optional<ResidentSamples> resident() const override {
    return ResidentSamples{std::as_bytes(std::span(table_.features)), table_.samples.labels,
                           table_.samples.rows};
  }
  std::string describe(std::int64_t index) const override {
    return fmt::format("{}, line {}", path_, table_.lines[index]);
  }
  std::string fingerprint() const override { return fingerprint_; }

 private:
  std::string path_;
  CsvTable table_;
  std::string fingerprint_;
};

/// Images whose paths are in a column.
class CsvImageSource final : public ImageSource {
 public:
  CsvImageSource(const std::string& path, std::string root, std::vector<std::string> images,
                 Samples samples, const DataRequirements& requirements, std::int64_t cache_bytes,
                 std::string fingerprint)
      : ImageSource(path, std::move(samples), requirements, cache_bytes, std::move(fingerprint)),
        root_(std::move(root)),
        images_(std::move(images)) {}

  std::string describe(std::int64_t index) const override {
    return (std::filesystem::path(root_) / images_[index]).string();
  }

 protected:
  std::vector<std::byte> read_file(std::int64_t index) const override {
    return read_image_file(describe(index));
  }

 private:
  std::string root_;
  std::vector<std::string> images_;
};

/// Throws an error that lists missing images, with their lines in the table. `can_skip` is true if
/// data.on_bad_sample: skip can leave them out, which requires samples with class labels.
[[noreturn]] void refuse_missing(const std::string& path,
                                 const std::map<std::size_t, std::string>& missing, bool can_skip) {
  constexpr std::size_t kMaxListed = 10;
  std::vector<std::string> lines;
  for (const auto& [index, text] : missing) {
    if (lines.size() == kMaxListed) break;
    lines.push_back(text);
  }
  if (missing.size() > lines.size()) {
    lines.push_back(fmt::format("and {} more", missing.size() - lines.size()));
  }
  const bool is_one = missing.size() == 1;
  const std::string them = is_one ? "it" : "them";
  fail(ErrorKind::data,
       "{}: {} (paths are relative to the folder of the CSV file, or to data.root): restore {}, "
       "or {}{}{}",
       path, is_one ? lines[0] : fmt::format("{} images are missing", missing.size()), them,
       can_skip ? fmt::format("leave {} out with data.on_bad_sample: skip", them)
       : is_one ? std::string("remove its line")
                : std::string("remove their lines"),
       is_one ? "" : "\n  ", is_one ? "" : fmt::format("{}", fmt::join(lines, "\n  ")));
}

/// Returns the sizes of the images' files. A missing file is an error or, if `leaves_out` is true,
/// has the size 0 and is reported when it is read.
std::vector<std::uint64_t> sizes_of_images(const std::string& path, const std::string& root,
                                           const CsvTable& table, bool leaves_out) {
  constexpr std::size_t kAtOnce = 1024;
  const std::size_t n = table.images.size();
  std::vector<std::uint64_t> sizes(n);
  std::mutex mutex;
  std::map<std::size_t, std::string> missing;
  for_each_part((n + kAtOnce - 1) / kAtOnce, "lister of " + path, [&](std::size_t part) {
    for (std::size_t i = part * kAtOnce; i < std::min((part + 1) * kAtOnce, n); ++i) {
      const std::string image = (std::filesystem::path(root) / table.images[i]).string();
      struct stat status = {};
      const int error = stat(image.c_str(), &status) == 0 ? 0 : errno;
      if (error == 0 && S_ISREG(status.st_mode)) {
        sizes[i] = static_cast<std::uint64_t>(status.st_size);
        continue;
      }
      const std::lock_guard lock(mutex);
      missing[i] = fmt::format("line {}: {}: {}", table.lines[i], image,
                               error != 0 ? std::generic_category().message(error) : "not a file");
    }
  });
  if (!missing.empty() && !leaves_out)
    refuse_missing(path, missing, table.samples.targets.floats() == 0);
  return sizes;
}

/// Returns the folder to which the paths of images are relative.
std::string folder_of_images(const std::string& path, const CsvOptions& options) {
  return options.root.empty() ? std::filesystem::path(path).parent_path().string() : options.root;
}

std::shared_ptr<const DataSource> make_source(const std::string& path, const CsvOptions& options,
                                              CsvTable table,
                                              const DataRequirements& requirements) {
  if (options.path.empty()) return std::make_shared<CsvFeatureSource>(path, std::move(table));
  const std::string root = folder_of_images(path, options);
  Fingerprint hash;
  hash.add(fmt::format("csv pictures v1 {}x{}x{}", requirements.input.h, requirements.input.w,
                       requirements.input.c));
  const std::vector<std::uint64_t> sizes =
      sizes_of_images(path, root, table, requirements.leaves_out_files);
  for (std::size_t i = 0; i < table.images.size(); ++i) {
    hash.add(table.images[i]);
    hash.add(std::to_string(sizes[i]));
  }
  add_targets_to(hash, table);
  return std::make_shared<CsvImageSource>(path, root, std::move(table.images),
                                          std::move(table.samples), requirements,
                                          options.cache_mib << 20, hash.text());
}

DataSets open_csv(const Variant& variant, const DataRequirements& requirements) {
  const auto& options = variant.as<CsvOptions>();
  if (!options.path.empty()) {
    check_image_channels("csv: " + options.train.file, requirements);
    if (!options.root.empty()) check_root("csv", options.root, "the images", "");
  }
  check_no_shared_files({{"data.train.file", {options.train.file}},
                         {"data.val.file", {options.val ? options.val->file : ""}},
                         {"data.test.file", {options.test ? options.test->file : ""}}});
  // If the targets are in several columns, `options.classes` names outputs, not classes.
  const bool has_classes = !options.label.empty();
  ClassTable classes(has_classes ? options.classes : std::vector<std::string>(), options.train.file,
                     requirements);
  CsvTable train;
  train.feature_names = requirements.features;
  if (requirements.wants(DataPart::train)) {
    train = read_csv_table(options.train.file, options, nullptr, classes, requirements);
  } else {
    classes.close(ClassOrder::numbers_first, {});
  }
  DataSets sets;
  const auto open = [&](DataPart part, const std::optional<CsvFile>& file) {
    if (!file || !requirements.wants(part)) return std::shared_ptr<const DataSource>();
    return make_source(file->file, options,
                       read_csv_table(file->file, options, &train, classes, requirements),
                       requirements);
  };
  sets.val = open(DataPart::val, options.val);
  sets.test = open(DataPart::test, options.test);
  if (requirements.wants(DataPart::train)) {
    sets.train = make_source(options.train.file, options, std::move(train), requirements);
  }
  return sets;
}

std::shared_ptr<const DataSource> open_csv_unlabelled(const Variant& variant, DataPart part,
                                                      const DataRequirements& requirements,
                                                      UnreadableSamples& unreadable) {
  const auto& options = variant.as<CsvOptions>();
  const CsvFile* file = files_of(options, part);
  if (!file) return nullptr;
  const std::string& path = file->file;
  const bool images = !options.path.empty();
  if (images) {
    check_image_channels("csv: " + path, requirements);
    if (!options.root.empty()) check_root("csv", options.root, "the images", "");
  }
  // Use the run's order of the columns: this file may have another.
  const bool of_run = !requirements.features.empty();
  const std::vector<std::string>& features = of_run ? requirements.features : options.features;
  if (!images && features.empty()) {
    fail(ErrorKind::data,
         "{}: cannot tell which columns are the model's inputs, because the checkpoint does not "
         "record their names (the run used other data, or an older dpt): list them in the model's "
         "order, e.g. data.features=[width,length]",
         path);
  }
  CsvTable table = read_csv_samples(path, options, features,
                                    of_run ? "the checkpoint" : "data.features", unreadable);
  if (!images) {
    check_shape(path, {1, 1, static_cast<std::int64_t>(features.size())}, requirements);
    return std::make_shared<CsvFeatureSource>(path, std::move(table));
  }
  // A missing image is reported when it is read; its line keeps its index.
  Fingerprint hash;
  for (const std::string& image : table.images) hash.add(image);
  return std::make_shared<CsvImageSource>(path, folder_of_images(path, options),
                                          std::move(table.images), std::move(table.samples),
                                          requirements, 0, hash.text());
}

/// Checks the fields that locate the labels. Returns the problem, or an empty string.
std::string check_csv_labels(const CsvOptions& options) {
  if (!options.label.empty() || !options.targets.empty()) return {};
  return "expected label (the column of the classes) or targets (columns of numbers), found "
         "neither";
}

/// Returns true if the text is one ASCII character that neither ends nor quotes a field.
bool is_separator(const std::string& text) {
  return text.size() == 1 && text.find_first_of("\"\r\n") != 0 && text[0] > 0;
}

/// Checks label_separator. Returns the problem, or an empty string.
std::string problem_of_separator(const CsvOptions& options) {
  const std::string& separator = options.label_separator;
  if (separator.empty()) return {};
  if (!is_separator(separator)) {
    return fmt::format("label_separator: expected one character such as '|' or ';', found '{}'",
                       separator);
  }
  if (options.label.empty()) {
    return "label_separator: expected label (the column with the labels of each sample) too, found "
           "none";
  }
  if (target_kind_of(options) != TargetKind::multi_hot) {
    return fmt::format("target: expected multi_hot with label_separator, found {}",
                       name_of(options.target));
  }
  return {};
}

/// Checks the combination of fields. Returns the problem, or an empty string.
std::string check_csv(const CsvOptions& options) {
  if (!options.path.empty() && !options.features.empty()) {
    return "path and features: expected one of them, found both: samples are images or features";
  }
  if (!options.root.empty() && options.path.empty()) {
    return "root: expected path (the column with the paths of images) too, found none";
  }
  if (!options.label.empty() && !options.targets.empty()) {
    return "expected label (the column of the classes) or targets (columns of numbers), found both";
  }
  if (std::string problem = problem_of_separator(options); !problem.empty()) return problem;
  const bool is_labels = target_kind_of(options) == TargetKind::class_index;
  if (is_labels && !options.targets.empty()) {
    return fmt::format("target: expected soft_labels, multi_hot or values with targets, found {}",
                       name_of(options.target));
  }
  if (!is_labels && !options.label.empty() && options.label_separator.empty()) {
    return fmt::format(
        "target: expected labels with label, found {}: name the columns in targets{}",
        name_of(options.target),
        options.target == CsvTarget::multi_hot
            ? ", or say in label_separator what separates the labels of a sample in that column"
            : "");
  }
  if (!options.targets.empty() && !options.classes.empty() &&
      options.classes.size() != options.targets.size()) {
    return fmt::format("classes: expected {}, one for each target, found {}",
                       counted(options.targets.size(), "name"), options.classes.size());
  }
  if (!is_separator(options.delimiter)) {
    return fmt::format("delimiter: expected one character such as ',' or ';', found '{}'",
                       options.delimiter);
  }
  std::set<std::string> used;
  for (const std::string& name : {options.path, options.label}) {
    if (!name.empty() && !used.insert(name).second) {
      return fmt::format("expected different columns, found '{}' twice", name);
    }
  }
  for (const auto* names : {&options.features, &options.targets}) {
    for (const std::string& name : *names) {
      if (used.insert(name).second) continue;
      return fmt::format("expected different columns, found '{}' twice", name);
    }
  }
  return problem_of_classes(options.classes);
}

const ObjectTable& csv_file_table() {
  static const ObjectTable table = object_table<CsvFile>(
      "csv file", "A table of samples.",
      {path_field("file", &CsvFile::file, "CSV file with a header; UTF-8, quoted as in RFC 4180.")
           .required()});
  return table;
}

ObjectTable with_labels_checked(ObjectTable table) {
  table.check_labels = [](const void* options) {
    return check_csv_labels(*static_cast<const CsvOptions*>(options));
  };
  return table;
}

}  // namespace

DatasetKind csv_dataset() {
  static const ObjectTable table = with_labels_checked(object_table<CsvOptions>(
      "csv",
      "CSV files with a line for each sample. A line has the sample's label or targets, and either "
      "its features, which are read into memory, or the path of its image, which is read as in "
      "image_folder.",
      {train_files_field(&CsvOptions::train, csv_file_table()),
       val_files_field(&CsvOptions::val, csv_file_table()),
       test_files_field(&CsvOptions::test, csv_file_table()),
       field("path", &CsvOptions::path,
             "Name of the column with the paths of image files; empty: samples are features."),
       path_field("root", &CsvOptions::root,
                  "Folder that the paths are relative to; empty: that of the CSV file."),
       field("features", &CsvOptions::features,
             "Names of the columns of features (numbers), which form the model's input, [F, 1, 1]; "
             "by default all except those of label and targets."),
       field("label", &CsvOptions::label, "Name of the column with the class."),
       field("label_type", &CsvOptions::label_type,
             "Content of the label column. name: the name of the class; the classes are those of "
             "the training file, sorted (numbers by value), or those of the field classes. number: "
             "the number of the class, from 0."),
       field("label_separator", &CsvOptions::label_separator,
             "Separator of the labels of a sample in the label column: one character, e.g. '|' in "
             "cat|dog. A sample then has any number of labels (an empty field: none), and targets "
             "are multi_hot, with an output for each label. Empty: one label for each sample."),
       field("targets", &CsvOptions::targets,
             "Names of the columns that hold the targets: numbers, one for each output of the "
             "model (see target)."),
       field("target", &CsvOptions::target,
             "Kind of targets. labels: the class (see label). soft_labels: a probability for each "
             "class; they add up to 1. multi_hot: a number from 0 to 1 for each output, which says "
             "whether it applies. values: a number for each output. auto: labels, or multi_hot "
             "with label_separator; not allowed with targets."),
       field("classes", &CsvOptions::classes,
             "Names of the classes, from class 0 on, or of the outputs. By default, the classes of "
             "the training file, or the names of the columns in targets."),
       field("delimiter", &CsvOptions::delimiter, "Field separator: one character."),
       field("cache_mib", &CsvOptions::cache_mib,
             "Decoded images are kept in memory if the whole set fits in this many MiB.")
           .range(0, 1048576)
           .changeable()},
      check_csv));
  DatasetKind kind = {&table, open_csv, open_csv_unlabelled, true};
  kind.any_targets = true;
  kind.any_type = true;
  kind.lists_only = true;
  kind.declares = [](const Variant& variant) {
    const auto& options = variant.as<CsvOptions>();
    const bool images = !options.path.empty();
    return DeclaredSamples{images,
                           target_kind_of(options),
                           false,
                           images ? DType::u8 : DType::f32,
                           options.val.has_value(),
                           options.label_separator.empty() ? '\0' : options.label_separator[0]};
  };
  kind.outputs = [](const Variant& variant) { return outputs_of_csv(variant.as<CsvOptions>()); };
  return kind;
}

}  // namespace dpt
