// What a step uploads: its own scalars and numbers, and nothing else.
#include "engine/training/feeder.h"

#include <doctest/doctest.h>

#include <cstring>
#include <numeric>

#include "tests/support/host_backend.h"
#include "tests/training/run.h"

using namespace dpt;
using namespace dpt::testing;

namespace {

/// Counts the bytes that are uploaded, and has no kernels.
class CountingBackend : public HostBackend {
 public:
  /// Since the last call.
  std::size_t take_uploaded() { return std::exchange(uploaded_, 0); }

  void upload(DevPtr to, const void* host, std::size_t bytes) override {
    std::memcpy(reinterpret_cast<void*>(to.address), host, bytes);
    uploaded_ += bytes;
  }
  void download(void*, DevPtr, std::size_t) override { no(); }
  void copy(DevPtr, DevPtr, std::size_t) override { no(); }
  void zero(DevPtr, std::size_t) override { no(); }
  std::unique_ptr<Op> conv2d(const Conv2dDesc&) override { no(); }
  std::unique_ptr<Op> linear(const LinearDesc&) override { no(); }
  std::unique_ptr<Op> pool2d(const Pool2dDesc&) override { no(); }
  std::unique_ptr<Op> relu(const ReluDesc&) override { no(); }
  std::unique_ptr<CrossEntropyOp> cross_entropy(const CrossEntropyDesc&) override { no(); }
  std::unique_ptr<InputOp> input(const InputDesc&) override { no(); }
  void add(DevPtr, DevPtr, DevPtr, std::int64_t) override { no(); }

 private:
  std::size_t uploaded_ = 0;
};

template <class T>
T at(DevPtr from, std::size_t index) {
  T value;
  std::memcpy(&value, reinterpret_cast<const T*>(from.address) + index, sizeof(T));
  return value;
}

/// The last `count` samples of a resident data set, last one first.
struct Backwards {
  Backwards(const DataSource& source, std::int64_t count)
      : ids(static_cast<std::size_t>(count)), slots(ids.size()) {
    std::iota(ids.rbegin(), ids.rend(), source.size() - count);
    std::copy(ids.begin(), ids.end(), slots.begin());
    batch.ids = ids;
    batch.slots = slots;
    if (const auto samples = source.resident()) {
      batch.pixels = samples->pixels;
      batch.labels = samples->labels;
    }
  }
  std::vector<std::int64_t> ids;
  std::vector<std::int32_t> slots;
  HostBatch batch;
};

}  // namespace

TEST_CASE("a step uploads no more than its own samples' numbers, after an evaluation too") {
  const Job job = small_job(small_config("{type: SGD, lr: 0.05}"), {"data.size=2000", cpus(1)});
  const DataSource& source = *job.splits.train.source;
  CountingBackend backend;
  Feeder feeder(backend);
  StepScalars scalars;
  scalars.lr = 0.25F;
  StepMetrics metrics;
  metrics.stop_votes = 1;
  const auto step = [&](int slot, std::int64_t samples) {
    const Backwards given(source, samples);
    const FedBatch fed = feeder.feed(slot, scalars, metrics, given.batch, source);
    // Two lines for scalars and metrics; of a sample, the id in 64 bits and the slot in 32.
    CHECK(backend.take_uploaded() == 128 + static_cast<std::size_t>(samples) * 12);
    CHECK(at<StepScalars>(fed.batch.scalars, 0).lr == 0.25F);
    CHECK(at<StepMetrics>(fed.metrics, 0).stop_votes == 1);
    for (std::size_t k = 0; k < given.ids.size(); ++k) {
      CHECK(at<std::int64_t>(fed.batch.ids, k) == given.ids[k]);
      CHECK(at<std::int32_t>(fed.batch.slots, k) == given.slots[k]);
    }
    return fed;
  };
  step(0, 12);
  step(1, 5);
  step(0, 1500);  // an evaluation's piece
  const std::int64_t moves = feeder.moves();
  const FedBatch before = step(1, 12);
  step(2, 1000);
  step(3, 0);
  // Recordings hold the addresses: they are those of the number of samples.
  const FedBatch after = step(4, 12);
  CHECK(feeder.moves() == moves);
  CHECK(before.batch.ids == after.batch.ids);
  CHECK(before.batch.slots == after.batch.slots);
}
