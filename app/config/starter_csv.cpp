// Chooses the target and the features among the columns of a CSV file.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <fstream>
#include <optional>
#include <set>

#include <fmt/ranges.h>

#include "app/config/starter_data.h"
#include "datasets/csv_reader.h"
#include "engine/config/scalars.h"
#include "kernels/base/error.h"
#include "kernels/base/text.h"
#include "kernels/image/image_formats.h"

namespace dpt {
namespace {

/// Maximum number of lines to examine.
constexpr std::int64_t kMaxLines = 20'000;
/// Maximum number of distinct integers in a column of classes. If there are more, they are
/// quantities.
constexpr std::size_t kMaxIntegerClasses = 20;

/// Statistics of a column whose fields are read as lists of labels with this separator.
struct Lists {
  char separator;
  std::int64_t fields = 0, labels = 0;  ///< fields with the separator, and labels in all fields
  bool has_empty = false;               ///< true if a list has an empty label
  std::set<std::string> names = {};     ///< distinct labels, up to kMaxValues
};

/// Statistics of a column.
struct Column {
  std::string name;
  std::int64_t lines = 0, empty = 0, numbers = 0, integers = 0, images = 0;
  std::int64_t no_values = 0;  ///< fields for a missing number: NA, nan, null
  bool is_counter = true;      ///< each value is that of the previous line plus 1
  double last = 0;
  std::set<std::string> values = {};  ///< distinct values, up to kMaxValues
  std::array<Lists, 3> lists = {{{'|'}, {';'}, {','}}};

