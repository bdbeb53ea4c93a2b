#include "engine/collectives/overlapped_sums.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "engine/collectives/process_links.h"
#include "kernels/backend.h"
#include "kernels/base/error.h"
#include "kernels/base/start_thread.h"

namespace dpt {

OverlappedSums::OverlappedSums(std::vector<int> ranks_of, ProcessLinks& links, TellWaiting waiting)
    : ranks_of_(std::move(ranks_of)),
      local_size_(ranks_of_[links.rank()]),
      first_(std::accumulate(ranks_of_.begin(), ranks_of_.begin() + links.rank(), 0)),
      total_(std::accumulate(ranks_of_.begin(), ranks_of_.end(), 0)),
      links_(links),
      waiting_(std::move(waiting)),
      adder_(make_cpu_backend(1)),
      process_sum_(ranks_of_, links),
      begun_counts_(static_cast<std::size_t>(local_size_)) {
  thread_ = start_thread("the sums over processes", [this] { run(); });
}

OverlappedSums::~OverlappedSums() {
  stop();
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  work_.notify_all();
  thread_.join();
}

void OverlappedSums::stop() noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (buckets_.empty()) return;
  }
  abort("a rank has ended");
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&] { return !is_summing_; });
}

void OverlappedSums::begin(int local, float* data, std::int64_t count) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_) std::rethrow_exception(failure_);
    const std::int64_t number = begun_counts_[local]++;
    const auto at = static_cast<std::size_t>(number - done_count_);
    if (at == buckets_.size()) {
      Bucket& made = buckets_.emplace_back();
      made.count = count;
      made.data.resize(static_cast<std::size_t>(local_size_));
    }
    Bucket& bucket = buckets_[at];
    if (bucket.count != count) {
      fail(ErrorKind::peer, "rank {}: sum {} has {} floats, but another rank's has {}",
           first_ + local, number, count, bucket.count);
    }
    bucket.data[local] = data;
    if (++bucket.begun < local_size_) return;
  }
  work_.notify_one();
  if (local_size_ > 1) done_.notify_all();
}

void OverlappedSums::finish(int local) {
  std::unique_lock lock(mutex_);
  const std::int64_t mine = begun_counts_[local];
  // Until all ranks of this process have begun these sums, the delay is not caused by other
  // processes, so do not report it.
  done_.wait(lock, [&] {
    return failure_ || *std::min_element(begun_counts_.begin(), begun_counts_.end()) >= mine;
  });
  {
    const TellWaiting nobody;
    const WaitsFor wait(local == 0 && !failure_ ? waiting_ : nobody, "all_reduce");
    done_.wait(lock, [&] { return done_count_ >= mine || failure_; });
  }
  if (failure_) std::rethrow_exception(failure_);
}

void OverlappedSums::abort(const std::string& cause) noexcept {
  links_.abort(cause);
  try {
    const std::lock_guard lock(mutex_);
    if (!failure_) {
      failure_ = std::make_exception_ptr(
          Error(ErrorKind::peer, fmt::format("the sums over processes were stopped: {}", cause)));
    }
  } catch (const std::exception&) {
    // Even without memory for the message, the sums end, because their links were aborted.
  }
  done_.notify_all();
}

void OverlappedSums::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    work_.wait(lock, [&] {
      return stops_ || (!buckets_.empty() && buckets_.front().begun == local_size_);
    });
    if (stops_ || failure_) return;
    is_summing_ = true;
    // Ranks only append, which does not move other elements.
    Bucket& bucket = buckets_.front();
    lock.unlock();
    std::exception_ptr failure;
    try {
      sum(bucket);
    } catch (const std::exception&) {
      failure = std::current_exception();
    }
    lock.lock();
    is_summing_ = false;
    if (failure) {
      if (!failure_) failure_ = failure;
    } else {
      buckets_.pop_front();
      ++done_count_;
    }
    done_.notify_all();
    if (failure_) return;
  }
}

void OverlappedSums::sum(Bucket& bucket) {
  parts_.clear();
  for (int local = 0; local < local_size_; ++local) {
    float* data = bucket.data[local];
    parts_.push_back({{first_ + local, 0}, DevPtr{reinterpret_cast<std::uintptr_t>(data)}});
  }
  float* only = local_size_ == 1 ? bucket.data[0] : nullptr;
  process_sum_.begin(total_, {{}, true}, parts_, bucket.count, only);
  process_sum_.add_own(*adder_, 0, 1);
  process_sum_.exchange(*adder_);
  if (only) return;
  for (float* data : bucket.data) {
    std::memcpy(data, process_sum_.result(),
                static_cast<std::size_t>(bucket.count) * sizeof(float));
  }
}

}  // namespace dpt
