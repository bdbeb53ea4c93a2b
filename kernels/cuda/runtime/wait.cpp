#include "kernels/cuda/runtime/wait.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "kernels/base/heartbeat.h"
#include "kernels/base/text.h"
#include "kernels/cuda/runtime/check.h"

namespace dpt {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;
using std::chrono::milliseconds;

// Time for which a wait polls without sleeping: most waits of a step are shorter.
constexpr microseconds kSpin{100};
// Sleeps grow with the time waited, so that a wait ends at most 3 % late.
constexpr int kPausesPerWait = 32;
constexpr microseconds kShortestPause{20};
constexpr milliseconds kLongestPause{50};
// Time in which a GPU must finish its work after another replica has failed. A healthy GPU that
// waits for no other needs less.
constexpr milliseconds kGrace{10'000};

[[noreturn]] void lose(const CudaContext& context, Clock::duration waited, bool after_failure) {
  set_device_lost(true);
  const std::string why = after_failure ? "after another replica failed" : "(train.stall_timeout)";
  throw LostDevice(fmt::format(
      "{} ({}): its queued work has not finished within {} {}: this GPU, or one whose results it "
      "waits for, hangs or was lost. See nvidia-smi and the kernel's log (dmesg | grep Xid), then "
      "run the same command again to resume",
      context.name, context.gpu, seconds_text(waited), why));
}

/// Polls `query` with growing pauses until the work is complete.
template <class Query>
void poll(const CudaContext& context, const Query& query, const char* call) {
  const auto is_done = [&] {
    const cudaError_t status = query();
    if (status == cudaErrorNotReady) return false;
    cuda_check(status, call);
    return true;
  };
  const Clock::time_point begin = Clock::now();
  do {
    if (is_done()) return;
    std::this_thread::yield();
  } while (Clock::now() - begin < kSpin);
  beat("waiting for the GPU");
  const auto& has_failed = context.options.has_failed;
  const Clock::duration limit = context.options.wait_limit;
  // Time in which the process is suspended does not count.
  Clock::duration waited{0}, since_failure{0};
  for (;;) {
    const Clock::duration pause =
        std::clamp<Clock::duration>(waited / kPausesPerWait, kShortestPause, kLongestPause);
    const Clock::time_point from = Clock::now();
    std::this_thread::sleep_for(pause);
    if (is_done()) return;
    const Clock::duration span =
        std::min(Clock::now() - from, pause + Clock::duration(kLongestPause));
    waited += span;
    if (waited >= limit) lose(context, waited, false);
    if (is_device_lost() || (has_failed && *has_failed)) {
      since_failure += span;
      if (since_failure >= std::min<Clock::duration>(limit, kGrace)) {
        lose(context, since_failure, true);
      }
    }
  }
}

}  // namespace

void wait_for_event(const CudaContext& context, cudaEvent_t event) {
  poll(
      context, [event] { return cudaEventQuery(event); }, "cudaEventQuery");
}

void wait_for_stream(const CudaContext& context, cudaStream_t stream) {
  poll(
      context, [stream] { return cudaStreamQuery(stream); }, "cudaStreamQuery");
}

}  // namespace dpt
