// Sums over processes that overlap with the computation: a separate thread exchanges one bucket of
// the gradients while the ranks of the process compute the next. For host memory.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "engine/collectives/process_links.h"
#include "engine/collectives/process_sum.h"
#include "engine/collectives/watched_links.h"

namespace dpt {

/// One object for the ranks of a process. Each rank calls begin and finish from its own thread; all
/// make the same calls in the same order.
class OverlappedSums {
 public:
  /// `ranks_of`: number of ranks of each process. `links` are used by this object only. For
  /// `waiting`, see WorldGroup.
  OverlappedSums(std::vector<int> ranks_of, ProcessLinks& links, TellWaiting waiting);
  /// Breaks the links if a sum is in progress.
  ~OverlappedSums();
  OverlappedSums(const OverlappedSums&) = delete;

  /// Begins data[i] = sum over all ranks of data[i]. `data` must not be touched before finish.
  void begin(int local, float* data, std::int64_t count);
  /// Waits for all sums that this rank has begun. Throws ErrorKind::peer if one failed.
  void finish(int local);
  /// Makes current and later calls throw. Callable from any thread.
  void abort(const std::string& cause) noexcept;
  /// Ends all sums. When this returns, none is in progress and none will begin, so the memory of a
  /// rank may be freed.
  void stop() noexcept;

 private:
  struct Bucket {
    std::int64_t count = 0;
    /// One per rank of this process, in rank order; null = not begun yet.
    std::vector<float*> data;
    int begun = 0;
  };
  void run();
  void sum(Bucket& bucket);

  const std::vector<int> ranks_of_;
  const int local_size_, first_, total_;
  ProcessLinks& links_;
  const TellWaiting waiting_;
  const std::unique_ptr<Backend> adder_;
  ProcessSum process_sum_;
  std::vector<PartialSum> parts_;
  std::mutex mutex_;
  std::condition_variable work_, done_;
  std::deque<Bucket> buckets_;              ///< not yet summed; the first has number done_count_
  std::int64_t done_count_ = 0;             ///< buckets summed so far
  std::vector<std::int64_t> begun_counts_;  ///< by rank
  std::exception_ptr failure_;
  bool stops_ = false, is_summing_ = false;
  std::thread thread_;
};

}  // namespace dpt
