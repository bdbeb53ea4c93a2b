// Which checkpoints of a folder may be removed.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <utility>

#include "engine/checkpoints/verified_files.h"
#include "kernels/base/held_path.h"

namespace dpt {

/// Removes old checkpoints. Reads no file that this process has written (note_good) or verified
/// before (verified_files.h). Used by one thread at a time.
class Retention {
 public:
  /// Keeps the newest `keep_last` (at least 1) good files of `folder`. A damaged file never counts:
  /// it cannot push out a good one.
  Retention(HeldPath folder, std::int64_t keep_last)
      : folder_(std::move(folder)), keep_last_(keep_last) {}

  /// Records that the file is good, which this process has just written.
  void note_good(const HeldPath& path);
  /// This step's file is never removed: the run was resumed from it by name.
  void pin(std::int64_t step) { pinned_.insert(step); }

  /// Removes what may go, and temporary files that a crash left. Files of later steps than
  /// `newest`, the last one that was written, are of another branch: they stay and do not count.
  /// `is_needed` is asked before a file is removed; `warn` gets a line for each that cannot be
  /// removed, which then stays.
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
