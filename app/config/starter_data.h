// The data section of a starter config, which `dpt config init --data` derives from files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dpt {

/// Kinds of targets, on which the choice of the loss and the metrics depends.
enum class StarterTargets : std::uint8_t { labels, soft_labels, multi_hot, values };

/// Description of a data set for a config.
struct StarterData {
  std::string summary;             ///< text for the first comment: "a folder of images"
  std::vector<std::string> lines;  ///< data section, from `dataset` on, without indentation
  StarterTargets targets = StarterTargets::labels;
  /// Shape of the samples [channels, height, width]; empty for images whose sizes may differ.
  std::vector<std::int64_t> input;
  bool skips = false;        ///< `lines` have on_bad_sample: skip
  bool is_features = false;  ///< samples are rows of numbers: their input is [F, 1, 1]
};

/// Examines `path`: a folder of images, a CSV file, a NumPy array or archive, or tar shards. Throws
/// ErrorKind::usage or ErrorKind::data with a remedy if the kind is unknown.
StarterData find_starter_data(const std::string& path);

/// Describe data of a known kind.
StarterData starter_of_folder(const std::string& folder);
StarterData starter_of_csv(const std::string& file);
StarterData starter_of_npy(const std::string& file);
StarterData starter_of_shards(const std::string& pattern);

/// Returns a path as a YAML value that means the same path in a config.
std::string yaml_path(const std::string& path);
/// Returns the existing file whose name is `file` with `train` replaced by a name of another part
/// ("val", "test"); empty if there is none.
std::string file_of_part(const std::string& file, const std::string& part);

}  // namespace dpt
