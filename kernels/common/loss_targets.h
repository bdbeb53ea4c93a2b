// Checks of a loss's targets on the host, shared by the backends.
#pragma once

#include <string>

#include "kernels/base/error.h"
#include "kernels/loss_op.h"

namespace dpt {

/// Checks that the loss supports its targets. `device` is for messages.
inline void check_loss_targets(const std::string& device, const char* loss, const LossDesc& desc) {
  const TargetShape& targets = desc.targets;
  const std::int64_t expected = targets.kind == TargetKind::class_index ? 0 : desc.classes;
  if (targets.values != expected) {
    fail(ErrorKind::device, "{}: {}: expected {} target values per sample, found {}", device, loss,
         expected, targets.values);
  }
  for (const MetricSum& sum : desc.sums) {
    if (sum.kind != SampleSum::top_k || has_labels(targets.kind)) continue;
    fail(ErrorKind::device, "{}: {}: targets without labels have no accuracy", device, loss);
  }
}

/// Checks the targets of a loss that needs labels or soft labels.
inline void check_label_loss(const std::string& device, const char* loss, const LossDesc& desc) {
  check_loss_targets(device, loss, desc);
  if (has_labels(desc.targets.kind)) return;
  fail(ErrorKind::device, "{}: {} needs labels or soft labels", device, loss);
}

}  // namespace dpt
