// Output of the processes of `--nproc` on its way to stderr: line by line, after "[rank N] ".
#pragma once

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "kernels/base/file_handle.h"

namespace dpt {

/// A thread that reads pipes and writes their lines to stderr (stderr_writer). It waits for a slow
/// reader, and so do the processes once their pipes are full, but at the end only for some seconds.
class RankOutput {
 public:
  RankOutput() : own_(add_pipe("")) {}
  /// Ends the thread after it has written what the pipes still contain.
  ~RankOutput();
  RankOutput(const RankOutput&) = delete;

  /// Returns the end for writing of a new pipe. REQUIRES: start() has not been called.
  FileHandle add_pipe(const std::string& prefix);
  void start();
  /// Passes on a line of the launcher itself, without waiting for the reader. It appears after
  /// everything that an ended process has written.
  void add(const std::string& line);

 private:
  struct Stream {
    std::string prefix;
    FileHandle pipe;
    std::string line;  ///< beginning of an incomplete line
  };
  void run();

  std::vector<Stream> streams_;  ///< the launcher's is the first
  FileHandle own_;
  std::atomic<bool> is_ending_{false};
  std::thread thread_;
};

}  // namespace dpt
