// The survey of all samples, perceptual hashes, and the conclusions from them.
#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>

#include "engine/data/data_check.h"
#include "engine/data/data_report.h"
#include "engine/data/sample_survey.h"
#include "engine/data/split.h"
#include "engine/data/splits.h"
#include "kernels/base/philox.h"
#include "kernels/base/worker_threads.h"
#include "kernels/image/perceptual_hash.h"
#include "tests/engine/data/support.h"

namespace dpt {
namespace {

using namespace data_test;

/// Source whose samples of floats or bytes come from a function.
struct MadeSource final : DataSource {
  using Make = std::function<void(std::int64_t index, std::span<std::byte> pixels)>;
  MadeSource(std::int64_t size, SampleShape shape, DType type, Make make)
      : size_(size), shape_(shape), type_(type), make_(std::move(make)) {}
  std::int64_t size() const override { return size_; }
  SampleShape shape() const override { return shape_; }
  DType type() const override { return type_; }
  const std::vector<std::string>& classes() const override { return classes_; }
  void read(std::int64_t index, std::span<std::byte> pixels, std::int32_t& label) const override {
    label = static_cast<std::int32_t>(index % 2);
    make_(index, pixels);
  }
  std::string describe(std::int64_t index) const override {
    return "sample " + std::to_string(index);
  }
  std::string fingerprint() const override { return "made"; }

  std::int64_t size_;
  SampleShape shape_;
  DType type_;
  Make make_;
  std::vector<std::string> classes_ = {"even", "odd"};
};

/// Returns a smooth image, a different one for each seed.
Bytes smooth_image(SampleShape shape, std::uint64_t seed, double gain = 1, double offset = 0) {
  const auto random = [&](std::uint64_t i) {
    return philox::uniform(philox::block(seed, philox::Use::synthesis, i, 0).v[0]);
  };
  Bytes pixels;
  for (std::int64_t y = 0; y < shape.h; ++y) {
    for (std::int64_t x = 0; x < shape.w; ++x) {
      for (std::int64_t c = 0; c < shape.c; ++c) {
        double value = 128;
        for (std::uint64_t wave = 0; wave < 8; ++wave) {
          const double fx = 14.0 * random(4 * wave) - 7, fy = 14.0 * random(4 * wave + 1) - 7;
          value +=
              14 * std::cos(6.28 * (fx * static_cast<double>(x) / static_cast<double>(shape.w) +
                                    fy * static_cast<double>(y) / static_cast<double>(shape.h) +
                                    random(4 * wave + 2)) +
                            static_cast<double>(c));
        }
        pixels.push_back(static_cast<std::uint8_t>(std::clamp(value * gain + offset, 0.0, 255.0)));
      }
    }
  }
  return pixels;
}

Split whole(std::shared_ptr<const DataSource> source) {
  Split split{source, {}};
  for (std::int64_t i = 0; i < source->size(); ++i) split.indices.push_back(i);
  return split;
}

/// Returns the survey's statistics.
ChannelStatistics statistics_of(const std::shared_ptr<const DataSource>& source, int workers) {
  std::vector<SurveyedSplit> splits = {{"train", whole(source), {}, {}, {}}};
  SurveyOptions options;
  options.workers = workers;
  REQUIRE(survey_samples(splits, options));
  return splits[0].statistics;
}

}  // namespace

TEST_CASE("perceptual hash: nearly the same for a brighter and flatter image") {
  const SampleShape shape{32, 32, 3};
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    CAPTURE(seed);
    const std::uint64_t hash = perceptual_hash(smooth_image(shape, seed), shape);
    CHECK(std::popcount(hash ^ perceptual_hash(smooth_image(shape, seed, 0.8, 10), shape)) <= 3);
    CHECK(std::popcount(hash ^ perceptual_hash(smooth_image(shape, seed + 100), shape)) > 8);
    // Bytes and floats with the same numbers have the same hash.
    const Bytes bytes = smooth_image(shape, seed);
    const std::vector<float> floats(bytes.begin(), bytes.end());
    CHECK(perceptual_hash(floats, shape) == hash);
  }
  CHECK(!has_perceptual_hash({7, 8, 1}));
  CHECK(has_perceptual_hash({8, 8, 1}));
}

TEST_CASE("similar hashes: all pairs up to the distance, and none above it") {
  std::vector<std::uint64_t> hashes;
  const auto random = [](std::uint64_t i) {
    const auto words = philox::block(7, philox::Use::synthesis, i, 0);
    return std::uint64_t{words.v[0]} << 32 | words.v[1];
  };
  for (std::uint64_t i = 0; i < 300; ++i) {
    hashes.push_back(random(i));
    // Adds a hash that differs in 0 to 7 bits, anywhere.
    std::uint64_t changed = random(i);
    for (std::uint64_t bit = 0; bit < i % 8; ++bit) {
      changed ^= std::uint64_t{1} << (random(1000 + 8 * i + bit) % 64);
    }
    hashes.push_back(changed);
  }
  for (const int distance : {0, 3, 5}) {
    std::vector<std::pair<std::uint32_t, std::uint32_t>> expected;
    for (std::uint32_t i = 0; i < hashes.size(); ++i) {
      for (std::uint32_t j = i + 1; j < hashes.size(); ++j) {
        if (std::popcount(hashes[i] ^ hashes[j]) <= distance) expected.emplace_back(i, j);
      }
    }
    REQUIRE(expected.size() >= 300 / 8);
    for (const int workers : {1, 3}) {
      const SimilarHashes found = find_similar_hashes(hashes, distance, workers, {});
      CHECK(found.complete);
      CHECK(found.pairs == expected);
    }
  }
}

