// Tables in CSV files: columns of features, or the paths of pictures, with a column of class labels
// or columns of targets.
#include <algorithm>
#include <array>
#include <cassert>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <system_error>

#include "datasets/csv_reader.h"
#include "datasets/fingerprint.h"
#include "datasets/image.h"
#include "datasets/kinds.h"
#include "datasets/picture_source.h"
#include "datasets/requirements.h"
#include "kernels/error.h"

namespace dpt {
namespace {

/// What the columns of targets are.
enum class CsvTarget : std::uint8_t { from_columns, labels, soft_labels, multi_hot, values };
constexpr auto enum_names(CsvTarget) {
  return std::to_array<EnumName<CsvTarget>>({{CsvTarget::from_columns, "auto"},
                                             {CsvTarget::labels, "labels"},
                                             {CsvTarget::soft_labels, "soft_labels"},
                                             {CsvTarget::multi_hot, "multi_hot"},
                                             {CsvTarget::values, "values"}});
}

/// What stands in the column of labels.
enum class CsvLabel : std::uint8_t { name, number };
constexpr auto enum_names(CsvLabel) {
  return std::to_array<EnumName<CsvLabel>>(
      {{CsvLabel::name, "name"}, {CsvLabel::number, "number"}});
}

struct CsvFile {
  std::string file;
};

struct CsvOptions {
  CsvFile train;
  std::optional<CsvFile> test;
  std::string path;
  std::string root;
  std::vector<std::string> features;
  std::string label;
  CsvLabel label_type = CsvLabel::name;
  std::vector<std::string> targets;
  CsvTarget target = CsvTarget::from_columns;
  std::vector<std::string> classes;
  std::string delimiter = ",";
  std::int64_t cache_mib = 1024;
};

TargetKind target_kind_of(const CsvOptions& options) {
  switch (options.target) {
    case CsvTarget::soft_labels:
      return TargetKind::soft_labels;
    case CsvTarget::multi_hot:
      return TargetKind::multi_hot;
    case CsvTarget::values:
      return TargetKind::values;
    case CsvTarget::from_columns:
    case CsvTarget::labels:
      break;
  }
  return TargetKind::class_index;
}

/// The columns that are used, and the lines of the file.
struct CsvColumns {
  std::optional<std::size_t> path, label;
  std::vector<std::size_t> features, targets;
};

/// What was read from one file.
struct CsvTable {
  std::vector<std::string> feature_names;
  std::vector<float> features;  ///< of all lines, one after another
  std::vector<std::string> pictures;
  PictureSource::Samples samples;
  std::vector<std::int64_t> lines;  ///< the number of each sample's line
  bool by_name = false;             ///< classes
};

// ---- Fields ------------------------------------------------------------------------------------

/// Without the spaces and tabs around it.
std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") + 1 - begin);
}

/// A field as messages show it.
std::string shown(std::string_view text) {
  constexpr std::size_t kMost = 40;
  if (text.empty()) return "an empty field";
  return fmt::format("'{}{}'", text.substr(0, kMost), text.size() > kMost ? "..." : "");
}

[[noreturn]] void refuse_field(const CsvReader& reader, std::size_t column,
                               const std::string& expected) {
  const std::string_view text = trimmed(reader.field(column));
  const bool is_missing = text.empty() || text == "NA" || text == "N/A" || text == "NaN" ||
                          text == "nan" || text == "null" || text == "NULL" || text == "None";
  fail(ErrorKind::data, "{}: expected {}, found {}{}", reader.place(column), expected, shown(text),
       is_missing ? " (missing values are not filled in: write one, or remove the line)" : "");
}

/// A number with a decimal point, whatever the locale.
float number_in(const CsvReader& reader, std::size_t column) {
  std::string_view text = trimmed(reader.field(column));
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc::invalid_argument || at != end) {
    refuse_field(reader, column, "a number");
  }
  constexpr auto kMost = static_cast<double>(std::numeric_limits<float>::max());
  if (error != std::errc{} || !std::isfinite(value) || std::abs(value) > kMost) {
    refuse_field(reader, column, "a finite number in the range of fp32");
  }
  return static_cast<float>(value);
}

// ---- Labels ------------------------------------------------------------------------------------

/// Numbers in their order, then other names byte by byte.
bool is_class_before(const std::string& a, const std::string& b) {
  const auto number = [](const std::string& text) -> std::optional<std::uint64_t> {
    std::uint64_t value = 0;
    const char* end = text.data() + text.size();
    const auto [at, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc{} || at != end) return std::nullopt;
    return value;
  };
  const std::optional<std::uint64_t> x = number(a), y = number(b);
  if (x.has_value() != y.has_value()) return x.has_value();
  return x == y ? a < b : x < y || (!x && a < b);
}

