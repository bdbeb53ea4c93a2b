// The data section of a config to start from: what `dpt config init --data` finds out about files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dpt {

/// Kinds of targets, as far as loss and metrics depend on them.
enum class StarterTargets : std::uint8_t { labels, soft_labels, multi_hot, values };

/// A data set as a config describes it.
struct StarterData {
  std::string summary;             ///< for the first comment: "a folder of images"
  std::vector<std::string> lines;  ///< of the data section, from `dataset` on, without indentation
  StarterTargets targets = StarterTargets::labels;
  /// Shape of the samples [channels, height, width]; empty for images of their own sizes.
  std::vector<std::int64_t> input;
  bool skips = false;        ///< `lines` have on_bad_sample: skip
  bool is_features = false;  ///< samples are rows of numbers: their input is [F, 1, 1]
};

/// Looks at `path`: a folder of images, a CSV file, an array or an archive of NumPy, or tar shards.
/// Throws ErrorKind::usage or ErrorKind::data with the remedy if it cannot tell what that is.
StarterData find_starter_data(const std::string& path);

/// Each kind, of a path that is known to be one.
StarterData starter_of_folder(const std::string& folder);
StarterData starter_of_csv(const std::string& file);
StarterData starter_of_npy(const std::string& file);
StarterData starter_of_shards(const std::string& pattern);

/// Returns a path as a value of YAML, on which a config has the same meaning as a shell.
std::string yaml_path(const std::string& path);
/// Returns the file that is called as `file`, but for `train` in its name, which is one of the
/// names of another part ("val", "test"); empty if there is none.
std::string file_of_part(const std::string& file, const std::string& part);

}  // namespace dpt
