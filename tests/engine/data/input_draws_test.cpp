// Draws for erasing samples and mixing batches, and their results in the input kernel, compared
// with torchvision.
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "engine/data/input_draws.h"
#include "engine/data/loader.h"
#include "engine/data/mixing.h"
#include "engine/data/transform_kinds.h"
#include "tests/engine/data/support.h"
#include "tests/support/backends.h"
#include "tests/support/op_runner.h"

namespace dpt {
namespace {

using namespace data_test;
using nlohmann::json;
using Floats = std::vector<float>;

Variant erasing_with(const Fields& fields = {}) {
  return variant(transform_kinds().table(), "RandomErasing", fields);
}

Variant mixing_with(const std::string& type, double alpha = 1) {
  return variant(batch_transform_kinds().table(), type, {{"alpha", alpha}});
}

InputDraws draws_of(std::vector<Variant> train, std::vector<Variant> batch,
                    std::uint64_t seed = 5) {
  TransformsSpec transforms;
  transforms.train = std::move(train);
  transforms.batch = std::move(batch);
  return {transforms, {20, 30, 3}, seed};
}

std::tuple<float, float, int, int, int, int> numbers_of(const BatchMix& mix) {
  const InputBox& box = mix.input.box;
  return {mix.own, mix.input.own, box.top, box.left, box.height, box.width};
}

Floats floats_of(const json& hexadecimal) {
  const auto text = hexadecimal.get<std::string>();
  Bytes bytes;
  for (std::size_t i = 0; i + 2 <= text.size(); i += 2) {
    bytes.push_back(static_cast<std::uint8_t>(std::stoi(text.substr(i, 2), nullptr, 16)));
  }
  Floats values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

/// Runs the batch of the golden file through the input kernel of every backend.
void check_pixels(const Floats& samples, InputDesc desc, const std::vector<InputBox>& boxes,
                  const InputMix& mix, const Floats& expected) {
  using testing::OnDevice;
  for (const auto& backend : testing::backends()) {
    INFO(backend->info().name);
    const auto last = static_cast<std::int32_t>(desc.batch) - 1;
    std::vector<std::int32_t> slots = {last};
    std::vector<std::int64_t> ids = {last};
    for (std::int32_t k = 0; k <= last; ++k) slots.push_back(k);
    for (std::int32_t k = 0; k <= last; ++k) ids.push_back(k);
    const OnDevice<float> raw(*backend, samples);
    const OnDevice<std::int32_t> own_slots(*backend, slots);
    const OnDevice<std::int64_t> own_ids(*backend, ids), epoch(*backend, {0});
    const OnDevice<InputBox> own_boxes(*backend, boxes);
    const OnDevice<InputMix> own_mix(*backend, {mix});
    const OnDevice<float> y(*backend, Floats(expected.size(), NAN));
    backend->make_input(desc)->run({raw.ptr(), own_slots.ptr() + sizeof(std::int32_t),
                                    own_ids.ptr() + sizeof(std::int64_t), epoch.ptr(), y.ptr(),
                                    own_boxes.ptr(), own_mix.ptr()});
    CHECK(y.get() == expected);
  }
}

TEST_CASE("batches are mixed, and samples erased, as torchvision does") {
  std::ifstream in(testing::source_dir() + "/tests/golden/mixing.json", std::ios::binary);
  const json file = json::parse(in);
  const auto shape = file.at("shape").get<std::vector<std::int64_t>>();
  const auto classes = file.at("classes").get<std::int64_t>();
  const Floats samples = floats_of(file.at("samples")), soft = floats_of(file.at("soft_labels"));
  const auto labels = file.at("labels").get<std::vector<std::int32_t>>();
  const Size2 size{shape[1], shape[2]};
  InputDesc desc;
  desc.batch = shape[0];
  desc.raw_type = DType::f32;
  desc.raw = desc.out = {shape[1], shape[2], shape[3]};
  std::map<std::string, int> counts;
  for (const json& each : file.at("cases")) {
    const std::string type = each.at("type");
    ++counts[type];
    json shown = each;
    shown["pixels"] = "";
    CAPTURE(shown.dump());
    const Floats expected = floats_of(each.at("pixels"));
    InputDesc here = desc;
    if (type == "RandomErasing") {
      const auto box = each.at("box").get<std::vector<std::int32_t>>();
      auto values = each.at("value").get<std::vector<double>>();
      values.resize(static_cast<std::size_t>(shape[3]), values[0]);
      here.erase = true;
      here.erase_value.assign(values.begin(), values.end());
      const InputBox erased{box[0], box[1], box[2], box[3]};
      check_pixels(samples, here, std::vector<InputBox>(5, erased), {}, expected);
      continue;
    }
    here.mix = true;
    const double lambda = each.at("lambda");
    const BatchMix mix =
        type == "MixUp" ? mix_up(lambda, size) : cut_mix(lambda, each.at("x"), each.at("y"), size);
    check_pixels(samples, here, {}, mix.input, expected);
    const Floats targets = floats_of(each.at("targets"));
    const auto width = static_cast<std::size_t>(classes);
    for (std::size_t k = 0; k < labels.size(); ++k) {
      const std::size_t before = (k + labels.size() - 1) % labels.size();
      const bool is_soft = each.contains("soft");
      const auto of = [&](std::size_t at) {
        return SampleTargets{labels[at], is_soft ? soft.data() + at * width : nullptr};
      };
      Floats row(width, NAN);
      const TargetShape mixed = mixed_targets(
          is_soft ? TargetShape{TargetKind::soft_labels, classes, false} : TargetShape{}, classes);
      const std::int32_t label = mix_targets(mixed, mix, of(k), of(before), row.data());
      const auto from = targets.begin() + static_cast<std::ptrdiff_t>(k * width);
      CHECK(row == Floats(from, from + static_cast<std::ptrdiff_t>(width)));
      CHECK(label == std::max_element(row.begin(), row.end()) - row.begin());
    }
  }
  CHECK(counts["MixUp"] == 7);
  CHECK(counts["CutMix"] == 7);
  CHECK(counts["RandomErasing"] == 3);
}

TEST_CASE("an equal mixture has the label of the first class") {
  Floats row(5);
  const TargetShape mixed = mixed_targets({}, 5);
  CHECK(mixed.kind == TargetKind::soft_labels);
  CHECK(mixed.values == 5);
  CHECK(mix_targets(mixed, mix_up(0.5, {1, 1}), {3}, {1}, row.data()) == 1);
  CHECK(row == Floats{0, 0.5F, 0, 0.5F, 0});
  // Targets without labels stay without labels.
  const TargetShape values{TargetKind::values, 2, false};
  CHECK(mixed_targets(values, 2) == values);
  const Floats own = {1, 8}, partner = {3, -8};
  CHECK(mix_targets(values, mix_up(0.75, {1, 1}), {0, own.data()}, {0, partner.data()},
                    row.data()) == 0);
  CHECK(row[0] == 1.5F);
  CHECK(row[1] == 4.0F);
}

TEST_CASE("factors have the distribution Beta(alpha, alpha)") {
  constexpr int kDraws = 20000;
  for (const double alpha : {0.01, 0.2, 0.7, 1.0, 3.0, 1000.0}) {
    CAPTURE(alpha);
    double sum = 0, squares = 0, fourth = 0;
    for (int i = 0; i < kDraws; ++i) {
      DrawStream draws(3, 0, i, 0, philox::Use::mix);
      const double value = draw_beta(alpha, draws);
      REQUIRE(value >= 0);
      REQUIRE(value <= 1);
      const double d = value - 0.5;
      sum += d;
      squares += d * d;
      fourth += d * d * d * d;
    }
    const double variance = 1 / (4 * (2 * alpha + 1));
    CHECK(std::abs(sum / kDraws) < 5 * std::sqrt(variance / kDraws));
    CHECK(squares / kDraws == doctest::Approx(variance).epsilon(0.05));
    // The kurtosis of a symmetric Beta is 3 variance^2 (2 alpha + 1) / (2 alpha + 3).
    const double kurtosis = 3 * variance * variance * (2 * alpha + 1) / (2 * alpha + 3);
    CHECK(fourth / kDraws == doctest::Approx(kurtosis).epsilon(0.1));
  }
}

TEST_CASE("mixing is drawn by seed, epoch and batch alone, and never changes between versions") {
  const InputDraws draws = draws_of({}, {mixing_with("CutMix")});
  CHECK(draws.mixes());
  CHECK(!draws.erases());
  CHECK(!InputDraws().mixes());
  CHECK(numbers_of(draws.mix(2, 3)) == numbers_of(draws_of({}, {mixing_with("CutMix")}).mix(2, 3)));
  std::set<std::tuple<float, float, int, int, int, int>> seen;
  for (std::int64_t epoch = 0; epoch < 5; ++epoch) {
    for (std::int64_t batch = 0; batch < 20; ++batch) {
      const BatchMix mix = draws.mix(epoch, batch);
      seen.insert(numbers_of(mix));
      const InputBox& box = mix.input.box;
      CHECK(box.top >= 0);
      CHECK(box.left >= 0);
      CHECK(box.top + box.height <= 20);
      CHECK(box.left + box.width <= 30);
      CHECK(mix.own == static_cast<float>(1 - box.height * box.width / 600.0));
      CHECK(mix.input.own == 0);
    }
  }
  CHECK(seen.size() > 95);
  const InputDraws other = draws_of({}, {mixing_with("CutMix")}, 6);
  CHECK(numbers_of(other.mix(2, 3)) != numbers_of(draws.mix(2, 3)));
  const BatchMix up = draws_of({}, {mixing_with("MixUp", 0.4)}).mix(1, 2);
  CHECK(up.own == doctest::Approx(0.223205));
  CHECK(up.partner == static_cast<float>(1 - static_cast<double>(up.own)));
  CHECK(up.input.box == InputBox{0, 0, 20, 30});
}

TEST_CASE("of several ways to mix, each has its share of the batches") {
  const InputDraws draws = draws_of({}, {mixing_with("MixUp"), mixing_with("CutMix")});
  int cut = 0;
  for (std::int64_t batch = 0; batch < 2000; ++batch) {
    cut += draws.mix(0, batch).input.own == 0 ? 1 : 0;
  }
  CHECK(std::abs(cut - 1000) < 112);  // five standard deviations
}

TEST_CASE("rectangles are erased of the share of the samples that p says") {
  const auto count = [](double p, std::int64_t epoch) {
    const InputDraws draws = draws_of({erasing_with({{"p", p}})}, {});
    CHECK(draws.erases());
    std::set<std::int64_t> erased;
    for (std::int64_t id = 0; id < 2000; ++id) {
      const InputBox box = draws.erased(epoch, id);
      if (box.height == 0) continue;
      erased.insert(id);
      CHECK(box.top >= 0);
      CHECK(box.left >= 0);
      CHECK(box.top + box.height <= 20);
      CHECK(box.left + box.width <= 30);
      CHECK(box.width > 0);
    }
    return erased;
  };
  CHECK(count(0, 0).empty());
  CHECK(count(1, 0).size() == 2000);
  CHECK(std::abs(static_cast<int>(count(0.25, 0).size()) - 500) < 97);
  CHECK(count(0.25, 0) == count(0.25, 0));
  CHECK(count(0.25, 0) != count(0.25, 1));
  // A transform's position in the list selects its draws.
  const Variant flip = variant(transform_kinds().table(), "RandomHorizontalFlip");
  const InputDraws second = draws_of({flip, erasing_with({{"p", 1.0}})}, {});
  CHECK(second.erased(0, 1) != draws_of({erasing_with({{"p", 1.0}})}, {}).erased(0, 1));
}

TEST_CASE("RandomErasing does not apply to evaluations") {
  TransformsSpec transforms;
  transforms.train = {erasing_with()};
  check_evaluation_transforms(transforms);
  transforms.eval = {erasing_with()};
  CHECK(error_of([&] { check_evaluation_transforms(transforms); }, ErrorKind::usage) ==
        "config.yaml:3:5: RandomErasing: is for training only: expected it in "
        "data.transforms.train, found it in data.transforms.eval");
}

}  // namespace
}  // namespace dpt
