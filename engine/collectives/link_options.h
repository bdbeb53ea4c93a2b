#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace dpt {

/// A collective over the control channel: what each process says (any bytes), by rank.
using GatherTexts = std::function<std::vector<std::string>(const std::string& mine)>;

struct LinkOptions {
  int rank = 0, size = 1;
  std::string address;  ///< address of this process, to which the others connect
  /// Shared secret of all processes. A connection counts once both ends have proven that they know
  /// it.
  std::string secret;
  /// Time after which the processes give up if no further one has connected.
  std::chrono::milliseconds patience = std::chrono::seconds(20);
};

}  // namespace dpt
