#include "engine/data/ahead_check.h"

#include <chrono>
#include <utility>

#include "engine/data/split.h"
#include "kernels/base/error.h"
#include "kernels/base/heartbeat.h"

namespace dpt {

namespace {

/// Reads a sample. Returns its error, with a remedy; null if it is readable.
std::exception_ptr problem_of(const DataSource& source, std::int64_t index) {
  try {
    std::vector<std::byte> pixels(static_cast<std::size_t>(source.shape().elements()) *
                                  size_of(source.type()));
    std::int32_t label = 0;
    source.read(index, pixels, label);
    return nullptr;
  } catch (const DamagedCache&) {
    return std::current_exception();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::data) return std::current_exception();
    return std::make_exception_ptr(Error(
        ErrorKind::data,
        fmt::format("{}. An evaluation needs this sample: repair or remove the file (dpt data "
                    "check lists all unreadable files){}",
                    error.what(),
                    source.targets().floats() == 0
                        ? ", or leave it out with data.on_bad_sample: skip"
                        : "")));
  } catch (...) {
    return std::current_exception();
  }
}

}  // namespace

AheadCheck::AheadCheck(const Split& test, const Split& val, Part part,
                       std::shared_ptr<DecoderPool> decoders)
    : decoders_(std::move(decoders)) {
  add(test, part);
  of_test_ = samples_.size();
  add(val, part);
  if (!samples_.empty()) decoders_->add_idle(*this);
}

void AheadCheck::add(const Split& split, Part part) {
  if (split.size() == 0 || split.source->resident()) return;
  for (std::int64_t at = part.number; at < split.size(); at += part.of) {
    samples_.push_back({split.source.get(), split.indices[at]});
  }
}

AheadCheck::~AheadCheck() {
  next_ = samples_.size();
  decoders_->remove(*this);
}

bool AheadCheck::work() noexcept {
  const std::size_t at = next_.fetch_add(1);
  if (at >= samples_.size()) {
    next_ = samples_.size();
    return false;
  }
  const std::exception_ptr error = problem_of(*samples_[at].source, samples_[at].index);
  if (error) next_ = samples_.size();
  const std::lock_guard lock(mutex_);
  if (at < of_test_) ++tested_;
  if (error && !error_) error_ = error;
  done_.notify_all();
  return true;
}

void AheadCheck::rethrow() {
  const std::lock_guard lock(mutex_);
  if (error_) std::rethrow_exception(error_);
}

void AheadCheck::finish(const std::function<bool()>& wants_stop) {
  constexpr auto kPoll = std::chrono::milliseconds(100);
  std::unique_lock lock(mutex_);
  while (!error_ && tested_ < of_test_ && !wants_stop()) {
    beat("reading the samples of evaluations");
    done_.wait_for(lock, kPoll);
  }
  if (error_) std::rethrow_exception(error_);
}

}  // namespace dpt
