// Which checkpoints of a folder may be removed.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "engine/checkpoints/held_path.h"

namespace dpt {

/// Removes old checkpoints. It remembers which files it knows to be good, so that a save reads no
/// file again. Used by one thread at a time.
class Retention {
 public:
  /// Of the files in `folder`, the newest `keep_last` (at least 1) good ones stay. A damaged file
  /// never counts: it cannot push out a good one.
  Retention(HeldPath folder, std::int64_t keep_last)
      : folder_(std::move(folder)), keep_last_(keep_last) {}

  /// The file that this process has just written, or read whole, is good.
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
  /// What shows, without reading, that a file has the same bytes as before: size, time of change,
  /// inode number.
  struct Stamp {
    std::int64_t size = -1, seconds = 0, nanoseconds = 0;
    std::uint64_t file = 0;
    bool operator==(const Stamp&) const = default;
  };
  static Stamp stamp_of(const HeldPath& path);
  bool is_good(const HeldPath& path);

  HeldPath folder_;
  std::int64_t keep_last_;
  std::map<std::string, Stamp> good_;
  std::set<std::int64_t> pinned_;
};

}  // namespace dpt
