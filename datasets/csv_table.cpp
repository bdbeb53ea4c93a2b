// Reads a CSV file: columns of features or image paths, and a column of class labels (one or
// several in a field) or columns of targets.
#include "datasets/csv_table.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <system_error>

#include "datasets/class_table.h"
#include "datasets/csv_reader.h"
#include "datasets/requirements.h"
#include "engine/data/data_sets.h"
#include "kernels/base/error.h"
#include "kernels/base/text.h"

namespace dpt {
namespace {

/// Indices of the columns that are used.
struct CsvColumns {
  std::optional<std::size_t> path, label, group;
  std::vector<std::size_t> features, targets;
};

// ---- Fields ------------------------------------------------------------------------------------

/// Returns the text without leading and trailing spaces and tabs.
std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") + 1 - begin);
}

/// Returns a field, shortened for messages.
std::string shown(std::string_view text) {
  constexpr std::size_t kMax = 40;
  if (text.empty()) return "an empty field";
  return fmt::format("'{}{}'", text.substr(0, kMax), text.size() > kMax ? "..." : "");
}

[[noreturn]] void refuse_field(const CsvReader& reader, std::size_t column,
                               const std::string& expected) {
  const std::string_view text = trimmed(reader.field(column));
  const bool is_missing = text.empty() || text == "NA" || text == "N/A" || text == "NaN" ||
                          text == "nan" || text == "null" || text == "NULL" || text == "None";
  const bool has_comma =
      text.find(',') != text.npos && text.find_first_not_of("0123456789.,+-eE") == text.npos;
  fail(ErrorKind::data, "{}: expected {}, found {}{}", reader.place(column), expected, shown(text),
       is_missing  ? " (missing values are not filled in: write a value, or remove the line)"
       : has_comma ? " (numbers cannot contain commas: save the table with decimal points, such as "
                     "3.5 for 3,5)"
                   : "");
}

/// Reads a number with a decimal point, independent of the locale.
float number_in(const CsvReader& reader, std::size_t column) {
  std::string_view text = trimmed(reader.field(column));
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc::invalid_argument || at != end) {
    refuse_field(reader, column, "a number");
  }
  // Accept a number that is too small for a double: it is 0 in fp32.
  const bool is_tiny = error == std::errc::result_out_of_range &&
                       std::abs(std::strtod(std::string(text).c_str(), nullptr)) < 1;
  if (is_tiny) return text[0] == '-' ? -0.0F : 0.0F;
  constexpr auto kMax = static_cast<double>(std::numeric_limits<float>::max());
  if (error != std::errc{} || !std::isfinite(value) || std::abs(value) > kMax) {
    refuse_field(reader, column, "a finite number in the range of fp32");
  }
  return static_cast<float>(value);
}

// ---- Labels ------------------------------------------------------------------------------------

/// Returns the label of `text`, a field or a part of a field.
std::int32_t label_of_text(const CsvReader& reader, std::size_t column, std::string_view text,
                           CsvLabel type, ClassTable& classes) {
  const auto place = [&] { return reader.place(column); };
  if (type == CsvLabel::name) return classes.label_of_name(text, place);
  std::int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || at != end) {
    refuse_field(reader, column, "the number of a class (label_type: number)");
  }
  return classes.label_of_number(value, place);
}

/// Returns the label in the column.
std::int32_t label_in(const CsvReader& reader, std::size_t column, CsvLabel type,
                      ClassTable& classes) {
  const std::string_view text = trimmed(reader.field(column));
  if (text.empty()) {
    refuse_field(reader, column, type == CsvLabel::name ? "the name of a class" : "a label");
  }
  return label_of_text(reader, column, text, type, classes);
}

/// Labels of all lines, if a field may contain several.
struct LabelLists {
  std::vector<std::int32_t> labels;  ///< labels of all lines, concatenated
  std::vector<std::size_t> ends;     ///< end of each line in `labels`
};

/// Adds the labels of the current line. An empty field has none.
void add_labels(const CsvReader& reader, std::size_t column, const CsvOptions& options,
                ClassTable& classes, LabelLists& lists) {
  const char separator = options.label_separator.front();
  std::string_view rest = trimmed(reader.field(column));
  while (!rest.empty()) {
    const std::size_t end = rest.find(separator);
    const bool is_last = end == std::string_view::npos;
    const std::string_view text = trimmed(rest.substr(0, end));
    rest = is_last ? std::string_view() : rest.substr(end + 1);
    // Consecutive spaces are one separator.
    if (text.empty() && separator == ' ') continue;
    if (text.empty() || (!is_last && rest.empty())) {
      refuse_field(
          reader, column,
          fmt::format("a label before and after each '{}' (data.label_separator)", separator));
    }
    lists.labels.push_back(label_of_text(reader, column, text, options.label_type, classes));
  }
  lists.ends.push_back(lists.labels.size());
}

