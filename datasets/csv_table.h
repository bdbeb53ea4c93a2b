// Content of a CSV file: features or images of its samples, and their labels or targets.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "datasets/class_table.h"
#include "datasets/image_source.h"
#include "engine/data/data_sets.h"
#include "engine/data/unreadable_samples.h"

namespace dpt {

/// Meaning of the target columns.
enum class CsvTarget : std::uint8_t { from_columns, labels, soft_labels, multi_hot, values };
constexpr auto enum_names(CsvTarget) {
  return std::to_array<EnumName<CsvTarget>>({{CsvTarget::from_columns, "auto"},
                                             {CsvTarget::labels, "labels"},
                                             {CsvTarget::soft_labels, "soft_labels"},
                                             {CsvTarget::multi_hot, "multi_hot"},
                                             {CsvTarget::values, "values"}});
}

/// Content of the label column.
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
  std::optional<CsvFile> test, val;
  std::string path;
  std::string root;
  std::vector<std::string> features;
  std::string label;
  CsvLabel label_type = CsvLabel::name;
  std::string label_separator;  ///< one character; empty: each field has one label
  std::vector<std::string> targets;
  CsvTarget target = CsvTarget::from_columns;
  std::vector<std::string> classes;
  std::string delimiter = ",";
  std::int64_t cache_mib = 1024;
};

/// Returns the kind of targets that the options determine.
TargetKind target_kind_of(const CsvOptions& options);

/// Content of one file.
struct CsvTable {
  std::vector<std::string> feature_names;
  std::vector<float> features;  ///< features of all lines, one line after another
  std::vector<std::string> images;
  ImageSource::Samples samples;
  std::vector<std::int64_t> lines;  ///< line number of each sample
  bool by_name = false;             ///< classes are names, not numbers
};

/// Reads the file at `path`. If `train` is null, `path` is the training file, which completes
/// `classes`. Otherwise, `train` is the table of the training file or, if that is not read, has the
/// checkpoint's feature names. Throws ErrorKind::data with file, line and column.
CsvTable read_csv_table(const std::string& path, const CsvOptions& options, const CsvTable* train,
                        ClassTable& classes, const DataRequirements& requirements);

/// Returns the number of classes or targets of the training file; unset if the options name no
/// column for either. Reads at most the label column. Throws ErrorKind::data.
std::optional<std::int64_t> outputs_of_csv(const CsvOptions& options);

/// Reads the samples of a file to be predicted: the columns that `features` names or, if the
/// options have `path`, the paths. Ignores other columns. A line with a field that cannot be read
/// is added to `unreadable`, and its features are 0.
CsvTable read_csv_samples(const std::string& path, const CsvOptions& options,
                          const std::vector<std::string>& features, const std::string& asked_by,
                          UnreadableSamples& unreadable);

}  // namespace dpt
