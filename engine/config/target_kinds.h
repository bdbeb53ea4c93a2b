// The kinds of targets that data can have, and their names in messages. A loss and a metric list
// the kinds that they accept.
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include <fmt/ranges.h>

#include "kernels/base/enum_names.h"
#include "kernels/base/types.h"

namespace dpt {

/// Names in checkpoints and in `data.target`.
constexpr auto enum_names(TargetKind) {
  return std::to_array<EnumName<TargetKind>>({{TargetKind::class_index, "labels"},
                                              {TargetKind::soft_labels, "soft_labels"},
                                              {TargetKind::multi_hot, "multi_hot"},
                                              {TargetKind::values, "values"}});
}

using TargetKinds = std::vector<TargetKind>;

inline const TargetKinds& all_targets() {
  static const TargetKinds kinds = {TargetKind::class_index, TargetKind::soft_labels,
                                    TargetKind::multi_hot, TargetKind::values};
  return kinds;
}
inline const TargetKinds& labelled_targets() {
  static const TargetKinds kinds = {TargetKind::class_index, TargetKind::soft_labels};
  return kinds;
}

inline bool takes(const TargetKinds& kinds, TargetKind kind) {
  return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
}

constexpr const char* text_of(TargetKind kind) {
  switch (kind) {
    case TargetKind::class_index:
      return "class labels";
    case TargetKind::soft_labels:
      return "soft labels (a probability for each class)";
    case TargetKind::multi_hot:
      return "multi-hot targets (0 to 1 for each output)";
    case TargetKind::values:
      break;
  }
  return "values (a number for each output)";
}

/// Returns "class labels or soft labels (...)".
inline std::string text_of(const TargetKinds& kinds) {
  std::vector<std::string> texts;
  for (const TargetKind kind : kinds) texts.emplace_back(text_of(kind));
  return fmt::format("{}", fmt::join(texts, " or "));
}

}  // namespace dpt
