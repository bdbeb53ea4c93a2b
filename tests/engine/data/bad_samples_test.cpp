// Unreadable samples are replaced by others, which are the same for every reader.
#include "engine/data/bad_samples.h"

#include <cstring>
#include <numeric>
#include <set>

#include "engine/data/loader.h"
#include "tests/engine/data/support.h"

namespace dpt {
namespace {

using namespace data_test;

/// Source in which sample i is one byte of value i with the label i; some samples cannot be read.
class PartlyBad final : public DataSource {
 public:
  explicit PartlyBad(std::set<std::int64_t> bad) : bad_(std::move(bad)) {}
  std::int64_t size() const override { return 20; }
  SampleShape shape() const override { return {1, 1, 1}; }
  DType type() const override { return DType::u8; }
  const std::vector<std::string>& classes() const override { return classes_; }
  void read_in_epoch(const Occurrence& sample, std::span<std::byte> pixels,
                     std::int32_t& label) const override {
    if (sample.index == 9 && sample.epoch == 1)
      fail(ErrorKind::data, "{}: bad in its lower half", describe(sample.index));
    if (sample.index == 10 && sample.epoch == 1) throw DamagedCache("the cache is damaged");
    read(sample.index, pixels, label);
    keys.push_back(sample.key);
  }
  void read(std::int64_t index, std::span<std::byte> pixels, std::int32_t& label) const override {
    if (bad_.contains(index)) fail(ErrorKind::data, "{}: bad", describe(index));
    pixels[0] = static_cast<std::byte>(index);
    label = static_cast<std::int32_t>(index);
  }
  std::string describe(std::int64_t index) const override { return fmt::format("file {}", index); }
  std::string fingerprint() const override { return "partly bad"; }

  mutable std::vector<std::int64_t> keys;  ///< keys of the draws of each read

 private:
  std::set<std::int64_t> bad_;
  std::vector<std::string> classes_ = std::vector<std::string>(20);
};

TEST_CASE("the next sample of the split takes the place of one that cannot be read") {
  const auto bad = std::make_shared<BadSamples>(3);
  // 5 and 18 are held out for validation, so they cannot be replacements.
  std::vector<std::int64_t> indices(20);
  std::iota(indices.begin(), indices.end(), 0);
  std::erase_if(indices, [](std::int64_t i) { return i == 5 || i == 18; });
  const auto source = with_substitutes(
      std::make_shared<PartlyBad>(std::set<std::int64_t>{4, 17, 19}), indices, bad);
  const auto label_of = [&](std::int64_t index) {
    std::byte pixel{};
    std::int32_t label = -1;
    source->read_in_epoch({3, index, index}, {&pixel, 1}, label);
    CHECK(std::to_integer<int>(pixel) == label);
    return label;
  };
  CHECK(label_of(3) == 3);
  CHECK(bad->take_new().empty());
  for (int i = 0; i < 2; ++i) CHECK(label_of(4) == 6);
  CHECK((bad->take_new() == std::vector<std::string>{"file 4: bad"}));
  CHECK(label_of(17) == 0);
  CHECK(label_of(19) == 0);
  CHECK((bad->take_new() == std::vector<std::string>{"file 17: bad", "file 19: bad"}));
  CHECK(bad->count() == 3);
}

TEST_CASE(
    "a replacement draws as the sample whose place it takes, anew for each time in an epoch") {
  const auto bad = std::make_shared<BadSamples>(3);
  const auto files = std::make_shared<PartlyBad>(std::set<std::int64_t>{4});
  const auto source = with_substitutes(files, {4, 6, 8}, bad);
  std::byte pixel{};
  std::int32_t label = -1;
  for (const std::int64_t time : {0, 1, 2}) {
    source->read_in_epoch({0, 4, 4 + 20 * time}, {&pixel, 1}, label);
    CHECK(label == 6);
  }
  CHECK((files->keys == std::vector<std::int64_t>{6, 26, 46}));
}

TEST_CASE("whether a sample can be read is asked anew in each epoch, whatever came before") {
  const auto bad = std::make_shared<BadSamples>(3);
  const auto source =
      with_substitutes(std::make_shared<PartlyBad>(std::set<std::int64_t>{}), {8, 9, 11}, bad);
  const auto label_of = [&](std::int64_t epoch) {
    std::byte pixel{};
    std::int32_t label = -1;
    source->read_in_epoch({epoch, 9, 9}, {&pixel, 1}, label);
    return label;
  };
  // A sample that one crop cannot read may be readable for the crop of another epoch.
  CHECK(label_of(0) == 9);
  CHECK(label_of(1) == 11);
  CHECK(label_of(2) == 9);
  std::byte pixel{};
  std::int32_t label = -1;
  CHECK(error_of([&] {
          source->read_in_epoch({1, 10, 10}, {&pixel, 1}, label);
        }) == "the cache is damaged");
  CHECK(bad->count() == 1);
}

TEST_CASE("an evaluation learns which results are those of another sample") {
  const auto left_out = std::make_shared<LeftOutSamples>();
  const auto source = with_substitutes(std::make_shared<PartlyBad>(std::set<std::int64_t>{4, 5}),
                                       {3, 4, 5, 6}, std::make_shared<BadSamples>(3), left_out);
  std::byte pixel{};
  std::int32_t label = -1;
  source->read(3, {&pixel, 1}, label);
  CHECK_FALSE(left_out->contains(3));
  // The next sample is unreadable too.
  source->read(4, {&pixel, 1}, label);
  CHECK(label == 6);
  CHECK(left_out->contains(4));
  CHECK(left_out->contains(5));
  CHECK_FALSE(left_out->contains(6));
}

TEST_CASE("too many unreadable samples end the run, and so does the lack of a readable one") {
  const auto bad = std::make_shared<BadSamples>(2);
  const auto source = with_substitutes(std::make_shared<PartlyBad>(std::set<std::int64_t>{1, 2, 3}),
                                       {0, 1, 2, 3}, bad);
  const auto read = [](const DataSource& from, std::int64_t index) {
    std::byte pixel{};
    std::int32_t label = 0;
    from.read_in_epoch({0, index, index}, {&pixel, 1}, label);
  };
  read(*source, 3);
  CHECK(error_of([&] { read(*source, 1); }) ==
        "file 2: bad. The number of bad samples is now 3, and data.max_bad_samples "
        "is 2: repair or remove the files (warnings name the others), or allow more");
  const auto none = with_substitutes(std::make_shared<PartlyBad>(std::set<std::int64_t>{6, 7}),
                                     {6, 7}, std::make_shared<BadSamples>(9));
  CHECK(error_of([&] { read(*none, 7); }) ==
        "none of the 2 samples can be read; the first was file 7");
}

}  // namespace
}  // namespace dpt