/// Collects the labels of a file.
class LabelReader {
 public:
  /// `known`: the class table, if there is one already; `known_from` says where it is from.
  LabelReader(CsvLabel type, const std::vector<std::string>& known, std::string known_from)
      : type_(type), known_(known), known_from_(std::move(known_from)) {
    for (const std::string& name : known) {
      numbers_.emplace(name, static_cast<std::int32_t>(numbers_.size()));
    }
  }

  void add(const CsvReader& reader, std::size_t column) {
    const std::string_view text = trimmed(reader.field(column));
    if (text.empty()) {
      refuse_field(reader, column, type_ == CsvLabel::name ? "the name of a class" : "a label");
    }
    labels_.push_back(type_ == CsvLabel::name ? label_of_name(reader, column, text)
                                              : label_of_number(reader, column, text));
  }

  /// The labels, and the class table in `classes`.
  std::vector<std::int32_t> finish(const DataRequirements& requirements,
                                   std::vector<std::string>& classes) {
    classes = known_;
    if (!classes.empty()) return std::move(labels_);
    if (type_ == CsvLabel::number) {
      const std::int64_t found = std::int64_t{largest_} + 1;
      classes = numbered_classes(requirements.classes > 0 ? requirements.classes : found);
      return std::move(labels_);
    }
    for (const auto& [name, number] : numbers_) classes.push_back(name);
    std::sort(classes.begin(), classes.end(), is_class_before);
    std::vector<std::int32_t> final_labels(classes.size());
    for (std::size_t i = 0; i < classes.size(); ++i) {
      final_labels[static_cast<std::size_t>(numbers_.find(classes[i])->second)] =
          static_cast<std::int32_t>(i);
    }
    for (std::int32_t& label : labels_) label = final_labels[static_cast<std::size_t>(label)];
    return std::move(labels_);
  }

 private:
  std::int32_t label_of_name(const CsvReader& reader, std::size_t column, std::string_view text) {
    const auto found = numbers_.find(text);
    if (found != numbers_.end()) return found->second;
    if (!known_.empty()) {
      fail(ErrorKind::data, "{}: the class {}, which {} does not have", reader.place(column),
           shown(text), known_from_);
    }
    const auto next = static_cast<std::int32_t>(numbers_.size());
    if (next >= kMostClasses) {
      fail(ErrorKind::data, "{}: more than {} classes: is it the column of the labels?",
           reader.place(column), kMostClasses);
    }
    numbers_.emplace(text, next);
    return next;
  }

  std::int32_t label_of_number(const CsvReader& reader, std::size_t column, std::string_view text) {
    std::int64_t value = 0;
    const char* end = text.data() + text.size();
    const auto [at, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc{} || at != end) {
      refuse_field(reader, column, "the number of a class (label_type: number)");
    }
    check_label(value, known_.empty() ? kMostClasses : known_.size(), reader.place(column));
    largest_ = std::max(largest_, static_cast<std::int32_t>(value));
    return static_cast<std::int32_t>(value);
  }

  static constexpr std::int32_t kMostClasses = 1'000'000;

  CsvLabel type_;
  const std::vector<std::string>& known_;
  std::string known_from_;
  std::map<std::string, std::int32_t, std::less<>> numbers_;
  std::vector<std::int32_t> labels_;
  std::int32_t largest_ = 0;
};

// ---- Targets -----------------------------------------------------------------------------------

/// Adds the targets of the line that was read last.
void add_targets(const CsvReader& reader, const std::vector<std::size_t>& columns,
                 PictureSource::Samples& samples) {
  const TargetKind kind = samples.targets.kind;
  const std::size_t begin = samples.rows.size();
  double sum = 0;
  for (const std::size_t column : columns) {
    const float value = number_in(reader, column);
    if (kind != TargetKind::values && value < 0) {
      refuse_field(reader, column,
                   kind == TargetKind::multi_hot ? "a target from 0 to 1" : "a probability");
    }
    if (kind == TargetKind::multi_hot && value > 1) {
      refuse_field(reader, column, "a target from 0 to 1");
    }
    sum += static_cast<double>(value);
    samples.rows.push_back(value);
  }
  if (kind != TargetKind::soft_labels) {
    samples.labels.push_back(0);
    return;
  }
  constexpr double kTolerance = 1e-3;
  if (std::abs(sum - 1) > kTolerance) {
    fail(ErrorKind::data,
         "{}, line {}: expected probabilities that add up to 1 (within {:g}), found a sum of {:g}",
         reader.path(), reader.line(), kTolerance, sum);
  }
  const auto row = samples.rows.begin() + static_cast<std::ptrdiff_t>(begin);
  samples.labels.push_back(
      static_cast<std::int32_t>(std::max_element(row, samples.rows.end()) - row));
}

