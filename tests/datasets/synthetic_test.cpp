// Synthetic data: identical everywhere, learnable, and as hard as requested.
#include <zlib.h>

#include <cmath>

#include "engine/data/data_sets.h"
#include "kernels/base/philox.h"
#include "tests/engine/data/support.h"

namespace dpt {
namespace {

using namespace data_test;

DataSets make(double difficulty, std::int64_t size = 500) {
  return open("synthetic",
              {{"size", size}, {"test_size", std::int64_t{200}}, {"difficulty", difficulty}},
              {{8, 8, 1}, 5});
}

/// Computes the mean of each class over the training samples. Returns the share of test samples
/// that are nearest to the mean of their own class.
double nearest_mean_accuracy(const DataSets& sets) {
  std::vector<std::vector<double>> means(5, std::vector<double>(64));
  for (std::int64_t i = 0; i < sets.train->size(); ++i) {
    const auto [pixels, label] = sample(*sets.train, i);
    for (std::size_t p = 0; p < 64; ++p) means[label][p] += pixels[p];
  }
  int right = 0;
  for (std::int64_t i = 0; i < sets.test->size(); ++i) {
    const auto [pixels, label] = sample(*sets.test, i);
    double best = 1e300;
    std::size_t answer = 0;
    for (std::size_t c = 0; c < 5; ++c) {
      double distance = 0;
      for (std::size_t p = 0; p < 64; ++p) {
        distance +=
            std::pow(means[c][p] / static_cast<double>(sets.train->size() / 5) - pixels[p], 2);
      }
      if (distance < best) {
        best = distance;
        answer = c;
      }
    }
    right += answer == static_cast<std::size_t>(label);
  }
  return right / static_cast<double>(sets.test->size());
}

TEST_CASE("synthetic data can be learnt, up to pure noise") {
  CHECK(nearest_mean_accuracy(make(0)) == 1);
  CHECK(nearest_mean_accuracy(make(0.5)) > 0.95);
  CHECK(nearest_mean_accuracy(make(1)) < 0.4);
}

TEST_CASE("synthetic data is the same on every machine and in every version") {
  const DataSets sets = make(0.5);
  const Bytes pixels = sample(*sets.train, 123).first;
  CHECK(crc32(0, pixels.data(), 64) == 2608369538U);
  CHECK(sample(*sets.train, 123).second == 3);
  CHECK(sample(*make(0.5, 200).train, 123).first == pixels);
  CHECK(sample(*sets.test, 123).first != pixels);
  CHECK(make(0.5).train->fingerprint() == sets.train->fingerprint());
  CHECK(make(0.4).train->fingerprint() != sets.train->fingerprint());
}

TEST_CASE("synthetic patterns: eight by eight cells of each channel, stretched over the image") {
  const SampleShape shape{5, 12, 3};
  const DataSets sets =
      open("synthetic", {{"size", std::int64_t{9}}, {"difficulty", 0.0}}, {shape, 4});
  for (std::int64_t index = 0; index < 9; ++index) {
    const auto [pixels, label] = sample(*sets.train, index);
    REQUIRE(label == index % 4);
    std::size_t at = 0, wrong = 0;
    for (std::int64_t y = 0; y < shape.h; ++y) {
      for (std::int64_t x = 0; x < shape.w; ++x) {
        for (std::int64_t c = 0; c < shape.c; ++c, ++at) {
          const std::int64_t cell = (label * 8 + y * 8 / shape.h) * 8 + x * 8 / shape.w;
          const philox::Block bits =
              philox::block(0, philox::Use::synthesis, std::uint64_t{1} << 41,
                            static_cast<std::uint64_t>(cell * shape.c + c));
          wrong += pixels[at] != bits.v[0] >> 24;
        }
      }
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE(
    "synthetic samples have names and, made as they are read, a fingerprint of what made them") {
  const DataSets kept = make(0.5);
  CHECK(kept.train->describe(7) == "synthetic training data, sample 7");
  CHECK(kept.test->describe(7) == "synthetic test data, sample 7");
  const auto large = [](std::int64_t size, double difficulty, SampleShape shape = {512, 512, 3}) {
    const DataSets sets =
        open("synthetic", {{"size", size}, {"test_size", size}, {"difficulty", difficulty}},
             {shape, 10});
    REQUIRE(!sets.train->resident());
    return sets;
  };
  const DataSets sets = large(400, 0.5);
  CHECK(sets.train->describe(7) == "synthetic training sample 7");
  CHECK(sets.test->describe(7) == "synthetic test sample 7");
  CHECK(sets.train->fingerprint() == large(400, 0.5).train->fingerprint());
  CHECK(sets.train->fingerprint() != sets.test->fingerprint());
  CHECK(sets.train->fingerprint() != large(401, 0.5).train->fingerprint());
  CHECK(sets.train->fingerprint() != large(400, 0.25).train->fingerprint());
  CHECK(sets.train->fingerprint() != large(400, 0.5, {512, 513, 3}).train->fingerprint());
}

TEST_CASE("synthetic data fits the model, or says why not") {
  const DataSets sets = open("synthetic", {{"test_size", std::int64_t{0}}}, {{3, 5, 2}, 0});
  CHECK(sets.train->shape() == SampleShape{3, 5, 2});
  CHECK(sets.train->size() == 1024);
  CHECK(sets.train->classes().size() == 10);
  CHECK(sets.test == nullptr);
  CHECK(error_of([] {
          open("synthetic", {{"classes", std::int64_t{7}}}, {{3, 5, 2}, 10});
        }) ==
        "config.yaml:3:5: synthetic: the data set has 7 classes, but the model's last layer has 10 "
        "outputs: give it 7");
}

}  // namespace
}  // namespace dpt
