// Decides which checkpoints of a folder may be removed.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <utility>

#include "engine/checkpoints/verified_files.h"
#include "kernels/base/held_path.h"

namespace dpt {

/// Removes old checkpoints. Does not read files that this process has written (note_good) or
/// verified (verified_files.h). Used by one thread at a time.
class Retention {
 public:
  /// Keeps the newest `keep_last` (at least 1) good files of `folder`. A damaged file does not
  /// count, so it cannot displace a good one.
  Retention(HeldPath folder, std::int64_t keep_last)
      : folder_(std::move(folder)), keep_last_(keep_last) {}

  /// Records that a file that this process has just written is good.
  void note_good(const HeldPath& path);
  /// Keeps this step's file forever, because the run was resumed from it by name.
  void pin(std::int64_t step) { pinned_.insert(step); }

  /// Removes files that need not be kept, and temporary files that a crash left. Files of steps
  /// after `newest`, the last step that was written, belong to another branch: they stay and do not
  /// count. Files of steps for which `is_needed` returns true stay too. `warn` receives a line for
  /// each file that cannot be removed.
  void apply(std::int64_t newest, const std::function<bool(std::int64_t step)>& is_needed,
             const std::function<void(const std::string&)>& warn);

 private:
  bool is_good(const HeldPath& path) const;

  HeldPath folder_;
  std::int64_t keep_last_;
  VerifiedFiles written_;
  std::set<std::int64_t> pinned_;
};

}  // namespace dpt
