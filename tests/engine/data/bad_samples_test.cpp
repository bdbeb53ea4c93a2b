// Training samples that cannot be read: their places are taken by others, the same whoever reads.
#include "engine/data/bad_samples.h"

#include <cstring>
#include <numeric>
#include <set>

#include "engine/data/loader.h"
#include "tests/engine/data/support.h"

namespace dpt {
namespace {

using namespace data_test;

/// Sample i is a byte of i with the label i; some cannot be read.
class PartlyBad final : public DataSource {
 public:
  explicit PartlyBad(std::set<std::int64_t> bad) : bad_(std::move(bad)) {}
  std::int64_t size() const override { return 20; }
  SampleShape shape() const override { return {1, 1, 1}; }
  DType type() const override { return DType::u8; }
  const std::vector<std::string>& classes() const override { return classes_; }
  TargetShape targets() const override { return {TargetKind::values, 1, false}; }
  void read_targets(std::int64_t index, std::span<float> row) const override {
    row[0] = static_cast<float>(index) / 2;
  }
  void read(std::int64_t index, std::span<std::byte> pixels, std::int32_t& label) const override {
    if (bad_.contains(index)) fail(ErrorKind::data, "{}: bad", describe(index));
    pixels[0] = static_cast<std::byte>(index);
    label = static_cast<std::int32_t>(index);
  }
  std::string describe(std::int64_t index) const override { return fmt::format("file {}", index); }
  std::string fingerprint() const override { return "partly bad"; }

 private:
  std::set<std::int64_t> bad_;
  std::vector<std::string> classes_ = std::vector<std::string>(20);
};

TEST_CASE("the next sample of the split takes the place of one that cannot be read") {
  const auto bad = std::make_shared<BadSamples>(3);
  // 5 and 18 are held out for validation: they take no place.
  std::vector<std::int64_t> indices(20);
  std::iota(indices.begin(), indices.end(), 0);
  std::erase_if(indices, [](std::int64_t i) { return i == 5 || i == 18; });
  const auto source = with_substitutes(
      std::make_shared<PartlyBad>(std::set<std::int64_t>{4, 17, 19}), indices, bad);
  const auto label_of = [&](std::int64_t index) {
    std::byte pixel{};
    std::int32_t label = -1;
    source->read_in_epoch(3, index, {&pixel, 1}, label);
    CHECK(std::to_integer<int>(pixel) == label);
    float target = 0;
    source->read_targets(index, {&target, 1});
    CHECK(target == static_cast<float>(label) / 2);
    return label;
  };
  CHECK(label_of(3) == 3);
  CHECK(bad->take_new().empty());
  for (int i = 0; i < 2; ++i) CHECK(label_of(4) == 6);
  CHECK((bad->take_new() == std::vector<std::string>{"file 4: bad"}));
  CHECK(source->describe(4) == "file 6");
  CHECK(label_of(17) == 0);
  CHECK(label_of(19) == 0);
  CHECK((bad->take_new() == std::vector<std::string>{"file 17: bad", "file 19: bad"}));
  CHECK(bad->count() == 3);
}

TEST_CASE("too many samples that cannot be read end the run, and so does none that can") {
  const auto bad = std::make_shared<BadSamples>(2);
  const auto source = with_substitutes(std::make_shared<PartlyBad>(std::set<std::int64_t>{1, 2, 3}),
                                       {0, 1, 2, 3}, bad);
  const auto read = [](const DataSource& from, std::int64_t index) {
    std::byte pixel{};
    std::int32_t label = 0;
    from.read_in_epoch(0, index, {&pixel, 1}, label);
  };
  read(*source, 3);
  CHECK(error_of([&] { read(*source, 1); }) ==
        "file 2: bad. It is training sample number 3 that cannot be read, and data.max_bad_samples "
        "is 2: repair or remove the files (train.log names the others), or allow more");
  const auto none = with_substitutes(std::make_shared<PartlyBad>(std::set<std::int64_t>{6, 7}),
                                     {6, 7}, std::make_shared<BadSamples>(9));
  CHECK(error_of([&] { read(*none, 7); }) ==
        "none of the 2 training samples can be read; the first was file 7");
}

}  // namespace
}  // namespace dpt