// ---- The files ---------------------------------------------------------------------------------

CsvColumns choose_columns(const CsvReader& reader, const CsvOptions& options,
                          const CsvTable* train) {
  CsvColumns columns;
  if (!options.path.empty()) columns.path = reader.column(options.path, "data.path");
  if (!options.label.empty()) columns.label = reader.column(options.label, "data.label");
  for (const std::string& name : options.targets) {
    columns.targets.push_back(reader.column(name, "data.targets"));
  }
  if (columns.path) return columns;
  const bool by_name = !options.features.empty();
  const std::string asked_by = by_name ? "data.features" : options.train.file;
  for (const std::string& name : by_name ? options.features
                                 : train ? train->feature_names
                                         : std::vector<std::string>()) {
    columns.features.push_back(reader.column(name, asked_by));
  }
  if (by_name) return columns;
  const auto is_used = [&](std::size_t column) {
    const auto& targets = columns.targets;
    const auto& features = columns.features;
    return column == columns.label ||
           std::find(targets.begin(), targets.end(), column) != targets.end() ||
           std::find(features.begin(), features.end(), column) != features.end();
  };
  std::vector<std::size_t> others;
  for (std::size_t i = 0; i < reader.header().size(); ++i) {
    if (is_used(i)) continue;
    if (train) {
      fail(ErrorKind::data,
           "{}: a column '{}', which {} does not have: remove it, or name the features in "
           "data.features",
           reader.path(), reader.header()[i], options.train.file);
    }
    if (reader.header()[i].empty()) {
      fail(ErrorKind::data,
           "{}: expected a name for every column, found none for column {} (pandas writes its "
           "index so: to_csv(index=False) leaves it out), or name the features in data.features",
           reader.path(), i + 1);
    }
    others.push_back(i);
  }
  if (train) return columns;
  if (others.empty()) {
    fail(ErrorKind::data,
         "{}: expected columns of features besides those of the targets, found none",
         reader.path());
  }
  columns.features = std::move(others);
  return columns;
}

/// Makes room for all features by the lines read so far.
void reserve_features(const CsvReader& reader, CsvTable& table) {
  constexpr std::size_t kAfter = 1000;
  if (table.lines.size() != kAfter || reader.position() == 0) return;
  const double times = 1.05 * static_cast<double>(reader.bytes()) /
                       static_cast<double>(std::max<std::uint64_t>(reader.position(), 1));
  table.features.reserve(
      static_cast<std::size_t>(static_cast<double>(table.features.size()) * times));
}

/// Reads a file; `train` is what was read of the training file before.
CsvTable read_table(const std::string& path, const CsvOptions& options, const CsvTable* train,
                    const DataRequirements& requirements) {
  CsvReader reader(path, options.delimiter.front());
  const CsvColumns columns = choose_columns(reader, options, train);
  CsvTable table;
  for (const std::size_t column : columns.features) {
    table.feature_names.push_back(reader.header()[column]);
  }
  if (!columns.path) {
    check_shape(path, {1, 1, static_cast<std::int64_t>(columns.features.size())}, requirements);
  }
  PictureSource::Samples& samples = table.samples;
  samples.targets.kind = target_kind_of(options);
  table.by_name = columns.label && options.label_type == CsvLabel::name;
  samples.targets.values = static_cast<std::int64_t>(columns.targets.size());
  const std::vector<std::string>& known = train ? train->samples.classes : options.classes;
  LabelReader labels(options.label_type, known,
                     options.classes.empty() ? options.train.file : "data.classes");
  while (reader.next()) {
    table.lines.push_back(reader.line());
    check_picture_count(path, table.lines.size());
    for (const std::size_t column : columns.features) {
      table.features.push_back(number_in(reader, column));
    }
    reserve_features(reader, table);
    if (columns.path) {
      if (reader.field(*columns.path).empty()) {
        refuse_field(reader, *columns.path, "the path of a picture");
      }
      table.pictures.emplace_back(reader.field(*columns.path));
    }
    if (columns.label) {
      labels.add(reader, *columns.label);
    } else {
      add_targets(reader, columns.targets, samples);
    }
  }
  if (table.lines.empty()) {
    fail(ErrorKind::data, "{}: expected a line for each sample after the header, found none", path);
  }
  if (columns.label) {
    samples.labels = labels.finish(requirements, samples.classes);
    if (options.label_type == CsvLabel::number) {
      // Against the model's outputs, where the table follows from them.
      for (std::size_t i = 0; i < samples.labels.size(); ++i) {
        if (static_cast<std::size_t>(samples.labels[i]) < samples.classes.size()) continue;
        check_label(samples.labels[i], samples.classes.size(),
                    reader.place(table.lines[i], *columns.label));
      }
    }
    check_classes(options.classes.empty() ? fmt::format("{}, column {}", path, options.label)
                                          : "data.classes",
                  samples.classes.size(), requirements);
    return table;
  }
  samples.classes = options.classes.empty() ? options.targets : options.classes;
  const auto width = static_cast<std::int64_t>(columns.targets.size());
  if (requirements.classes > 0 && width != requirements.classes) {
    fail(ErrorKind::data,
         "{}: data.targets names {} column{}, but the model's last layer has {} outputs: give it "
         "{}",
         path, width, width == 1 ? "" : "s", requirements.classes, width);
  }
  return table;
}