TEST_CASE("similar hashes: when very many are alike, it says that it did not compare all") {
  const std::vector<std::uint64_t> equal(1000, 42);
  const SimilarHashes few = find_similar_hashes(equal, 5, 2, {}, 100);
  CHECK(!few.complete);
  // Each hash is paired with the 50 that follow.
  CHECK(few.pairs.size() == 999 * 50 - 49 * 50 / 2);
  const SimilarHashes limited = find_similar_hashes(equal, 5, 2, {}, 4096, 700);
  CHECK(!limited.complete);
  CHECK(limited.pairs.size() <= 700);
  CHECK(find_similar_hashes(equal, 5, 2, {}).pairs.size() == 1000 * 999 / 2);
}

TEST_CASE("statistics: bytes exactly, floats to the last digits, on any number of threads") {
  const SampleShape shape{5, 3, 3};
  const auto bytes = std::make_shared<MadeSource>(
      101, shape, DType::u8, [](std::int64_t index, std::span<std::byte> pixels) {
        const Bytes made = noise(pixels.size(), static_cast<std::uint32_t>(index));
        std::memcpy(pixels.data(), made.data(), pixels.size());
      });
  const auto floats = std::make_shared<MadeSource>(
      101, shape, DType::f32, [](std::int64_t index, std::span<std::byte> pixels) {
        const Bytes made = noise(pixels.size() / 4, static_cast<std::uint32_t>(index));
        std::vector<float> values;
        // The mean is far from 0: a sum of squares alone would lose the deviation.
        for (const std::uint8_t byte : made)
          values.push_back(1e4F + static_cast<float>(byte) / 255);
        std::memcpy(pixels.data(), values.data(), pixels.size());
      });
  std::vector<double> mean(3), squares(3);
  for (std::int64_t i = 0; i < 101; ++i) {
    const Bytes made = noise(45, static_cast<std::uint32_t>(i));
    for (std::size_t k = 0; k < made.size(); ++k) mean[k % 3] += made[k] / 255.0 / (101 * 15);
  }
  for (std::int64_t i = 0; i < 101; ++i) {
    const Bytes made = noise(45, static_cast<std::uint32_t>(i));
    for (std::size_t k = 0; k < made.size(); ++k) {
      squares[k % 3] += std::pow(made[k] / 255.0 - mean[k % 3], 2) / (101 * 15);
    }
  }
  const ChannelStatistics of_bytes = statistics_of(bytes, 1), of_floats = statistics_of(floats, 1);
  CHECK(of_bytes.samples == 101);
  for (std::size_t c = 0; c < 3; ++c) {
    CHECK(of_bytes.mean[c] == doctest::Approx(mean[c]).epsilon(1e-12));
    CHECK(of_bytes.stddev[c] == doctest::Approx(std::sqrt(squares[c])).epsilon(1e-12));
    CHECK(of_floats.mean[c] == doctest::Approx(1e4 + mean[c]).epsilon(1e-9));
    // Near 1e4, floats are 1e-3 apart.
    CHECK(of_floats.stddev[c] == doctest::Approx(std::sqrt(squares[c])).epsilon(1e-3));
  }
  for (const int workers : {2, 7}) {
    CHECK(statistics_of(bytes, workers).stddev == of_bytes.stddev);
    CHECK(statistics_of(floats, workers).mean == of_floats.mean);
    CHECK(statistics_of(floats, workers).stddev == of_floats.stddev);
  }
}

TEST_CASE("a survey names unreadable samples, and throws errors that are not the data's fault") {
  const auto source = [](ErrorKind kind) {
    return std::make_shared<MadeSource>(40, SampleShape{1, 1, 1}, DType::u8,
                                        [kind](std::int64_t index, std::span<std::byte> pixels) {
                                          if (index == 7 || index == 33)
                                            throw Error(kind, "torn " + std::to_string(index));
                                          pixels[0] = static_cast<std::byte>(index);
                                        });
  };
  std::vector<SurveyedSplit> splits = {{"train", whole(source(ErrorKind::data)), {}, {}, {}}};
  SurveyOptions options;
  options.workers = 3;
  REQUIRE(survey_samples(splits, options));
  REQUIRE(splits[0].unreadable.size() == 2);
  CHECK(splits[0].unreadable[0] == std::pair<std::int64_t, std::string>(7, "torn 7"));
  CHECK(splits[0].unreadable[1].first == 33);
  CHECK(splits[0].statistics.samples == 38);
  CHECK(!splits[0].records[7].is_read);
  CHECK(splits[0].records[8].is_read);
  splits = {{"train", whole(source(ErrorKind::device)), {}, {}, {}}};
  CHECK(error_of([&] { survey_samples(splits, options); }, ErrorKind::device).find("torn") == 0);
}

