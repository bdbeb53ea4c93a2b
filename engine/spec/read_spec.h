// From YAML text to a TrainSpec, strictly: every error of a file in one run.
#pragma once

#include <string>
#include <vector>

#include "engine/spec/train_spec.h"

namespace dpt {

/// One thing wrong with a config. `text` says what was expected, what was found and what was
/// perhaps meant.
struct ConfigIssue {
  Where where;
  std::string text;
  bool is_of_data = false;  ///< the config is valid, but data that it depends on cannot be read
  /// Path of the field ("data.batch_size"), or of the mapping around an unknown or missing key.
  /// Ends with kTogether if the fields are valid but do not fit together. Empty for the whole file.
  std::string path = {};
};

inline constexpr const char* kTogether = ".*";

/// Returns true if an issue is about a field at or below `path`, or about a mapping around it.
bool concerns(const ConfigIssue& issue, const std::string& path);

/// Returns the lines of all issues.
std::string text_of(const std::vector<ConfigIssue>& issues);

/// Maximum number of issues of a config that are reported; further ones are only counted, because
/// finding suggestions takes time.
inline constexpr std::size_t kMaxIssues = 200;

struct ReadResult {
  TrainSpec spec;                   ///< valid only when issues is empty
  std::vector<ConfigIssue> issues;  ///< in order of position
};

/// Reads `file` with everything it extends, then applies `overrides` ("a.b=v", the value is YAML;
/// list items by index or name). Never throws for a bad config; throws ErrorKind::usage when the
/// file cannot be read at all. `catalog` must outlive the result.
ReadResult read_spec(const Catalog& catalog, const std::string& file,
                     const std::vector<std::string>& overrides = {});

/// The same from text; `file` is used in messages and to resolve relative paths.
ReadResult read_spec_text(const Catalog& catalog, const std::string& text, const std::string& file,
                          const std::vector<std::string>& overrides = {});

/// Reads, and throws one Error with all issues, one per line, if there are any: ErrorKind::data if
/// all concern the data, else ErrorKind::usage.
TrainSpec load_spec(const Catalog& catalog, const std::string& file,
                    const std::vector<std::string>& overrides = {});
TrainSpec load_spec_text(const Catalog& catalog, const std::string& text, const std::string& file,
                         const std::vector<std::string>& overrides = {});

/// The resolved config as YAML that reads back to the same spec. With `origins`, each line carries
/// a comment saying where the value came from (file:line, command line, default). Paths come out
/// absolute.
std::string show_spec(const Catalog& catalog, const TrainSpec& spec, bool origins = false);

/// The same run with the layers that its blocks stand for, under their full names.
TrainSpec with_explicit_layers(const TrainSpec& spec);

/// Returns the config as text for flat_config and diff_specs, in one form for one run: as today's
/// dpt writes it, so that fields unknown to an older dpt have their defaults; each layer under its
/// full name, with the names of its inputs, written or not; without what has no effect.
std::string show_to_compare(const Catalog& catalog, const TrainSpec& spec);

/// Reads a config that dpt stored, as show_spec made it: one of an older release counts as if it
/// had today's names, and defaults for what is new since. Throws ErrorKind::data when it cannot be
/// read, ErrorKind::usage for a bad override.
TrainSpec load_stored_spec(const Catalog& catalog, const std::string& text, const std::string& file,
                           const std::vector<std::string>& overrides = {});

/// The samples that the model of a checkpoint is to predict.
struct DataToPredict {
  /// A config of which the data section and the seed count; empty = those of the stored config.
  std::string config;
  std::vector<std::string> overrides;  ///< of the data section
  bool needs_labels = false;           ///< samples are evaluated, not only predicted
};

/// The config stored in `file`, as load_stored_spec, with other data. What only training needs of
/// them need not be there: labels and batch_size. Transforms and batch_size are always the stored
/// ones.
TrainSpec load_spec_to_predict(const Catalog& catalog, const std::string& text,
                               const std::string& file, const std::vector<std::string>& overrides,
                               const DataToPredict& samples);

/// The dotted paths of the fields that may differ between the parts of a resumed run (those marked
/// .changeable() in the tables); each stands for all below it.
std::vector<std::string> changeable_fields(const Catalog& catalog);

/// Returns the values of the stored run, as overrides, of fields that are newer than some stored
/// configs (Field::stored_as), where `spec` does not set them and has others. `stored` was read
/// from `file`. A run is resumed with them, whatever their defaults are today.
std::vector<std::string> values_of_run(const Catalog& catalog, const TrainSpec& spec,
                                       const std::string& stored, const std::string& file);

/// What a resumed run has changed but may not, as lines "path: old -> new". `stored` was read from
/// `file`; `resolved` is the run's config of today (from show_spec).
std::vector<std::string> refused_changes(const Catalog& catalog, const std::string& stored,
                                         const std::string& file, const std::string& resolved);

/// Lists the differences between two resolved configs (from show_spec), as lines "path: old ->
/// new", or "path: the order differs: a, b -> b, a" for a list with named items, leaving out
/// `ignored` top-level or dotted prefixes.
std::vector<std::string> diff_specs(const std::string& old_yaml, const std::string& new_yaml,
                                    const std::vector<std::string>& ignored);

/// JSON Schema 2020-12 of a config file, and the reference page docs/reference/config.md.
std::string config_schema(const Catalog& catalog);
std::string config_reference(const Catalog& catalog);

/// A value of a config that a command line may replace, for completion.
struct ConfigPath {
  std::string path;                ///< "optimizer.lr"
  std::vector<std::string> words;  ///< the values that it may have, where these are words
};
/// All of them, sorted; those of every kind there is (`optimizer.type`) together. Items of lists,
/// such as layers, have names of their own and are not among them.
std::vector<ConfigPath> config_paths(const Catalog& catalog);

}  // namespace dpt