void add_targets_to(Fingerprint& hash, const CsvTable& table) {
  const PictureSource::Samples& samples = table.samples;
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
  void read(std::int64_t index, std::span<std::byte> pixels, std::int32_t& label) const override {
    assert(0 <= index && index < size());
    const auto i = static_cast<std::size_t>(index), n = table_.feature_names.size();
    std::memcpy(pixels.data(), table_.features.data() + i * n, n * sizeof(float));
    label = table_.samples.labels[i];
  }
  std::optional<ResidentSamples> resident() const override {
    return ResidentSamples{std::as_bytes(std::span(table_.features)), table_.samples.labels,
                           table_.samples.rows};
  }
  std::string describe(std::int64_t index) const override {
    return fmt::format("{}, line {}", path_, table_.lines[static_cast<std::size_t>(index)]);
  }
  std::string fingerprint() const override { return fingerprint_; }

 private:
  std::string path_;
  CsvTable table_;
  std::string fingerprint_;
};

/// Pictures that lie where a column says.
class CsvPictureSource final : public PictureSource {
 public:
  CsvPictureSource(const std::string& path, std::string root, std::vector<std::string> pictures,
                   Samples samples, const DataRequirements& requirements, std::int64_t cache_bytes,
                   std::string fingerprint)
      : PictureSource(path, std::move(samples), requirements, cache_bytes, std::move(fingerprint)),
        root_(std::move(root)),
        pictures_(std::move(pictures)) {}

  std::string describe(std::int64_t index) const override {
    return (std::filesystem::path(root_) / pictures_[static_cast<std::size_t>(index)]).string();
  }

 protected:
  std::vector<std::byte> read_file(std::int64_t index) const override {
    return read_image_file(describe(index));
  }

 private:
  std::string root_;
  std::vector<std::string> pictures_;
};

std::shared_ptr<const DataSource> make_source(const std::string& path, const CsvOptions& options,
                                              CsvTable table,
                                              const DataRequirements& requirements) {
  if (options.path.empty()) return std::make_shared<CsvFeatureSource>(path, std::move(table));
  namespace fs = std::filesystem;
  const std::string root =
      options.root.empty() ? fs::path(path).parent_path().string() : options.root;
  Fingerprint hash;
  hash.add(fmt::format("csv pictures v1 {}x{}x{}", requirements.input.h, requirements.input.w,
                       requirements.input.c));
  for (std::size_t i = 0; i < table.pictures.size(); ++i) {
    const fs::path picture = fs::path(root) / table.pictures[i];
    const auto refuse = [&](const std::string& problem) {
      fail(
          ErrorKind::data,
          "{}, line {}: {}: {} (paths are relative to the folder of the CSV file, or to data.root)",
          path, table.lines[i], picture.string(), problem);
    };
    std::error_code error;
    const fs::file_status status = fs::status(picture, error);
    if (error) refuse(error.message());
    if (!fs::is_regular_file(status)) refuse("not a file");
    const std::uintmax_t bytes = fs::file_size(picture, error);
    if (error) refuse(error.message());
    hash.add(table.pictures[i]);
    hash.add(std::to_string(bytes));
  }
  add_targets_to(hash, table);
  return std::make_shared<CsvPictureSource>(path, root, std::move(table.pictures),
                                            std::move(table.samples), requirements,
                                            options.cache_mib << 20, hash.text());
}

