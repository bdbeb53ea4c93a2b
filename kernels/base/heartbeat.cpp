#include "kernels/base/heartbeat.h"

#include <fmt/format.h>

#include <utility>

namespace dpt {
namespace {

thread_local std::shared_ptr<Heartbeat> t_heartbeat;

}  // namespace

std::int64_t Heartbeat::now_ms() noexcept {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

SystemCall::SystemCall(const char* doing) noexcept
    : heartbeat_(heartbeat_of_thread()), doing_(doing) {
  if (!heartbeat_) return;
  before_ = heartbeat_->doing_.load(std::memory_order_relaxed);
  heartbeat_->beat(doing);
  heartbeat_->patience_ends_ms_ =
      Heartbeat::now_ms() + std::chrono::milliseconds(kLongestCall).count();
  ++heartbeat_->calls_;
}

SystemCall::~SystemCall() {
  if (!heartbeat_) return;
  // Count the time since the last check as progress.
  heartbeat_->beats_.fetch_add(1, std::memory_order_relaxed);
  --heartbeat_->calls_;
  // Another thread of the replica may have beaten in the meantime.
  const char* expected = doing_;
  heartbeat_->doing_.compare_exchange_strong(expected, before_, std::memory_order_relaxed);
}

std::string Heartbeat::text() const {
  const std::int64_t step = step_.load(std::memory_order_relaxed);
  const char* doing = doing_.load(std::memory_order_relaxed);
  std::string text = step > 0 ? fmt::format("step {}", step) : std::string("before its first step");
  if (doing) text += fmt::format(", {}", doing);
  return text;
}

const std::shared_ptr<Heartbeat>& heartbeat_of_thread() noexcept {
  return t_heartbeat;
}

void set_heartbeat_of_thread(std::shared_ptr<Heartbeat> heartbeat) noexcept {
  t_heartbeat = std::move(heartbeat);
}

}  // namespace dpt