/// Converts the labels, which are final, to multi-hot targets.
void make_hot_rows(const LabelLists& lists, std::size_t classes, const std::string& path,
                   ImageSource::Samples& samples) {
  constexpr std::size_t kMaxTargets = std::size_t{1} << 31;
  const std::size_t lines = lists.ends.size();
  if (classes > 0 && lines > kMaxTargets / classes) {
    fail(ErrorKind::data,
         "{}: {} lines with {} different labels make {} targets: expected at most {}; is "
         "data.label_separator right?",
         path, lines, classes, lines * classes, kMaxTargets);
  }
  samples.targets.values = static_cast<std::int64_t>(classes);
  samples.rows.assign(lines * classes, 0.0F);
  samples.labels.assign(lines, 0);
  std::size_t at = 0;
  for (std::size_t line = 0; line < lines; ++line) {
    for (; at < lists.ends[line]; ++at) {
      samples.rows[line * classes + static_cast<std::size_t>(lists.labels[at])] = 1;
    }
  }
}

// ---- Targets -----------------------------------------------------------------------------------

/// Adds the targets of the current line.
void add_targets(const CsvReader& reader, const std::vector<std::size_t>& columns,
                 ImageSource::Samples& samples) {
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

CsvColumns choose_columns(const CsvReader& reader, const CsvOptions& options, const CsvTable* train,
                          const std::string& group) {
  CsvColumns columns;
  const std::vector<std::string>& header = reader.header();
  // A test file needs no group column; if it has one, the column is not a feature.
  if (!group.empty() &&
      (!train || std::find(header.begin(), header.end(), group) != header.end())) {
    columns.group = reader.column(group, "data.val_split.group");
  }
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
    return column == columns.label || column == columns.group ||
           std::find(targets.begin(), targets.end(), column) != targets.end() ||
           std::find(features.begin(), features.end(), column) != features.end();
  };
  std::vector<std::size_t> others;
  for (std::size_t i = 0; i < reader.header().size(); ++i) {
    if (is_used(i)) continue;
    if (train) {
      fail(ErrorKind::data,
           "{}: unexpected column '{}', which {} does not have: remove it, or name the features in "
           "data.features",
           reader.path(), reader.header()[i], options.train.file);
    }
    if (reader.header()[i].empty()) {
      fail(ErrorKind::data,
           "{}: expected a name for every column, found none for column {}: add one, or name the "
           "features in data.features (pandas writes its index this way; to_csv(index=False) omits "
           "it)",
           reader.path(), i + 1);
    }
    others.push_back(i);
  }
  if (train) return columns;
  if (others.empty()) {
    fail(ErrorKind::data,
         "{}: expected feature columns in addition to the target columns, found none",
         reader.path());
  }
  columns.features = std::move(others);
  return columns;
}

/// Fails unless the model's input size equals the number of features.
void check_features(const std::string& path, const std::vector<std::string>& names, bool are_named,
                    const DataRequirements& requirements) {
  const SampleShape shape{1, 1, static_cast<std::int64_t>(names.size())};
  const SampleShape& input = requirements.input;
  if (shape == input || !requirements.known_classes.empty() ||
      (requirements.any_size && shape.c == input.c)) {
    return check_shape(path, shape, requirements);
  }
  fail(ErrorKind::data,
       "{}: {} column{} {} features ({}), but model.input is [{}, {}, {}]: write model.input: [{}, "
       "1, 1]{}",
       path, names.size(), names.size() == 1 ? "" : "s",
       are_named ? "are named as" : "are taken as", some_of(names), input.c, input.h, input.w,
       names.size(),
       are_named ? ""
                 : ", or list only the features in data.features (a column that numbers the lines "
                   "is not a feature)");
}

/// Reserves memory for all features, estimated from the lines read so far.
void reserve_features(const CsvReader& reader, CsvTable& table) {
  constexpr std::size_t kAfter = 1000;
  if (table.lines.size() != kAfter || reader.position() == 0) return;
  const double times = 1.05 * static_cast<double>(reader.bytes()) /
                       static_cast<double>(std::max<std::uint64_t>(reader.position(), 1));
  table.features.reserve(
      static_cast<std::size_t>(static_cast<double>(table.features.size()) * times));
}

}  // namespace