  static constexpr std::size_t kMaxValues = 1000;
  bool is_number() const { return numbers == lines - empty && numbers > 0; }
  bool is_integer() const { return integers == lines - empty && integers > 0; }
  /// Returns true if all values are integers or numbers with a decimal comma (0,5), and at least
  /// one has the comma.
  bool has_decimal_commas() const {
    const auto is_one = [](const std::string& value) {
      const std::size_t comma = value.find(',');
      const std::size_t first = value.starts_with('-') ? 1 : 0;
      constexpr const char* kDigits = "0123456789";
      return comma != value.npos && comma > first && comma + 1 < value.size() &&
             value.find_first_not_of(kDigits, first) == comma &&
             value.find_first_not_of(kDigits, comma + 1) == value.npos;
    };
    return !values.empty() && std::any_of(values.begin(), values.end(), is_one) &&
           std::all_of(values.begin(), values.end(), [&](const std::string& value) {
             return is_one(value) || value.find_first_not_of("-0123456789") == value.npos;
           });
  }
  bool is_image() const { return images == lines && lines > 0; }
  /// Returns the character that separates the labels in a field; 0 if fields are not lists. Fields
  /// are lists if labels recur and there are no more distinct labels than distinct fields.
  char separator() const {
    for (const Lists& each : lists) {
      if (each.fields > 0 && !each.has_empty && each.names.size() < kMaxValues &&
          each.names.size() <= values.size() &&
          static_cast<std::int64_t>(each.names.size()) < each.labels) {
        return each.separator;
      }
    }
    return '\0';
  }
};

std::string_view without_blanks(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

std::optional<double> number_of(std::string_view text) {
  text = without_blanks(text);
  if (text.starts_with("+")) text.remove_prefix(1);
  double value = 0;
  const auto [at, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || at != text.data() + text.size()) return std::nullopt;
  return value;
}

void add_labels(Lists& lists, std::string_view text) {
  if (text.find(lists.separator) != std::string_view::npos) ++lists.fields;
  while (true) {
    const std::size_t end = text.find(lists.separator);
    const std::string_view label = without_blanks(text.substr(0, end));
    lists.has_empty = lists.has_empty || label.empty();
    ++lists.labels;
    if (lists.names.size() < Column::kMaxValues) lists.names.emplace(label);
    if (end == std::string_view::npos) return;
    text.remove_prefix(end + 1);
  }
}

void add_value(Column& column, std::string_view text) {
  const bool is_first = column.lines == 0;
  ++column.lines;
  if (column.values.size() < Column::kMaxValues) column.values.emplace(text);
  if (without_blanks(text).empty()) {
    ++column.empty;
    column.is_counter = false;
    return;
  }
  column.no_values += text == "NA" || text == "NaN" || text == "nan" || text == "null" ||
                      text == "NULL" || text == "None";
  column.images += format_of_name(std::string(text)) ? 1 : 0;
  for (Lists& each : column.lists) add_labels(each, text);
  const std::optional<double> number = number_of(text);
  if (!number || !std::isfinite(*number)) {
    column.is_counter = false;
    return;
  }
  ++column.numbers;
  column.integers += std::floor(*number) == *number && text.find('.') == std::string_view::npos;
  column.is_counter = column.is_counter && (is_first || *number == column.last + 1);
  column.last = *number;
}

/// Returns the most frequent field separator of the first line.
char delimiter_of(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  std::string line;
  std::getline(in, line);
  char best = ',';
  for (const char each : {',', ';', '\t', '|'}) {
    if (std::count(line.begin(), line.end(), each) > std::count(line.begin(), line.end(), best)) {
      best = each;
    }
  }
  return best;
}

std::vector<Column> read_columns(const std::string& file, char delimiter) {
  CsvReader reader(file, delimiter);
  std::vector<Column> columns;
  for (const std::string& name : reader.header()) columns.push_back({name});
  for (std::int64_t line = 0; line < kMaxLines && reader.next(); ++line) {
    for (std::size_t i = 0; i < columns.size(); ++i) add_value(columns[i], reader.field(i));
  }
  for (Column& column : columns) {
    // Count NA and null as missing only in a column of numbers: in a column of text, they are
    // values.
    const std::int64_t filled = column.lines - column.empty;
    if (column.numbers > 0 && column.numbers + column.no_values == filled) {
      column.empty += column.no_values;
    }
  }
  if (columns.empty() || columns[0].lines == 0) {
    fail(ErrorKind::data, "{}: expected a line for each sample after the header, found none", file);
  }
  return columns;
}

bool is_counter(const Column& column) {
  static constexpr std::array kNames = {"id", "index", "idx", "row", "no", "nr", "unnamed: 0", ""};
  const std::string name = lower_case(column.name);
  const bool is_named = std::find(kNames.begin(), kNames.end(), name) != kNames.end();
  return is_named || (column.is_counter && column.is_integer() && column.lines > 2);
}

/// Returns true if the column states the part of each line: train, val or test.
bool names_parts(const Column& column) {
  static const std::set<std::string> kParts = {"train",      "training", "val",  "valid",
                                               "validation", "dev",      "test", "testing"};
  return column.values.size() > 1 &&
         std::all_of(column.values.begin(), column.values.end(),
                     [](const std::string& value) { return kParts.contains(lower_case(value)); });
}

/// Refuses a column that is the target, according to its name or position, but lacks values.
[[noreturn]] void refuse_gaps(const std::string& file, const Column& column) {
  fail(ErrorKind::data,
       "{}: column {}, which seems to be the target, has no value in {} of {} lines: remove these "
       "lines, or write a config with another target (data.label or data.targets)",
       file, printable(column.name), column.empty, column.lines);
}

/// Returns the target column: the one with a usual name, else the only text column, else the last.
std::size_t target_column(const std::string& file, const std::vector<Column>& columns) {
  static constexpr std::array kNames = {"label",    "labels",    "class", "target",
                                        "category", "species",   "tags",  "tag",
                                        "outcome",  "diagnosis", "price", "y"};
  const auto lacks_targets = [](const Column& column) {
    return column.is_image() || names_parts(column) ||
           (column.empty > 0 && column.separator() == '\0');
  };
  for (const char* name : kNames) {
    for (std::size_t i = 0; i < columns.size(); ++i) {
      if (lower_case(columns[i].name) != name) continue;
      if (!lacks_targets(columns[i])) return i;
      if (columns[i].empty > 0) refuse_gaps(file, columns[i]);
    }
  }
  std::vector<std::size_t> texts, others;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    if (lacks_targets(columns[i]) || is_counter(columns[i])) continue;
    others.push_back(i);
    if (!columns[i].is_number() && !columns[i].has_decimal_commas()) texts.push_back(i);
  }
  if (texts.size() == 1) return texts[0];
  const Column& last = columns.back();
  if (last.empty > 0 && last.is_number() && !is_counter(last)) refuse_gaps(file, last);
  if (!others.empty()) return others.back();
  fail(ErrorKind::data,
       "{}: expected a column with the class or number to predict and no empty fields, found none "
       "among {}",
       file, known_names([&] {
         std::vector<std::string> names;
         for (const Column& column : columns) names.push_back(column.name);
         return names;
       }()));
}

/// Returns true if the file of another part has all columns that the config names. A file of
/// samples to be predicted lacks the labels.
bool has_columns(const std::string& file, char delimiter, const std::vector<std::string>& names) {
  const CsvReader reader(file, delimiter);
  return std::all_of(names.begin(), names.end(), [&](const std::string& name) {
    return std::find(reader.header().begin(), reader.header().end(), name) != reader.header().end();
  });
}

std::string yaml_names(const std::vector<std::string>& names) {
  std::vector<std::string> texts;
  for (const std::string& name : names) texts.push_back(yaml_string(name));
  return fmt::format("[{}]", fmt::join(texts, ", "));
}

/// Columns of a table that go into the config.
struct Choice {
  std::optional<std::size_t> path;
  std::size_t target = 0;
  std::vector<std::string> hot;  ///< columns of 0 and 1, one per output; empty: only `target`
  std::vector<std::string> features, left_out;
};

/// Returns the columns of a table of images that each state whether a label applies: all columns
/// except images and counters, if there are at least two and they contain only 0 and 1. Otherwise,
/// returns none.
std::vector<std::string> hot_columns(const std::vector<Column>& columns) {
  std::vector<std::string> names;
  bool has_images = false;
  for (const Column& column : columns) {
    has_images = has_images || column.is_image();
    if (column.is_image() || is_counter(column)) continue;
    const bool is_hot = column.is_integer() && column.empty == 0 && column.values.size() <= 2 &&
                        std::all_of(column.values.begin(), column.values.end(),
                                    [](const std::string& v) { return v == "0" || v == "1"; });
    if (!is_hot) return {};
    names.push_back(column.name);
  }
  return has_images && names.size() > 1 ? names : std::vector<std::string>();
}

Choice choose_columns(const std::string& file, const std::vector<Column>& columns) {
  Choice choice;
  choice.hot = hot_columns(columns);
  choice.target = target_column(file, columns);
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const Column& column = columns[i];
    if (i == choice.target) continue;
    if (column.is_image() && !choice.path) choice.path = i;
    const char* reason = is_counter(column) ? "numbers the lines"
                         : names_parts(column)
                             ? "names the splits, each of which has its own file (train, val, test)"
                         : column.empty > 0            ? "has empty fields"
                         : column.has_decimal_commas() ? "has decimal commas instead of points"
                         : !column.is_number()         ? "is text"
                                                       : nullptr;
    if (!reason) {
      choice.features.push_back(column.name);
    } else if (!column.is_image()) {
      choice.left_out.push_back(fmt::format(
          "{} {}", column.name.empty() ? "the column without a name" : column.name, reason));
    }
  }
  return choice;
}

void add_target(const std::string& file, const Column& target, StarterData& data) {
  if (const char separator = target.separator(); separator != '\0') {
    data.targets = StarterTargets::multi_hot;
    data.lines.push_back(fmt::format("label: {}   # the column of the labels, any number of them",
                                     yaml_string(target.name)));
    data.lines.push_back(fmt::format("label_separator: \"{}\"", separator));
    return;
  }
  const bool is_class =
      !target.is_number() || (target.is_integer() && target.values.size() <= kMaxIntegerClasses);
  if (is_class && target.values.size() < 2) {
    fail(ErrorKind::data, "{}, column {}: expected at least two classes, found '{}' in every line",
         file, target.name, *target.values.begin());
  }
  if (is_class) {
    data.lines.push_back(
        fmt::format("label: {}   # column of the class", yaml_string(target.name)));
    return;
  }
  data.targets = StarterTargets::values;
  data.lines.push_back(
      fmt::format("targets: {}   # a number to predict", yaml_names({target.name})));
  data.lines.emplace_back("target: values");
}

}  // namespace

