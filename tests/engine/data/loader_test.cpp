// The loader over resident sources and over sources that decode, with several decoders, errors and
// shutdown at any moment.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <mutex>
#include <set>
#include <thread>

#include "engine/data/data_sets.h"
#include "engine/data/loader.h"
#include "engine/data/split.h"
#include "tests/engine/data/support.h"

namespace dpt {
namespace {

using namespace data_test;

constexpr std::int64_t kSamples = 200;

/// Source in which sample i is four bytes of value i with the label i % 10. It counts reads, can be
/// slow and can fail.
class CountingSource final : public DataSource {
 public:
  std::int64_t size() const override { return kSamples; }
  SampleShape shape() const override { return {2, 2, 1}; }
  DType type() const override { return DType::u8; }
  const std::vector<std::string>& classes() const override { return classes_; }
  TargetShape targets() const override { return shape_of_targets; }
  void read_targets(std::int64_t index, std::span<float> row) const override {
    for (std::size_t i = 0; i < row.size(); ++i) {
      row[i] = static_cast<float>(index) + static_cast<float>(i) / 4;
    }
  }
  void read(std::int64_t index, std::span<std::byte> pixels, std::int32_t& label) const override {
    if (delay.count() > 0) std::this_thread::sleep_for(delay * (index % 3));
    {
      const std::lock_guard lock(mutex_);
      seen_.insert(index);
    }
    if (bad.contains(index)) fail(ErrorKind::data, "sample {} is bad", index);
    std::memset(pixels.data(), static_cast<int>(index), pixels.size());
    label = static_cast<std::int32_t>(index % 10);
  }
  std::string describe(std::int64_t index) const override { return std::to_string(index); }
  std::string fingerprint() const override { return "counting"; }

  std::size_t reads() const {
    const std::lock_guard lock(mutex_);
    return seen_.size();
  }

  TargetShape shape_of_targets;
  std::chrono::microseconds delay{0};
  std::set<std::int64_t> bad;

