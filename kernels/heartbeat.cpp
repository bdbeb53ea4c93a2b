#include "kernels/heartbeat.h"

#include <fmt/format.h>

#include <utility>

namespace dpt {
namespace {

thread_local std::shared_ptr<Heartbeat> t_heartbeat;

}  // namespace

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