TEST_CASE("a survey and a search end soon when they are asked to") {
  // Reads of sample 10 and later ones block until the survey has been asked to stop.
  std::mutex mutex;
  std::condition_variable changed;
  bool reached = false, asked = false;
  std::atomic<int> reads{0};
  const auto source = std::make_shared<MadeSource>(
      1'000'000, SampleShape{1, 1, 1}, DType::u8, [&](std::int64_t index, std::span<std::byte>) {
        ++reads;
        if (index < 10) return;
        std::unique_lock lock(mutex);
        reached = true;
        changed.wait(lock, [&] { return asked; });
        lock.unlock();
        // Slow the reads down: a survey that notices the request late has not read everything yet.
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      });
  Splits splits;
  splits.train = whole(source);
  DataCheckOptions options;
  options.workers = 2;
  options.wants_stop = [&] {
    const std::lock_guard lock(mutex);
    asked = reached;
    changed.notify_all();
    return asked;
  };
  CHECK(check_data(splits, options).interrupted);
  CHECK(reads < 1'000'000);

  const std::vector<std::uint64_t> equal(20'000, 1);
  CHECK(find_similar_hashes(equal, 5, 2, [] { return true; }).interrupted);
}

TEST_CASE("a comparison of similar images ends soon when it is asked to") {
  // The third read, the first of the comparison, blocks until the survey has been asked to stop.
  std::mutex mutex;
  std::condition_variable changed;
  bool reached = false, asked = false;
  int reads = 0;
  const auto source = std::make_shared<MadeSource>(
      2, SampleShape{32, 32, 1}, DType::u8, [&](std::int64_t index, std::span<std::byte> pixels) {
        for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = std::byte(i * i / 7 % 256);
        pixels[0] = std::byte(index);
        std::unique_lock lock(mutex);
        if (++reads <= 2) return;
        reached = true;
        changed.wait(lock, [&] { return asked; });
      });
  Splits splits;
  splits.train = whole(source);
  DataCheckOptions options;
  options.workers = 1;
  options.wants_stop = [&] {
    const std::lock_guard lock(mutex);
    asked = reached;
    changed.notify_all();
    return asked;
  };
  CHECK(check_data(splits, options).interrupted);
  CHECK(reached);
}

TEST_CASE("worker threads: an exception in one ends all, and is thrown") {
  std::atomic<int> ended{0};
  const std::string text = error_of(
      [&] {
        std::atomic<bool> first{true};
        run_workers(4, "test",
                    [&](const std::atomic<bool>& stop) {
                      if (first.exchange(false)) throw Error(ErrorKind::data, "the first");
                      while (!stop) std::this_thread::yield();
                      ++ended;
                    },
                    {});
      },
      ErrorKind::data);
  CHECK(text == "the first");
  CHECK(ended == 3);
}

TEST_CASE("findings: classes that are rare, missing, not trained or not measured") {
  const auto source = [](std::vector<std::int64_t> counts) {
    struct Labelled final : DataSource {
      std::vector<std::int32_t> labels;
      std::vector<std::string> names{"a", "b", "c", "d", "e"};
      std::int64_t size() const override { return static_cast<std::int64_t>(labels.size()); }
      SampleShape shape() const override { return {1, 2, 1}; }
      DType type() const override { return DType::u8; }
      const std::vector<std::string>& classes() const override { return names; }
      void read(std::int64_t i, std::span<std::byte> pixels, std::int32_t& label) const override {
        label = labels[i];
        const Bytes made = noise(2, static_cast<std::uint32_t>(i * 7919 + 1));
        std::memcpy(pixels.data(), made.data(), 2);
      }
      std::string describe(std::int64_t) const override { return "x"; }
      std::string fingerprint() const override { return "x"; }
    };
    auto made = std::make_shared<Labelled>();
    for (std::size_t c = 0; c < counts.size(); ++c) {
      made->labels.insert(made->labels.end(), static_cast<std::size_t>(counts[c]),
                          static_cast<std::int32_t>(c));
    }
    return made;
  };
  Splits splits;
  splits.train = whole(source({30, 3, 20, 0, 0}));
  splits.test = whole(source({5, 5, 0, 2, 0}));
  const DataReport report = check_data(splits, {});
  const auto said = [&](FindingKind kind) {
    std::string text;
    for (const Finding& finding : report.findings) {
      if (finding.kind == kind) text += finding.message + "\n";
    }
    return text;
  };
  CHECK(said(FindingKind::few_samples) ==
        "class b: 3 training samples; on average, a class has 10.6\n");
  CHECK(said(FindingKind::class_not_trained) ==
        "class d: train has no samples of it, but the other splits have 2\n");
  CHECK(said(FindingKind::class_missing) == "class e: no split has samples of it\n");
  CHECK(said(FindingKind::class_not_measured) ==
        "class c: test has no samples of it, but train has 20\n");
  CHECK(report.class_counts[1] == std::vector<std::int64_t>{5, 5, 0, 2, 0});
}

}  // namespace dpt
