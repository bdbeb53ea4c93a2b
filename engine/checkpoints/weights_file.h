// A weights file as the start of a run (`weights`, --weights): its names are mapped, and tensors
// that are not used are reported.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/graph/plan.h"

namespace dpt {

/// Origin of the rows of the last layer, for WeightsSpec::head.
struct HeadReport {
  std::string layer;
  bool is_new = false;                     ///< the layer keeps its initial values
  std::vector<std::string> skipped;        ///< the layer's tensors in the file that were not read
  std::vector<std::string> copied, fresh;  ///< names of classes
};

/// Result of loading a file into a plan.
struct WeightsReport {
  std::vector<std::string> loaded, missing;  ///< names of the model's tensors
  std::vector<std::string> used, left_over;  ///< names in the file
  std::vector<std::string> zeroed;           ///< counters that the file lacks
  /// The weights taken from a file that has averages; unset for a file without averages.
  std::optional<WeightsUse> use;
  std::optional<HeadReport> head;
  /// Keys of the chosen dictionary and of the others if a PyTorch file has several.
  std::string key;
  std::vector<std::string> other_keys;
};

/// Copies every parameter that the file has into `flat`, which is in buffer layout and holds the
/// initial values. Tensors of dpt itself (`optim.`, `dpt.`) do not count as left over. `classes`
/// are the class names of the data, for WeightsSpec::head. If `classes` is null, the names are
/// unknown, and the rows of the last layer are neither copied nor reported. The caller decides
/// whether missing and left-over tensors were expected. A tensor whose shape differs is both
/// missing and left over if both lists of the spec match it. For any other tensor whose shape
/// differs, throws ErrorKind::data, naming both shapes. Also throws ErrorKind::data for a map that
/// does not fit the file, and for a file that is damaged or lacks what the spec requests.
WeightsReport load_weights(const WeightsSpec& spec, const Plan& plan,
                           const std::vector<std::string>* classes, float* flat);

}  // namespace dpt
