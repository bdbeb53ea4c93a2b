#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace dpt {

/// Collective call over the control channel that returns the texts of all processes (any bytes), by
/// rank.
using GatherTexts = std::function<std::vector<std::string>(const std::string& mine)>;

struct LinkOptions {
  int rank = 0, size = 1;
  std::string address;  ///< address of this process, to which the others connect
  /// Shared secret of all processes. A connection counts only when both ends have proven that they
  /// know it.
  std::string secret;
  /// Time without a further connection after which the processes give up.
  std::chrono::milliseconds patience = std::chrono::seconds(20);
};

}  // namespace dpt