TargetKind target_kind_of(const CsvOptions& options) {
  if (!options.label_separator.empty() && options.target == CsvTarget::from_columns) {
    return TargetKind::multi_hot;
  }
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

CsvTable read_csv_table(const std::string& path, const CsvOptions& options, const CsvTable* train,
                        ClassTable& classes, const DataRequirements& requirements) {
  CsvReader reader(path, options.delimiter.front());
  const CsvColumns columns = choose_columns(reader, options, train, requirements.group);
  CsvTable table;
  for (const std::size_t column : columns.features) {
    table.feature_names.push_back(reader.header()[column]);
  }
  if (!columns.path) {
    check_features(path, table.feature_names, !options.features.empty(), requirements);
  }
  ImageSource::Samples& samples = table.samples;
  samples.targets.kind = target_kind_of(options);
  table.by_name = columns.label && options.label_type == CsvLabel::name;
  samples.targets.values = static_cast<std::int64_t>(columns.targets.size());
  std::map<std::string, std::int64_t, std::less<>> groups;
  const bool has_lists = !options.label_separator.empty();
  LabelLists lists;
  while (reader.next()) {
    table.lines.push_back(reader.line());
    check_image_count(path, table.lines.size());
    for (const std::size_t column : columns.features) {
      table.features.push_back(number_in(reader, column));
    }
    reserve_features(reader, table);
    if (columns.path) {
      if (reader.field(*columns.path).empty()) {
        refuse_field(reader, *columns.path, "the path of an image");
      }
      table.images.emplace_back(reader.field(*columns.path));
    }
    if (columns.group) {
      const std::string_view text = trimmed(reader.field(*columns.group));
      const auto number = static_cast<std::int64_t>(groups.size());
      if (text.empty()) refuse_field(reader, *columns.group, "the name of a group");
      samples.groups.push_back(groups.emplace(text, number).first->second);
    }
    if (columns.label && has_lists) {
      add_labels(reader, *columns.label, options, classes, lists);
    } else if (columns.label) {
      samples.labels.push_back(label_in(reader, *columns.label, options.label_type, classes));
    } else {
      add_targets(reader, columns.targets, samples);
    }
  }
  if (table.lines.empty()) {
    fail(ErrorKind::data, "{}: expected a line for each sample after the header, found none", path);
  }
  if (columns.label) {
    std::vector<std::int32_t>& labels = has_lists ? lists.labels : samples.labels;
    if (!train) classes.close(ClassOrder::numbers_first, labels);
    samples.classes = classes.names();
    if (samples.classes.empty()) {
      fail(ErrorKind::data, "{}, column {}: expected labels, found only empty fields", path,
           options.label);
    }
    if (has_lists) make_hot_rows(lists, samples.classes.size(), path, samples);
    if (classes.is_from_samples()) {
      check_classes(
          fmt::format("{}, column {} ({})", path, options.label, some_of(samples.classes)),
          samples.classes.size(), requirements);
    }
    return table;
  }
  samples.classes = options.classes.empty() ? options.targets : options.classes;
  const auto width = static_cast<std::int64_t>(columns.targets.size());
  if (requirements.classes > 0 && width != requirements.classes) {
    fail(ErrorKind::data,
         "{}: data.targets names {} column{}, but the model's last layer has {}: give it {}", path,
         width, width == 1 ? "" : "s", counted(requirements.classes, "output"), width);
  }
  return table;
}

std::optional<std::int64_t> outputs_of_csv(const CsvOptions& options) {
  if (!options.targets.empty()) return static_cast<std::int64_t>(options.targets.size());
  if (options.label.empty()) return std::nullopt;
  if (!options.classes.empty()) return static_cast<std::int64_t>(options.classes.size());
  CsvReader reader(options.train.file, options.delimiter.front());
  const std::size_t column = reader.column(options.label, "data.label");
  ClassTable classes({}, options.train.file, {});
  LabelLists lists;
  while (reader.next()) {
    if (options.label_separator.empty()) {
      lists.labels.push_back(label_in(reader, column, options.label_type, classes));
    } else {
      add_labels(reader, column, options, classes, lists);
    }
  }
  classes.close(ClassOrder::numbers_first, lists.labels);
  return static_cast<std::int64_t>(classes.names().size());
}

CsvTable read_csv_samples(const std::string& path, const CsvOptions& options,
                          const std::vector<std::string>& features, const std::string& asked_by,
                          UnreadableSamples& unreadable) {
  CsvReader reader(path, options.delimiter.front());
  CsvColumns columns;
  if (!options.path.empty()) {
    columns.path = reader.column(options.path, "data.path");
  } else {
    for (const std::string& name : features) {
      columns.features.push_back(reader.column(name, asked_by));
    }
  }
  CsvTable table;
  if (!columns.path) table.feature_names = features;
  while (reader.next()) {
    const auto index = static_cast<std::int64_t>(table.lines.size());
    table.lines.push_back(reader.line());
    check_image_count(path, table.lines.size());
    if (columns.path) table.images.emplace_back(reader.field(*columns.path));
    try {
      if (columns.path && table.images.back().empty()) {
        refuse_field(reader, *columns.path, "the path of an image");
      }
      for (const std::size_t column : columns.features) {
        table.features.push_back(number_in(reader, column));
      }
    } catch (const Error& error) {
      unreadable.add(index, error.what());
      table.features.resize(table.lines.size() * columns.features.size());
    }
    reserve_features(reader, table);
  }
  if (table.lines.empty()) {
    fail(ErrorKind::data, "{}: expected a line for each sample after the header, found none", path);
  }
  table.samples.labels.resize(table.lines.size());
  return table;
}

}  // namespace dpt
