// The probes of scripts/gpu/check. Checks only the order of their calls: times mean nothing here.
#include <string>

#include "kernels/base/error.h"
#include "machine.h"
#include "tests/probes/probes.h"

namespace dpt::probes {
namespace {

constexpr Options kFew = {0, 3, 3, std::size_t{1} << 20};

std::string failure_of(const Options& options) {
  try {
    run(options);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::device);
    return error.what();
  }
  return "nothing failed";
}

TEST_CASE("probes count every dependency, and have a time for each probe") {
  const Machine machine;
  const Results results = run(kFew);
  CHECK(results.timings.size() == 13);
  for (const Timing& timing : results.timings) {
    CAPTURE(timing.name);
    CHECK(timing.device_us.least <= timing.device_us.median);
    CHECK(timing.device_us.median <= timing.device_us.most);
    CHECK(timing.device_us.median > 0);
    CHECK(timing.host_us.median > 0);
  }
  CHECK(results.bandwidths.size() == 3);
  for (const Bandwidth& bandwidth : results.bandwidths) CHECK(bandwidth.gb_per_s.median > 0);
  CHECK(results.edge_us > 0);
  CHECK(results.full_edge_us > results.edge_us);
  CHECK(results.round_trip_us > 0);
  CHECK(emulation::memory_in_use(0) == 0);
}

TEST_CASE("probes report a missing GPU and a failed call") {
  const Machine machine;
  CHECK(failure_of({9}).starts_with("no GPU number 9"));
  for (const char* call : {"cudaGraphInstantiate", "cudaMemcpyAsync", "cudaEventElapsedTime"}) {
    CAPTURE(call);
    emulation::fail(std::string(call) + ":2:cudaErrorInvalidValue");
    CHECK(failure_of(kFew).find(call) != std::string::npos);
    CHECK(emulation::memory_in_use(0) == 0);
  }
}

}  // namespace
}  // namespace dpt::probes
