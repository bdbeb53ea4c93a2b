// Runs of the program under the I/O shim, and the resulting content of their folders.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tests/cli/outcome.h"
#include "tests/cli/program.h"

namespace dpt::testing {

/// One call that the shim recorded.
struct IoCall {
  int number = 0;
  std::string kind, path, second;
  std::uint64_t inode = 0;
  std::int64_t where = 0;  ///< offset of a write, length of a truncation, flags of an open
  std::int64_t bytes = 0;
  int error = 0;
  std::size_t data_at = 0;  ///< offset of a write's bytes in IoRun::data
};

struct IoRun {
  Finished finished;
  std::vector<IoCall> calls;
  std::string data;
};

struct IoFault {
  int at = 0;
  std::string what;  ///< ENOSPC, EIO, EINTR, short, nothing, KILL
};

/// Runs dpt in `cwd`, records its calls below `root`, and makes one of them fail if `fault` is
/// given. Kills a run that lasts more than a minute; its exit code is then -SIGALRM.
IoRun run_watched(const std::vector<std::string>& arguments, const std::string& cwd,
                  const std::string& root, const std::optional<IoFault>& fault = {});

/// Returns the small config of these tests: three epochs of five steps, checkpoints within and
/// after them, a best by validation loss, exact mode on two replicas.
std::string watched_config();

/// Returns the folder of a path, or the path itself if it has none.
inline std::string parent_of(const std::string& path) {
  return path.substr(0, path.rfind('/'));
}

/// Returns every regular file below `folder` with its content, by relative path.
std::map<std::string, std::string> files_below(const std::string& folder);

/// Runs work(0), ..., work(count - 1) on a few threads and returns their complaints, in order.
/// (Assertions must stay on the test's thread.)
template <class Work>
std::vector<std::string> on_threads(int count, const Work& work);

}  // namespace dpt::testing

#include <atomic>
#include <thread>

template <class Work>
std::vector<std::string> dpt::testing::on_threads(int count, const Work& work) {
  std::vector<std::string> complaints(static_cast<std::size_t>(count));
  std::atomic<int> next{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      for (int i = next++; i < count; i = next++) {
        try {
          complaints[i] = work(i);
        } catch (const std::exception& error) {
          complaints[i] = error.what();
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<std::string> found;
  for (std::string& complaint : complaints) {
    if (!complaint.empty()) found.push_back(std::move(complaint));
  }
  return found;
}
