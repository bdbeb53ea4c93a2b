// Passes the output of the processes of `--nproc` on to stderr, each line after "[rank N] ".
#pragma once

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "kernels/base/file_handle.h"

namespace dpt {

/// A thread that reads pipes and writes their lines to stderr (stderr_writer). It waits for a slow
/// reader of stderr, and so do the processes once their pipes are full. After the destructor has
/// been called, it waits only a few seconds.
class RankOutput {
 public:
  RankOutput() : own_(add_pipe("")) {}
  /// Ends the thread after it has written what the pipes still contain.
  ~RankOutput();
  RankOutput(const RankOutput&) = delete;

  /// Creates a pipe and returns its write end. REQUIRES: start() has not been called.
  FileHandle add_pipe(const std::string& prefix);
  void start();
  /// Adds a line of the launcher itself, without waiting for the reader. The line appears after all
  /// output of processes that have ended.
  void add(const std::string& line);

 private:
  struct Stream {
    std::string prefix;
    FileHandle pipe;
    std::string line;  ///< beginning of an incomplete line
  };
  void run();

  std::vector<Stream> streams_;  ///< the first is the launcher's
  FileHandle own_;
  std::atomic<bool> is_ending_{false};
  std::thread thread_;
};

}  // namespace dpt