DataSets open_csv(const Variant& variant, const DataRequirements& requirements) {
  const auto& options = variant.as<CsvOptions>();
  if (!options.path.empty()) {
    check_picture_channels("csv: " + options.train.file, requirements);
    if (!options.root.empty()) check_root("csv", options.root, "the pictures", "");
  }
  CsvTable train = read_table(options.train.file, options, nullptr, requirements);
  std::optional<CsvTable> test;
  if (options.test) test = read_table(options.test->file, options, &train, requirements);
  DataSets sets;
  sets.train = make_source(options.train.file, options, std::move(train), requirements);
  if (test) sets.test = make_source(options.test->file, options, std::move(*test), requirements);
  return sets;
}

/// What is wrong with the fields as a whole.
std::string check_csv(const CsvOptions& options) {
  if (!options.path.empty() && !options.features.empty()) {
    return "path and features: expected one of them, found both: samples are pictures or features";
  }
  if (!options.root.empty() && options.path.empty()) {
    return "root: expected with path, the column with the paths of pictures";
  }
  if (options.label.empty() == options.targets.empty()) {
    return fmt::format(
        "expected label (the column of the classes) or targets (columns of numbers), found {}",
        options.label.empty() ? "neither" : "both");
  }
  const bool is_labels = target_kind_of(options) == TargetKind::class_index;
  if (is_labels && !options.targets.empty()) {
    return "target: expected soft_labels, multi_hot or values with targets";
  }
  if (!is_labels && !options.label.empty()) {
    return fmt::format("target: expected labels with label, found {}: name the columns in targets",
                       name_of(options.target));
  }
  if (!options.targets.empty() && !options.classes.empty() &&
      options.classes.size() != options.targets.size()) {
    return fmt::format("classes: expected a name for each of the {} targets, found {}",
                       options.targets.size(), options.classes.size());
  }
  if (options.delimiter.size() != 1 || options.delimiter.find_first_of("\"\r\n") == 0 ||
      options.delimiter[0] <= 0) {
    return fmt::format("delimiter: expected one character such as ',' or ';', found '{}'",
                       options.delimiter);
  }
  std::set<std::string> used, classes;
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
  for (const std::string& name : options.classes) {
    if (!classes.insert(name).second) {
      return fmt::format("classes: expected different names, found '{}' twice", name);
    }
  }
  return {};
}

const ObjectTable& csv_file_table() {
  static const ObjectTable table = object_table<CsvFile>(
      "csv file", "A table of samples.",
      {path_field("file", &CsvFile::file, "CSV file with a header; UTF-8, quoted as in RFC 4180.")
           .required()});
  return table;
}

}  // namespace

DatasetKind csv_kind() {
  static const ObjectTable table = object_table<CsvOptions>(
      "csv",
      "CSV files with a line for each sample: its features, which are read into memory, or the "
      "path "
      "of its picture, which is read as image_folder does; and its label or targets.",
      {object_field("train", &CsvOptions::train, csv_file_table(), "The training samples.")
           .required(),
       object_field("test", &CsvOptions::test, csv_file_table(),
                    "The test samples; none by default."),
       field(
           "path", &CsvOptions::path,
           "Name of the column with the paths of JPEG and PNG files; empty: samples are features."),
       path_field("root", &CsvOptions::root,
                  "Folder that the paths are relative to; empty: that of the CSV file."),
       field("features", &CsvOptions::features,
             "Names of the columns of features, numbers, which a model takes as input: [F, 1, 1]; "
             "by default all but those of label and targets."),
       field("label", &CsvOptions::label, "Name of the column with the class."),
       field("label_type", &CsvOptions::label_type,
             "What stands in that column. name: the name of the class; classes are those of the "
             "training file, sorted (numbers by value), or those of the field classes. number: "
             "that of the class, from 0."),
       field("targets", &CsvOptions::targets,
             "Names of the columns with numbers, one for each output of the model (see target)."),
       field("target", &CsvOptions::target,
             "What the targets are. labels: the class (see label). soft_labels: a probability of "
             "each class, adding up to 1. multi_hot: 0 to 1 for each output, whether it applies. "
             "values: a number for each output. auto: labels; with targets it must be named."),
       field("classes", &CsvOptions::classes,
             "Names of the classes in their order, or of the outputs; by default those of the "
             "training file, or of the columns."),
       field("delimiter", &CsvOptions::delimiter, "What separates fields: one character."),
       field("cache_mib", &CsvOptions::cache_mib,
             "Decoded images are kept in memory if the whole set fits in this many MiB.")
           .range(0, 1048576)
           .changeable()},
      check_csv);
  DatasetKind kind = {&table, open_csv, true};
  kind.any_targets = true;
  kind.any_type = true;
  return kind;
}

}  // namespace dpt
