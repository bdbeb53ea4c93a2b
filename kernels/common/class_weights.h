// Checks and sums of class weights on the host, shared by the backends.
#pragma once

#include <numeric>
#include <string>
#include <vector>

#include "kernels/base/error.h"

namespace dpt {

inline double mean_of(const std::vector<float>& weights) {
  return std::accumulate(weights.begin(), weights.end(), 0.0) / static_cast<double>(weights.size());
}

/// Checks the class weights of a loss, and that the loss has at least one class. `device` is for
/// messages.
inline void check_class_weights(const std::string& device, const char* loss, std::int64_t classes,
                                const std::vector<float>& weights) {
  if (classes < 1) {
    fail(ErrorKind::device, "{}: {} needs at least 1 class, not {}", device, loss, classes);
  }
  if (weights.empty() || static_cast<std::int64_t>(weights.size()) == classes) return;
  fail(ErrorKind::device, "{}: {}: expected {} class weights, found {}", device, loss, classes,
       weights.size());
}

}  // namespace dpt
