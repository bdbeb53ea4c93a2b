#include "kernels/base/lost_device.h"

#include <atomic>

namespace dpt {
namespace {

std::atomic<bool> g_is_lost{false};

}  // namespace

bool is_device_lost() noexcept {
  return g_is_lost.load();
}
void set_device_lost(bool lost) noexcept {
  g_is_lost.store(lost);
}

}  // namespace dpt
