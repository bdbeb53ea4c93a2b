// Transforms on the host: their pixels match torchvision's, their draws are a function of (seed,
// epoch, sample, place) with torchvision's distributions, and bad options are refused.
#include "engine/data/transform_kinds.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>

#include "engine/data/host_choices.h"
#include "kernels/image/colors.h"
#include "kernels/image/image_ops.h"
#include "tests/engine/data/support.h"
#include "tests/engine/data/transform_case.h"

// A separate namespace, because the other tests of data are compiled with this one as one source.
namespace dpt::host_transforms_test {
namespace {

using namespace data_test;
using nlohmann::json;
using Values = std::vector<double>;
using Whole = std::vector<std::int64_t>;

json read_json(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  REQUIRE_MESSAGE(in.good(), file);
  return json::parse(in);
}

/// Returns the number of bytes that differ, and the largest difference.
std::pair<std::size_t, int> difference(const Image& a, const Image& b) {
  REQUIRE(a.pixels.size() == b.pixels.size());
  std::pair<std::size_t, int> result{0, 0};
  for (std::size_t i = 0; i < a.pixels.size(); ++i) {
    const int distance = std::abs(int{a.pixels[i]} - int{b.pixels[i]});
    result.first += distance > 0 ? 1 : 0;
    result.second = std::max(result.second, distance);
  }
  return result;
}

const VariantTable& host_transforms() {
  static const VariantTable table{
      "transform",
      "type",
      {pad_transform().table, random_horizontal_flip_transform().table,
       random_vertical_flip_transform().table, random_rotation_transform().table,
       random_affine_transform().table, color_jitter_transform().table,
       random_grayscale_transform().table, trivial_augment_wide_transform().table},
      {}};
  return table;
}

std::unique_ptr<HostTransform> make(TransformKind (*kind)(), const Fields& fields = {}) {
  return kind().make(variant(host_transforms(), kind().table->name, fields));
}

std::string error(TransformKind (*kind)(), const Fields& fields) {
  return error_of([&] { make(kind, fields); }, ErrorKind::usage);
}

Image picture(std::int64_t height, std::int64_t width, std::int64_t channels) {
  return {height, width, channels, noise(static_cast<std::size_t>(height * width * channels))};
}

DrawStream stream(std::int64_t sample) {
  return {7, 3, sample, 2};
}

TEST_CASE("pixels after a transform are torchvision's on PIL images") {
  const json file = read_json(testing::source_dir() + "/tests/golden/transforms.json");
  std::vector<Image> pictures;
  for (const json& each : file.at("pictures")) pictures.push_back(image_of(each));
  std::map<std::string, int> counts;
  for (const json& each : file.at("cases")) {
    const std::string operation = each.at("operation");
    CAPTURE(operation);
    CAPTURE(each.at("picture").dump());
    CAPTURE(each.at("params").dump());
    const Image expected = image_of(each);
    const Image found = run_case(each, pictures.at(each.at("picture").get<std::size_t>()));
    CHECK(found.height == expected.height);
    REQUIRE(found.width == expected.width);
    const auto [count, most] = difference(found, expected);
    // In a blur, torchvision adds in another order: see image_ops.h.
    CHECK(most <= (operation == "blur" ? 1 : 0));
    CHECK(count <= (operation == "blur" ? expected.pixels.size() / 50 : 0));
    ++counts[operation];
  }
  CHECK(counts.size() == 20);
  CHECK(counts["resize"] == 48);
  CHECK(counts["trivial"] == 28);
}

// Runs only from scripts/check/transforms, which compares the results with torchvision's.
TEST_CASE("cases of scripts/check/transforms" * doctest::skip()) {
  const char* in = std::getenv("DPT_TRANSFORM_CASES");
  const char* out = std::getenv("DPT_TRANSFORM_RESULTS");
  REQUIRE_MESSAGE((in && out), "set DPT_TRANSFORM_CASES and DPT_TRANSFORM_RESULTS");
  const json file = read_json(in);
  std::vector<Image> pictures;
  for (const json& each : file.at("pictures")) pictures.push_back(image_of(each));
  std::ofstream results(out, std::ios::binary);
  for (const json& each : file.at("cases")) {
    results << json_of(run_case(each, pictures.at(each.at("picture").get<std::size_t>()))).dump()
            << "\n";
  }
  CHECK(results.flush().good());
}

TEST_CASE("every hue is turned as Pillow's formulas say, for all colours") {
  // Pillow's conversions, step by step (Convert.c), for a sample of the 2^24 colours.
  // scripts/check/transforms --all-colours has compared all of them with Pillow itself.
  const auto hue_of = [](int r, int g, int b) -> std::array<int, 2> {
    const int largest = std::max({r, g, b}), smallest = std::min({r, g, b});
    if (largest == smallest) return {0, 0};
    const auto range = static_cast<float>(largest - smallest);
    const float s = range / static_cast<float>(largest);
    const float rc = static_cast<float>(largest - r) / range;
    const float gc = static_cast<float>(largest - g) / range;
    const float bc = static_cast<float>(largest - b) / range;
    const float sixths = r == largest   ? bc - gc
                         : g == largest ? static_cast<float>(2.0 + rc - bc)
                                        : static_cast<float>(4.0 + gc - rc);
    const auto h = static_cast<float>(std::fmod(sixths / 6.0 + 1.0, 1.0));
    return {static_cast<int>(h * 255.0), static_cast<int>(s * 255.0)};
  };
  const auto back = [](int h, int s, int v) -> std::array<int, 3> {
    if (s == 0) return {v, v, v};
    const int i = static_cast<int>(std::floor(static_cast<float>(h) * 6.0 / 255.0));
    const auto f = static_cast<float>(static_cast<float>(h) * 6.0 / 255.0 - static_cast<float>(i));
    const auto fs = static_cast<float>(static_cast<float>(s) / 255.0);
    const auto value = static_cast<float>(v);
    const int p = static_cast<int>(std::round(value * (1.0 - fs)));
    const int q = static_cast<int>(std::round(value * (1.0 - fs * f)));
    const int t = static_cast<int>(std::round(value * (1.0 - fs * (1.0 - f))));
    const std::array<std::array<int, 3>, 6> ways = {
        {{v, t, p}, {q, v, p}, {p, v, t}, {p, q, v}, {t, p, v}, {v, p, q}}};
    return ways.at(static_cast<std::size_t>(i % 6));
  };
  Image image{1, 0, 3, {}};
  for (int r = 0; r < 256; r += 3) {
    for (int g = 0; g < 256; g += 5) {
      for (int b = 0; b < 256; b += 5) {
        image.pixels.insert(image.pixels.end(),
                            {static_cast<std::uint8_t>(r), static_cast<std::uint8_t>(g),
                             static_cast<std::uint8_t>(b)});
        ++image.width;
      }
    }
  }
  for (const double factor : {-0.5, -0.004, 0.0, 0.3, 0.5}) {
    Image turned = image;
    adjust_hue(turned, factor);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < image.pixels.size(); i += 3) {
      const std::uint8_t* rgb = image.pixels.data() + i;
      const auto [h, s] = hue_of(rgb[0], rgb[1], rgb[2]);
      const auto expected = back((h + static_cast<int>(factor * 255) + 256) % 256, s,
                                 std::max({rgb[0], rgb[1], rgb[2]}));
      for (std::size_t c = 0; c < 3; ++c) wrong += turned.pixels[i + c] != expected[c] ? 1 : 0;
    }
    CAPTURE(factor);
    CHECK(wrong == 0);
  }
}

TEST_CASE("a draw depends on seed, epoch, sample and place, and on nothing else") {
  const auto jitter = make(color_jitter_transform, {{"brightness", Values{0.9}},
                                                    {"contrast", Values{0.9}},
                                                    {"saturation", Values{0.9}},
                                                    {"hue", Values{0.5}}});
  const Image before = picture(6, 5, 3);
  const auto result = [&](std::uint64_t seed, std::int64_t epoch, std::int64_t sample, int place) {
    Image image = before;
    DrawStream draws(seed, epoch, sample, place);
    jitter->apply(image, draws);
    return image.pixels;
  };
  const auto first = result(1, 2, 3, 4);
  std::set<Bytes> different{first};
  different.insert(result(2, 2, 3, 4));
  different.insert(result(1, 3, 3, 4));
  different.insert(result(1, 2, 4, 4));
  different.insert(result(1, 2, 3, 5));
  CHECK(different.size() == 5);
  CHECK(result(1, 2, 3, 4) == first);
}

TEST_CASE("flips and grey images happen with their probability") {
  constexpr int kSamples = 4000;
  for (TransformKind (*kind)() : {random_horizontal_flip_transform, random_vertical_flip_transform,
                                  random_grayscale_transform}) {
    CAPTURE(kind().table->name);
    const Image before = picture(3, 3, 3);
    const auto changed = [&](const HostTransform& transform) {
      int count = 0;
      for (int sample = 0; sample < kSamples; ++sample) {
        Image image = before;
        DrawStream draws = stream(sample);
        transform.apply(image, draws);
        count += image.pixels != before.pixels ? 1 : 0;
      }
      return count;
    };
    CHECK(changed(*make(kind, {{"p", 0.0}})) == 0);
    CHECK(changed(*make(kind, {{"p", 1.0}})) == kSamples);
    // The tolerance of 137 is five standard deviations.
    const int some = changed(*make(kind, {{"p", 0.25}}));
    CHECK(some > 860);
    CHECK(some < 1140);
  }
  Image image = picture(2, 2, 3);
  const Bytes before = image.pixels;
  flip_horizontally(image);
  CHECK(std::equal(image.pixels.begin(), image.pixels.begin() + 3, before.begin() + 3));
}

/// Returns the minimum, mean and maximum of `draw` for many samples.
template <class Draw>
std::array<double, 3> spread(const Draw& draw, int samples = 4000) {
  double least = 1e9, sum = 0, greatest = -1e9;
  for (int sample = 0; sample < samples; ++sample) {
    DrawStream draws = stream(sample);
    const double value = draw(draws);
    least = std::min(least, value);
    greatest = std::max(greatest, value);
    sum += value;
  }
  return {least, sum / samples, greatest};
}

void check_uniform(const std::array<double, 3>& found, double low, double high) {
  const double width = high - low;
  CHECK(found[0] >= low);
  CHECK(found[2] <= high);
  CHECK(found[0] < low + 0.02 * width);
  CHECK(found[2] > high - 0.02 * width);
  CHECK(std::abs(found[1] - (low + high) / 2) < 0.03 * width);
}

TEST_CASE("an affine transform draws torchvision's ranges, and only what is asked for") {
  AffineRanges ranges{
      {-10, 30}, Point{0.5, 0.1}, Interval{0.8, 1.2}, Interval{-5, 5}, Interval{0, 20}};
  const auto of = [&](auto member) {
    return spread([&](DrawStream& draws) {
      return static_cast<double>(draw_affine(ranges, {100, 60}, draws).*member);
    });
  };
  check_uniform(of(&AffineParams::angle), -10, 30);
  check_uniform(of(&AffineParams::scale), 0.8, 1.2);
  check_uniform(of(&AffineParams::shear_x), -5, 5);
  check_uniform(of(&AffineParams::shear_y), 0, 20);
  // The results are rounded to whole pixels, so the ends have half the weight.
  check_uniform(of(&AffineParams::translate_x), -30, 30);
  check_uniform(of(&AffineParams::translate_y), -10, 10);
  const AffineRanges only_degrees{{-10, 30}, {}, {}, {}, {}};
  DrawStream draws = stream(0), same = stream(0);
  const AffineParams params = draw_affine(only_degrees, {100, 60}, draws);
  CHECK(params.angle == same.uniform(-10, 30));
  CHECK(draws.uniform() == same.uniform());
  CHECK(params.translate_x == 0);
  CHECK(params.scale == 1);
  CHECK(params.shear_x == 0);
}

TEST_CASE("jitter draws an order and a factor for each of what is set") {
  const JitterRanges ranges{Interval{0.5, 1.5}, {}, Interval{0, 3}, Interval{-0.1, 0.2}};
  check_uniform(spread([&](DrawStream& d) { return draw_jitter(ranges, d).brightness.value(); }),
                0.5, 1.5);
  check_uniform(spread([&](DrawStream& d) { return draw_jitter(ranges, d).saturation.value(); }), 0,
                3);
  check_uniform(spread([&](DrawStream& d) { return draw_jitter(ranges, d).hue.value(); }), -0.1,
                0.2);
  std::map<std::array<int, 4>, int> orders;
  for (int sample = 0; sample < 4800; ++sample) {
    DrawStream draws = stream(sample);
    const JitterParams params = draw_jitter(ranges, draws);
    CHECK(!params.contrast);
    ++orders[params.order];
  }
  REQUIRE(orders.size() == 24);
  for (const auto& [order, count] : orders) {
    CHECK(std::set<int>(order.begin(), order.end()).size() == 4);
    CHECK(count > 125);  // 200 +- five standard deviations
    CHECK(count < 275);
  }
}

TEST_CASE("a jitter of 0 draws no factor, and the order of operations is kept") {
  const auto none = make(color_jitter_transform);
  Image image = picture(4, 4, 3);
  const Bytes before = image.pixels;
  DrawStream draws = stream(1);
  none->apply(image, draws);
  CHECK(image.pixels == before);
  const auto fixed = make(color_jitter_transform, {{"brightness", Values{2, 2}}});
  fixed->apply(image, draws);
  for (std::size_t i = 0; i < before.size(); ++i) {
    CHECK(image.pixels[i] == std::min(2 * before[i], 255));
  }
}

TEST_CASE("trivial augmentation draws each operation, magnitude and sign") {
  std::array<int, kTrivialOperations> counts{};
  std::array<int, kTrivialOperations> negative{};
  std::array<std::set<double>, kTrivialOperations> magnitudes;
  constexpr int kSamples = 14000;
  for (int sample = 0; sample < kSamples; ++sample) {
    DrawStream draws = stream(sample);
    const TrivialParams params = draw_trivial(5, draws);
    const auto at = static_cast<std::size_t>(params.operation);
    ++counts.at(at);
    negative[at] += params.magnitude < 0 ? 1 : 0;
    magnitudes[at].insert(std::abs(params.magnitude));
  }
  for (std::size_t at = 0; at < counts.size(); ++at) {
    CAPTURE(at);
    CHECK(counts[at] > 840);  // 1000 +- five standard deviations
    CHECK(counts[at] < 1160);
    const bool has_sign = at >= 1 && at <= 9;
    const bool has_magnitude = has_sign || at == 10 || at == 11;
    // One of five bins is 0, which has no sign.
    CHECK(negative[at] > (has_sign ? 0.3 * counts[at] : -1));
    CHECK(negative[at] < (has_sign ? 0.5 * counts[at] : 1));
    CHECK(magnitudes[at].size() == (has_magnitude ? 5U : 1U));
  }
  using Operation = TrivialOperation;
  CHECK(trivial_magnitude(Operation::shear_x, 30, 31) == static_cast<double>(0.99F));
  // torch.linspace falls short of 16, and the image then moves by 15.
  CHECK(trivial_magnitude(Operation::translate_y, 15, 31) == 15.999999046325684);
  CHECK(trivial_magnitude(Operation::rotate, 30, 31) == 135);
  CHECK(trivial_magnitude(Operation::solarize, 0, 31) == 1);
  CHECK(trivial_magnitude(Operation::posterize, 0, 31) == 8);
  CHECK(trivial_magnitude(Operation::posterize, 30, 31) == 2);
}

TEST_CASE("the rectangle that is erased lies in the image and has its share of the area") {
  const ErasingRanges ranges;
  int missing = 0;
  const auto area = [&](DrawStream& draws) {
    const auto box = draw_erasing(ranges, {64, 96}, draws);
    if (!box) return static_cast<double>(++missing) * 0 + 0.17;
    CHECK(box->top >= 0);
    CHECK(box->left >= 0);
    CHECK(box->top + box->height <= 64);
    CHECK(box->left + box->width <= 96);
    return static_cast<double>(box->height * box->width) / (64 * 96);
  };
  const auto [least, mean, greatest] = spread(area);
  CHECK(least > 0.015);
  CHECK(least < 0.03);
  CHECK(greatest > 0.31);
  CHECK(greatest < 0.35);
  CHECK(mean > 0.15);
  CHECK(mean < 0.18);
  CHECK(missing == 0);
  // A rectangle as high as the image is rejected in every try.
  DrawStream draws = stream(1);
  CHECK(!draw_erasing({{0.9, 1}, {1, 1}}, {4, 60}, draws));
}

TEST_CASE("transforms report the size of an image after them") {
  const Size2 size{20, 30};
  const auto after = [&](TransformKind (*kind)(), const Fields& fields) {
    const auto transform = make(kind, fields);
    CHECK(!transform->size_after(std::nullopt));
    const auto promised = transform->size_after(size);
    Image image = picture(size.h, size.w, 3);
    DrawStream draws = stream(5);
    transform->apply(image, draws);
    CHECK(static_cast<std::int64_t>(image.pixels.size()) == image.height * image.width * 3);
    if (promised) CHECK(*promised == Size2{image.height, image.width});
    return promised;
  };
  CHECK(after(pad_transform, {{"padding", Whole{2}}}) == Size2{24, 34});
  CHECK(after(pad_transform, {{"padding", Whole{2, 5}}}) == Size2{30, 34});
  CHECK(after(pad_transform, {{"padding", Whole{1, 2, 3, 4}},
                              {"padding_mode", std::string("edge")}}) == Size2{26, 34});
  CHECK(after(random_horizontal_flip_transform, {}) == size);
  CHECK(after(random_rotation_transform, {{"degrees", Values{30}}}) == size);
  CHECK(after(random_rotation_transform, {{"degrees", Values{30, 40}}, {"expand", true}}) ==
        std::nullopt);
  CHECK(after(random_affine_transform, {{"degrees", Values{30}},
                                        {"translate", Values{0.1, 0.2}},
                                        {"scale", Values{0.5, 2}},
                                        {"shear", Values{-10, 10, 5, 6}}}) == size);
  CHECK(after(color_jitter_transform, {{"hue", Values{0.1}}}) == size);
  CHECK(after(random_grayscale_transform, {}) == size);
  CHECK(after(trivial_augment_wide_transform, {}) == size);
}

TEST_CASE("a transform does to the pixels what it draws") {
  const Image before = picture(15, 12, 3);
  Image image = before;
  DrawStream draws = stream(9), same = stream(9);
  make(random_rotation_transform, {{"degrees", Values{10, 50}},
                                   {"interpolation", std::string("bilinear")},
                                   {"center", Values{1, 2}},
                                   {"fill", Values{9, 8, 7.9}}})
      ->apply(image, draws);
  const Point center{1, 2};
  CHECK(image.pixels ==
        rotated(before, same.uniform(10, 50), Interpolation::bilinear, false, &center, {9, 8, 7})
            .pixels);
  image = before;
  make(random_affine_transform,
       {{"degrees", Values{20}}, {"shear", Values{3}}, {"fill", Values{5}}})
      ->apply(image, draws);
  const AffineParams params = draw_affine({{-20, 20}, {}, {}, Interval{-3, 3}, {}}, {15, 12}, same);
  CHECK(image.pixels ==
        warped(before, affine_matrix(params, {6, 7.5}), 15, 12, Interpolation::nearest, {5, 5, 5})
            .pixels);
  image = before;
  make(trivial_augment_wide_transform)->apply(image, draws);
  Image expected = before;
  apply_trivial(draw_trivial(31, same), Interpolation::nearest, {0, 0, 0}, expected);
  CHECK(image.pixels == expected.pixels);
}

TEST_CASE("options that do not fit are refused with place, expected and found") {
  CHECK(error(pad_transform, {{"padding", Whole{1, 2, 3}}}) ==
        "config.yaml:3:5: Pad: padding: expected 1, 2 or 4 numbers, found 3");
  CHECK(error(pad_transform, {{"padding", Whole{1}}, {"fill", Values{1, 2}}}) ==
        "config.yaml:3:5: Pad: fill: expected 1 or 3 numbers, found 2: [1, 2]");
  CHECK(error(random_rotation_transform, {{"degrees", Values{-10}}}) ==
        "config.yaml:3:5: RandomRotation: degrees: expected a number of at least 0, or [minimum, "
        "maximum], found -10");
  CHECK(error(random_rotation_transform, {{"degrees", Values{10, -10}}}) ==
        "config.yaml:3:5: RandomRotation: degrees: expected the smaller number first, found [10, "
        "-10]");
  CHECK(error(random_affine_transform, {{"degrees", Values{0}}, {"scale", Values{2, 1}}}) ==
        "config.yaml:3:5: RandomAffine: scale: expected the smaller number first, found [2, 1]");
  CHECK(error(random_affine_transform, {{"degrees", Values{0}}, {"shear", Values{1, 2, 3}}}) ==
        "config.yaml:3:5: RandomAffine: shear: expected 1, 2 or 4 numbers, found 3: [1, 2, 3]");
  CHECK(
      error(random_affine_transform, {{"degrees", Values{0}}, {"shear", Values{1, 2, 4, 3}}})
          .starts_with("config.yaml:3:5: RandomAffine: shear: expected the smaller number first"));
  CHECK(error(color_jitter_transform, {{"contrast", Values{2, 1}}}) ==
        "config.yaml:3:5: ColorJitter: contrast: expected the smaller number first, found [2, 1]");
  CHECK(error(color_jitter_transform, {{"hue", Values{-0.1}}})
            .starts_with("config.yaml:3:5: ColorJitter: hue: expected a number of at least 0"));
  CHECK(error(trivial_augment_wide_transform, {{"fill", Values{}}})
            .starts_with("config.yaml:3:5: TrivialAugmentWide: fill: expected 1 or 3 numbers"));
  // The number of channels is known only with the first image.
  const auto pad = make(pad_transform, {{"padding", Whole{1}}, {"fill", Values{1, 2, 3}}});
  CHECK(error_of(
            [&] {
              Image grey = picture(2, 2, 1);
              DrawStream draws = stream(0);
              pad->apply(grey, draws);
            },
            ErrorKind::usage) ==
        "config.yaml:3:5: Pad: fill: expected 1 number, as the images have 1 channel, found 3");
}

}  // namespace
}  // namespace dpt::host_transforms_test
