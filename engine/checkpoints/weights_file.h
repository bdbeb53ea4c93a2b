// A file of weights as the start of a run (`weights`, --weights): names are mapped, the rest of the
// file is accounted for.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/graph/plan.h"

namespace dpt {

/// WeightsSpec::head: which rows of the last layer came from the file.
struct HeadReport {
  std::string layer;
  bool is_new = false;               ///< the layer keeps its initial values
  std::vector<std::string> skipped;  ///< names in the file of its tensors, which were not read
  std::vector<std::string> copied, fresh;  ///< names of classes
};

/// Result of loading a file into a plan.
struct WeightsReport {
  std::vector<std::string> loaded, missing;  ///< names of the model's tensors
  std::vector<std::string> used, left_over;  ///< names in the file
  std::vector<std::string> zeroed;           ///< counters that the file lacks
  /// The weights that were taken from a file that has averages; unset for a file without.
  std::optional<WeightsUse> use;
  std::optional<HeadReport> head;
  /// Keys of the dictionary that was taken and of the others, where a file of PyTorch has several.
  std::string key;
  std::vector<std::string> other_keys;
};

/// Copies every parameter that the file has into `flat`, in buffer layout, with the initial values.
/// `optim.` and `dpt.` tensors are not left-overs. `classes` are the names of the data's classes,
/// for WeightsSpec::head; null where they are not known: then its rows are not copied, and not
/// reported. Whether what is missing or left over was expected is the caller's to judge, but for a
/// tensor whose shape differs: it is both where both lists name it, else this throws
/// ErrorKind::data, naming both shapes; as for a map that does not fit the file, and for a file
/// that is damaged or does not hold what the spec asks for.
WeightsReport load_weights(const WeightsSpec& spec, const Plan& plan,
                           const std::vector<std::string>* classes, float* flat);

}  // namespace dpt
