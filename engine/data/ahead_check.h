// Reads the samples of evaluations once ahead of time, so that a damaged sample ends a run early.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/data/decoder_pool.h"
#include "engine/data/split.h"

namespace dpt {

/// Reads the test samples, then the validation samples, on idle decoder threads. Not thread-safe.
/// The destructor waits only for samples that are being read.
class AheadCheck final : DecoderPool::Client {
 public:
  /// Share of the samples that this process reads: every `of`-th one, beginning with `number`.
  struct Part {
    std::int64_t number = 0, of = 1;
  };
  /// The splits must outlive the object. Samples in memory are not read.
  AheadCheck(const Split& test, const Split& val, Part part, std::shared_ptr<DecoderPool> decoders);
  ~AheadCheck() override;

  /// Throws the error of an unreadable sample, if one was found.
  void rethrow();
  /// Waits until the test samples have been read or `wants_stop` returns true. Does not wait for
  /// the validation samples, which are evaluated next. Throws like rethrow.
  void finish(const std::function<bool()>& wants_stop);

 private:
  struct Sample {
    const DataSource* source;
    std::int64_t index;
  };
  void add(const Split& split, Part part);
  bool work() noexcept override;

  std::vector<Sample> samples_;
  std::size_t of_test_ = 0;  ///< number of test samples, which come first
  std::shared_ptr<DecoderPool> decoders_;
  std::atomic<std::size_t> next_{0};  ///< index in samples_ of the next sample to read
  std::mutex mutex_;
  std::condition_variable done_;
  std::size_t tested_ = 0;    // guarded by mutex_; test samples that were read
  std::exception_ptr error_;  // guarded by mutex_
};

}  // namespace dpt