 private:
  std::vector<std::string> classes_ = std::vector<std::string>(10);
  mutable std::mutex mutex_;
  mutable std::multiset<std::int64_t> seen_;
};

Split split_of(std::shared_ptr<const DataSource> source) {
  Split split{std::move(source), {}};
  for (std::int64_t i = 0; i < split.source->size(); ++i) split.indices.push_back(i);
  return split;
}

std::vector<Range> batches(std::int64_t n, std::int64_t size) {
  std::vector<Range> ranges;
  for (std::int64_t at = 0; at < n; at += size) ranges.push_back({at, std::min(n, at + size)});
  return ranges;
}

Loader::Options options(int workers, int prefetch = 3) {
  Loader::Options result;
  result.sampling.seed = 7;
  result.decoders = std::make_shared<DecoderPool>(workers);
  result.prefetch = prefetch;
  return result;
}

/// Checks that a batch holds the samples given by the epoch's order.
void check_batch(const HostBatch& batch, const Split& split, std::int64_t epoch, Range range) {
  const std::vector<std::int64_t> order = epoch_order(split.size(), 7, epoch, true);
  REQUIRE(static_cast<std::int64_t>(batch.slots.size()) == range.size());
  REQUIRE(batch.ids.size() == batch.slots.size());
  const auto sample_bytes = static_cast<std::size_t>(split.source->shape().elements());
  for (std::size_t k = 0; k < batch.slots.size(); ++k) {
    const std::int64_t index = split.indices[order[static_cast<std::size_t>(range.begin) + k]];
    REQUIRE(batch.ids[k] == index);
    const auto slot = static_cast<std::size_t>(batch.slots[k]);
    const auto [pixels, label] = sample(*split.source, index);
    REQUIRE(batch.labels[slot] == label);
    REQUIRE(std::memcmp(batch.pixels.data() + slot * sample_bytes, pixels.data(), sample_bytes) ==
            0);
    std::vector<float> row(static_cast<std::size_t>(split.source->targets().floats()));
    if (!row.empty()) split.source->read_targets(index, row);
    const auto staged = batch.targets.subspan(slot * row.size(), row.size());
    REQUIRE(std::equal(staged.begin(), staged.end(), row.begin()));
  }
}

TEST_CASE("a resident source is handed out as it lies in memory") {
  const Split split =
      split_of(open("synthetic", {{"size", std::int64_t{100}}}, {{3, 3, 1}, 10}).train);
  REQUIRE(split.source->resident());
  Loader loader(split, options(1));
  for (const std::int64_t epoch : {0, 1, 0}) {
    const std::vector<Range> ranges = batches(100, 32);
    loader.start(epoch, ranges);
    for (const Range range : ranges) {
      const HostBatch batch = loader.next();
      CHECK(batch.pixels.data() == split.source->resident()->pixels.data());
      CHECK(batch.wait_seconds == 0);
      check_batch(batch, split, epoch, range);
    }
  }
}

TEST_CASE("if samples are mixed, the one before the first is read too") {
  for (const bool resident : {true, false}) {
    for (const bool rows : {false, true}) {
      CAPTURE(resident);
      CAPTURE(rows);
      std::shared_ptr<const DataSource> source =
          open("synthetic", {{"size", std::int64_t{60}}}, {{3, 3, 1}, 10}).train;
      if (!resident) {
        auto counting = std::make_shared<CountingSource>();
        if (rows) counting->shape_of_targets = {TargetKind::values, 2, false};
        source = counting;
      }
      const Split split = split_of(source);
      Loader loader(split, options(2, 2));
      const std::vector<std::int64_t> order = epoch_order(split.size(), 7, 1, true);
      // The partner is right before the range, after its end, or part of it.
      const std::vector<Range> ranges = {{4, 8}, {8, 10}, {12, 18}, {20, 20}};
      const std::vector<std::int64_t> partners = {3, 11, 17, 24};
      loader.start(1, ranges, partners);
      for (std::size_t i = 0; i < 3; ++i) {
        CAPTURE(i);
        const HostBatch batch = loader.next();
        check_batch(batch, split, 1, ranges[i]);
        const std::int64_t id = split.indices[order[partners[i]]];
        CHECK(batch.partner_id == id);
        const auto slot = static_cast<std::size_t>(batch.partner_slot);
        const auto [pixels, label] = sample(*split.source, id);
        CHECK(batch.labels[slot] == label);
        CHECK(std::memcmp(batch.pixels.data() + slot * pixels.size(), pixels.data(),
                          pixels.size()) == 0);
        std::vector<float> row(static_cast<std::size_t>(split.source->targets().floats()));
        if (!row.empty()) split.source->read_targets(id, row);
        const auto staged = batch.targets.subspan(slot * row.size(), row.size());
        CHECK(std::equal(staged.begin(), staged.end(), row.begin()));
        if (!resident && i == 2) CHECK(slot == 5);  // not read twice
      }
      // The next start has no partners.
      loader.start(1, {{0, 5}});
      check_batch(loader.next(), split, 1, {0, 5});
    }
  }
}

TEST_CASE("batches come in order, whatever the decoders") {
  for (const int workers : {1, 2, 5}) {
    for (const int prefetch : {1, 2, 7}) {
      CAPTURE(workers);
      CAPTURE(prefetch);
      auto source = std::make_shared<CountingSource>();
      source->delay = std::chrono::microseconds(20);
      if (workers != 2) source->shape_of_targets = {TargetKind::values, 2, prefetch == 2};
      const Split split = split_of(source);
      Loader loader(split, options(workers, prefetch));
      for (std::int64_t epoch = 0; epoch < 2; ++epoch) {
        const std::vector<Range> ranges = batches(kSamples, 33);
        loader.start(epoch, ranges);
        for (const Range range : ranges) check_batch(loader.next(), split, epoch, range);
      }
    }
  }
}

TEST_CASE("a rank's part: uneven, empty and missing ranges, a subset of the source") {
  Split split = split_of(std::make_shared<CountingSource>());
  split.indices = {3, 1, 199, 50, 51, 52, 53, 54, 55, 60};
  Loader loader(split, options(2));
  const std::vector<Range> ranges = {{0, 2}, {2, 2}, {4, 9}, {9, 9}, {9, 10}};
  loader.start(4, ranges);
  for (const Range range : ranges) check_batch(loader.next(), split, 4, range);
  loader.start(5, {});
  loader.start(5, {{0, 0}});
  CHECK(loader.next().slots.empty());
}

TEST_CASE("each epoch has its own order, made ahead or not") {
  constexpr std::int64_t kMany = 5000;  // enough to be prepared ahead
  Split resident =
      split_of(open("synthetic", {{"size", std::int64_t{kMany}}}, {{1, 1, 1}, 10}).train);
  REQUIRE(resident.source->resident());
  std::reverse(resident.indices.begin(), resident.indices.end());
  Split decoded = split_of(std::make_shared<CountingSource>());
  decoded.indices.resize(kMany);
  for (std::size_t i = 0; i < decoded.indices.size(); ++i) {
    decoded.indices[i] = static_cast<std::int64_t>(i * 7 % kSamples);
  }
  for (const Split& split : {resident, decoded}) {
    Loader loader(split, options(2));
    // Epochs in sequence, repeated, from the middle, forward, and back.
    for (const std::int64_t epoch : {0, 1, 2, 2, 2, 7, 8, 3, 0, 1}) {
      CAPTURE(epoch);
      const std::vector<Range> ranges = {{0, 60}, {kMany - 40, kMany}};
      loader.start(epoch, ranges);
      for (const Range range : ranges) check_batch(loader.next(), split, epoch, range);
    }
  }
}

TEST_CASE("decoding runs ahead by `prefetch` batches and no further") {
  auto source = std::make_shared<CountingSource>();
  const Split split = split_of(source);
  Loader loader(split, options(3, 2));
  loader.start(0, batches(kSamples, 10));
  const auto settle = [&](std::size_t expected) {
    for (int i = 0; i < 60'000 && source->reads() < expected; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return source->reads();
  };
  CHECK(settle(20) == 20);
  loader.next();
  CHECK(settle(30) == 30);
  const HostBatch held = loader.next();
  const Bytes before(
      reinterpret_cast<const std::uint8_t*>(held.pixels.data()),
      reinterpret_cast<const std::uint8_t*>(held.pixels.data()) + held.pixels.size());
  CHECK(settle(40) == 40);
  // The buffer that the caller holds is not overwritten, however far ahead the decoders are.
  CHECK(std::memcmp(before.data(), held.pixels.data(), before.size()) == 0);
}

TEST_CASE("an error comes out of the batch it belongs to, the first of several") {
  for (const int workers : {1, 4}) {
    auto source = std::make_shared<CountingSource>();
    source->delay = std::chrono::microseconds(30);
    const Split split = split_of(source);
    const std::vector<std::int64_t> order = epoch_order(kSamples, 7, 0, true);
    source->bad = {order[45], order[57], order[59], order[120]};
    Loader loader(split, options(workers));
    loader.start(0, batches(kSamples, 20));
    loader.next();
    loader.next();
    CHECK(error_of([&] { loader.next(); }) == fmt::format("sample {} is bad", order[45]));
    // The loader remains usable for the following batches and for another epoch.
    CHECK(loader.next().slots.size() == 20);
    loader.start(0, {{0, 20}});
    check_batch(loader.next(), split, 0, {0, 20});
  }
}

TEST_CASE("at least one decoder works, at least one batch ahead") {
  const Split split = split_of(std::make_shared<CountingSource>());
  Loader loader(split, options(0, 0));
  loader.start(0, {{0, 30}, {30, 60}});
  check_batch(loader.next(), split, 0, {0, 30});
  check_batch(loader.next(), split, 0, {30, 60});
}

TEST_CASE("more samples than slots can number are refused") {
  class Huge final : public DataSource {
   public:
    std::int64_t size() const override { return std::int64_t{1} << 31; }
    SampleShape shape() const override { return {1, 1, 1}; }
    DType type() const override { return DType::u8; }
    const std::vector<std::string>& classes() const override { return classes_; }
    void read(std::int64_t, std::span<std::byte>, std::int32_t&) const override {}
    std::string describe(std::int64_t) const override { return {}; }
    std::string fingerprint() const override { return {}; }

   private:
    std::vector<std::string> classes_;
  };
  const Split split{std::make_shared<Huge>(), {}};
  CHECK(error_of([&] { Loader loader(split, options(1)); }) ==
        "the data set has 2147483648 samples, more than the limit of 2147483647");
}

TEST_CASE("shutdown and restart at any moment") {
  auto source = std::make_shared<CountingSource>();
  source->delay = std::chrono::microseconds(50);
  const Split split = split_of(source);
  for (int stop = 0; stop < 40; ++stop) {
    Loader loader(split, options(1 + stop % 4, 1 + stop % 3));
    if (stop % 10 == 9) continue;  // The loader was never started.
    loader.start(0, batches(kSamples, 16));
    for (int i = 0; i < stop % 5; ++i) loader.next();
    if (stop % 2) {
      loader.start(1, batches(kSamples, 50));
      check_batch(loader.next(), split, 1, {0, 50});
    }
  }
}

TEST_CASE("the time spent waiting for decoders is reported") {
  auto source = std::make_shared<CountingSource>();
  source->delay = std::chrono::microseconds(2000);
  const Split split = split_of(source);
  Loader loader(split, options(1));
  loader.start(0, batches(kSamples, 10));
  const double waited = loader.next().wait_seconds;
  CHECK(waited > 0.001);
  CHECK(waited < 10);
}

TEST_CASE("a large synthetic set is made as it is read") {
  const DataRequirements requirements{{512, 512, 3}, 10};
  const DataSets sets = open(
      "synthetic", {{"size", std::int64_t{400}}, {"test_size", std::int64_t{0}}}, requirements);
  CHECK(!sets.train->resident());
  const DataSets small =
      open("synthetic", {{"size", std::int64_t{20}}, {"test_size", std::int64_t{0}}}, requirements);
  REQUIRE(small.train->resident());
  CHECK(sample(*sets.train, 7) == sample(*small.train, 7));
}

}  // namespace
}  // namespace dpt