StarterData starter_of_csv(const std::string& file) {
  const char delimiter = delimiter_of(file);
  const std::vector<Column> columns = read_columns(file, delimiter);
  const Choice choice = choose_columns(file, columns);
  const Column& target = columns[choice.target];
  StarterData data;
  data.summary = choice.path ? "a table of images" : "a table";
  data.lines = {"dataset: csv", fmt::format("train: {{file: {}}}", yaml_path(file))};
  std::vector<std::string> needed = choice.features;
  if (choice.path) needed = {columns[*choice.path].name};
  if (choice.hot.empty()) {
    needed.push_back(target.name);
  } else {
    needed.insert(needed.end(), choice.hot.begin(), choice.hot.end());
  }
  for (const char* part : {"val", "test"}) {
    const std::string other = file_of_part(file, part);
    if (other.empty() || !has_columns(other, delimiter, needed)) continue;
    data.lines.push_back(fmt::format("{}: {{file: {}}}", part, yaml_path(other)));
  }
  if (delimiter != ',') {
    data.lines.push_back(delimiter == '\t' ? std::string("delimiter: \"\\t\"")
                                           : fmt::format("delimiter: \"{}\"", delimiter));
  }
  if (choice.path) {
    data.lines.push_back(
        fmt::format("path: {}   # column of the image files, relative to the table's folder",
                    yaml_string(columns[*choice.path].name)));
  } else if (choice.features.empty()) {
    fail(ErrorKind::data,
         "{}: expected columns of numbers as features besides the target '{}', found none ({})",
         file, target.name, fmt::join(choice.left_out, "; "));
  } else {
    data.is_features = true;
    data.input = {static_cast<std::int64_t>(choice.features.size()), 1, 1};
    data.lines.push_back(fmt::format("features: {}", yaml_names(choice.features)));
  }
  std::vector<std::string> left_out = choice.left_out;
  if (choice.path && choice.hot.empty()) {
    for (const std::string& name : choice.features) left_out.push_back(name + " is a number");
  }
  if (!left_out.empty()) {
    data.lines.push_back(
        fmt::format("# left out: {}", printable(fmt::format("{}", fmt::join(left_out, "; ")))));
  }
  if (!choice.hot.empty()) {
    data.targets = StarterTargets::multi_hot;
    data.lines.push_back(
        fmt::format("targets: {}   # 1 where the label applies, else 0", yaml_names(choice.hot)));
    data.lines.emplace_back("target: multi_hot");
    return data;
  }
  add_target(file, target, data);
  return data;
}

}  // namespace dpt
