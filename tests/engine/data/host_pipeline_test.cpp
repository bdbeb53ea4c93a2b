// Transforms on the host: the output of a pipeline is the same whether a part or the whole image
// was decoded, and depends only on seed, epoch and sample.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "engine/data/host_pipeline.h"
#include "engine/data/loader.h"
#include "engine/data/split.h"
#include "engine/data/transform_kinds.h"
#include "engine/data/transforms.h"
#include "kernels/image/resize.h"
#include "tests/engine/data/encoded_images.h"
#include "tests/engine/data/support.h"

namespace dpt {
namespace {

using namespace data_test;

Variant host_variant(const std::string& name, const Fields& fields = {}) {
  return variant(transform_kinds().table(), name, fields);
}
Variant resize(std::vector<std::int64_t> size) {
  return host_variant("Resize", {{"size", std::move(size)}});
}
Variant resize(std::vector<std::int64_t> size, const std::string& interpolation) {
  return host_variant("Resize", {{"size", std::move(size)}, {"interpolation", interpolation}});
}
Variant letterbox(std::int64_t h, std::int64_t w) {
  return host_variant("Letterbox", {{"size", Size2{h, w}}, {"fill", std::vector<double>{7, 8, 9}}});
}
Variant center_crop(std::int64_t h, std::int64_t w) {
  return host_variant("CenterCrop", {{"size", Size2{h, w}}});
}
Variant random_resized_crop(std::int64_t h, std::int64_t w) {
  return host_variant("RandomResizedCrop", {{"size", Size2{h, w}}, {"reduced_decoding", false}});
}
Variant random_crop(std::int64_t size, std::int64_t padding = 0) {
  return host_variant("RandomCrop", {{"size", Size2{size, size}}, {"padding", padding}});
}
Variant host_flip() {
  return host_variant("RandomHorizontalFlip");
}
Variant normalize_all() {
  return host_variant("Normalize", {{"mean", std::vector<double>{0.5, 0.5, 0.5}},
                                    {"std", std::vector<double>{0.5, 0.5, 0.5}}});
}

/// Images of three sizes, which an image folder resizes unless a pipeline asks for a part.
struct ImageDir : TempDir {
  static constexpr Size2 kSizes[] = {{31, 47}, {40, 40}, {55, 21}};
  ImageDir() {
    for (std::uint32_t i = 0; i < 3; ++i) {
      const auto h = static_cast<std::uint32_t>(kSizes[i].h);
      const auto w = static_cast<std::uint32_t>(kSizes[i].w);
      write("train/a/" + std::to_string(i) + ".png",
            png(w, h, 3, noise(std::size_t{3} * h * w, i)));
    }
  }
  std::shared_ptr<const DataSource> source(SampleShape shape) const {
    return open("image_folder", {{"root", path()}}, {shape, 1}).train;
  }
  Image image(std::int64_t index) const {
    std::int32_t label = 0;
    return source({8, 8, 3})->read_part(
        index, [](std::int64_t h, std::int64_t w) { return whole_image(h, w, h, w); }, label);
  }
};

HostPipeline pipeline_of(const std::vector<Variant>& transforms,
                         std::optional<Size2> image = std::nullopt, Size2 input = {8, 8}) {
  return {transforms, image, input, 5};
}

Bytes result(const HostPipeline& pipeline, const DataSource& source, std::int64_t epoch,
             std::int64_t index) {
  Bytes pixels(static_cast<std::size_t>(pipeline.size().h * pipeline.size().w * source.shape().c));
  std::int32_t label = -1;
  pipeline.read(source, {epoch, index, index}, std::as_writable_bytes(std::span(pixels)), label);
  CHECK(label == 0);
  return pixels;
}

/// Returns the result of the transforms' own `apply` on the whole image.
Bytes applied(const std::vector<Variant>& transforms, Image image, std::int64_t epoch,
              std::int64_t index) {
  for (std::size_t place = 0; place < transforms.size(); ++place) {
    for (const TransformKind& kind : transform_kinds()) {
      if (kind.table != transforms[place].table) continue;
      DrawStream draws(5, epoch, index, static_cast<int>(place));
      kind.make(transforms[place])->apply(image, draws);
    }
  }
  return {image.pixels.begin(), image.pixels.end()};
}

std::string pipeline_error(const std::vector<Variant>& transforms,
                           std::optional<Size2> image = std::nullopt) {
  return error_of([&] { pipeline_of(transforms, image); }, ErrorKind::usage);
}

TEST_CASE("RandomResizedCrop: reduced decoding is for bilinear resizing") {
  const auto problem = [](const std::string& interpolation, bool reduced) {
    const Variant crop = host_variant(
        "RandomResizedCrop",
        {{"size", Size2{9, 9}}, {"interpolation", interpolation}, {"reduced_decoding", reduced}});
    return crop.table->check(crop.options.get());
  };
  CHECK(problem("bilinear", true).empty());
  CHECK(problem("bicubic", false).empty());
  CHECK(problem("bicubic", true) ==
        "reduced_decoding: expected interpolation: bilinear, found bicubic");
}

TEST_CASE("Letterbox: an image keeps its aspect ratio and is centered") {
  const auto boxed = [](Image image, Size2 size) {
    DrawStream draws(0, 0, 0, 0);
    letterbox_transform().make(host_variant("Letterbox", {{"size", size}}))->apply(image, draws);
    CHECK(image.height == size.h);
    CHECK(image.width == size.w);
    return Bytes(image.pixels.begin(), image.pixels.end());
  };
  const Image wide{1, 2, 1, {10, 20}};
  // The bottom has one more row than the top.
  CHECK(boxed(wide, {4, 2}) == Bytes{114, 114, 10, 20, 114, 114, 114, 114});
  CHECK(boxed(wide, {1, 5}) == Bytes{114, 10, 20, 114, 114});
  CHECK(boxed(wide, {1, 2}) == Bytes{10, 20});
  // A side never shrinks to zero.
  CHECK(boxed({1, 300, 1, Bytes(300, 7)}, {3, 3}) == Bytes{114, 114, 114, 7, 7, 7, 114, 114, 114});
  CHECK(pipeline_error({host_variant("Letterbox",
                                     {{"size", Size2{8, 8}}, {"fill", std::vector<double>{1, 2}}})})
            .find("fill: expected 1 or 3 numbers, found 2") != std::string::npos);
}

TEST_CASE("cropping before decoding changes no pixel") {
  const ImageDir dir;
  const auto source = dir.source({8, 8, 3});
  const std::vector<std::vector<Variant>> lists = {
      {random_resized_crop(9, 14)},
      {resize({12}), center_crop(10, 8)},
      {resize({16, 13}), random_crop(6), center_crop(4, 4)},
      {center_crop(20, 18)},
      {center_crop(20, 18), resize({5, 5})},
      {random_resized_crop(9, 9), random_resized_crop(6, 6), center_crop(7, 9)},
      {resize({40}), center_crop(60, 45), random_crop(44, 3)},
      {resize({12}, "bicubic"), center_crop(10, 8)},
      {resize({70, 13}, "nearest"), random_crop(6)},
      {letterbox(24, 24)},
      {letterbox(31, 60), center_crop(20, 20)},
      {center_crop(20, 18), letterbox(9, 30)},
  };
  for (const std::vector<Variant>& list : lists) {
    const HostPipeline pipeline = pipeline_of(list);
    for (std::int64_t index = 0; index < 3; ++index) {
      for (const std::int64_t epoch : {0, 1}) {
        CAPTURE(list.front().type);
        CAPTURE(index);
        CHECK((result(pipeline, *source, epoch, index) ==
               applied(list, dir.image(index), epoch, index)));
      }
    }
  }
}

TEST_CASE("images are resized to the model's input unless the transforms give them a size") {
  CHECK((pipeline_of({random_resized_crop(6, 7)}).size() == Size2{6, 7}));
  CHECK((pipeline_of({resize({6, 7})}).size() == Size2{6, 7}));
  CHECK((pipeline_of({resize({12}), center_crop(6, 7)}).size() == Size2{6, 7}));
  // The shorter side becomes 12, and 12 * 47 / 31 is rounded down.
  CHECK((pipeline_of({resize({12})}, Size2{31, 47}).size() == Size2{12, 18}));
  CHECK((pipeline_of({resize({12})}, Size2{47, 31}).size() == Size2{18, 12}));
  // RandomCrop gives images no size: if no other transform does, they are first resized to the
  // model's input, here 8x8.
  CHECK((pipeline_of({random_crop(9), resize({8, 8})}).size() == Size2{8, 8}));
  CHECK((pipeline_of({host_variant("RandomGrayscale"), random_crop(6)}).size() == Size2{6, 6}));
  CHECK(pipeline_error({host_variant("RandomGrayscale"), random_crop(9)}) ==
        "config.yaml:3:5: RandomCrop: expected images of at least 9x9 (height x width) with "
        "padding 0, found 8x8: put a Resize before it");
  CHECK((pipeline_of({resize({12}), random_crop(6)}).size() == Size2{6, 6}));
  CHECK(pipeline_error({resize({12})}) ==
        "config.yaml:3:5: Resize: images have different sizes after it, but a batch needs a single "
        "size: add Resize or CenterCrop with size: [8, 8], those of model.input");
}

TEST_CASE("CenterCrop keeps torchvision's middle, and pads smaller images") {
  // (7 - 4) / 2 = 1.5 becomes 2 and (5 - 4) / 2 = 0.5 becomes 0: halves go to the even number.
  Image image{7, 5, 1, Bytes(35)};
  std::iota(image.pixels.begin(), image.pixels.end(), std::uint8_t{1});
  const Bytes crop = applied({center_crop(4, 4)}, image, 0, 0);
  CHECK(crop.front() == 2 * 5 + 0 + 1);
  CHECK(crop.back() == 5 * 5 + 3 + 1);
  // If three rows are missing, one goes above; if one column is missing, none goes to the left.
  const Bytes padded = applied({center_crop(10, 6)}, image, 0, 0);
  CHECK(std::count(padded.begin(), padded.end(), 0) == 60 - 35);
  CHECK(padded[6] == 1);
  CHECK(padded[6 * 7 + 4] == 35);
}

TEST_CASE("RandomResizedCrop: parts within the image, of the area and ratio asked for") {
  const auto transform = random_resized_crop_transform().make(random_resized_crop(8, 8));
  double least = 1, most = 0;
  for (std::int64_t sample = 0; sample < 2000; ++sample) {
    DrawStream draws(1, 0, sample, 0);
    const PixelBox box = transform->choose({300, 400}, draws)->box;
    REQUIRE(box.top >= 0);
    REQUIRE(box.left >= 0);
    REQUIRE(box.top + box.height <= 300);
    REQUIRE(box.left + box.width <= 400);
    const double ratio = static_cast<double>(box.width) / static_cast<double>(box.height);
    CHECK(ratio > 0.74);
    CHECK(ratio < 1.35);
    const double area = static_cast<double>(box.height * box.width) / (300.0 * 400.0);
    least = std::min(least, area);
    most = std::max(most, area);
  }
  CHECK(least > 0.075);
  CHECK(least < 0.1);
  CHECK(most > 0.9);
  // The image is so narrow that no try fits: the result is a centered box with the nearest allowed
  // ratio.
  DrawStream draws(1, 0, 0, 0);
  CHECK((transform->choose({10, 4000}, draws)->box == PixelBox{0, 1993, 10, 13}));
  const auto wide = random_resized_crop_transform().make(host_variant(
      "RandomResizedCrop", {{"size", Size2{8, 8}}, {"ratio", std::vector<double>{5, 6}}}));
  CHECK((wide->choose({30, 1}, draws)->box == PixelBox{14, 0, 1, 1}));
}

TEST_CASE("draws depend on seed, epoch, sample and place alone") {
  const auto draw = [](std::uint64_t seed, std::int64_t epoch, std::int64_t sample, int place) {
    DrawStream stream(seed, epoch, sample, place);
    std::vector<double> numbers;
    for (int i = 0; i < 9; ++i) numbers.push_back(stream.uniform());
    return numbers;
  };
  const std::vector<double> first = draw(1, 2, 3, 4);
  CHECK((first == draw(1, 2, 3, 4)));
  for (const auto& other :
       {draw(2, 2, 3, 4), draw(1, 1, 3, 4), draw(1, 2, 4, 4), draw(1, 2, 3, 5)}) {
    for (std::size_t i = 0; i < first.size(); ++i) CHECK(first[i] != other[i]);
  }
  for (std::size_t i = 1; i < first.size(); ++i) CHECK(first[i] != first[0]);
}

TEST_CASE("a loader's batches under transforms, with any number of decoders") {
  const ImageDir dir;
  const std::vector<Variant> list = {random_resized_crop(8, 8), host_flip(), normalize_all()};
  const auto source = with_host_transforms(dir.source({8, 8, 3}), list, {8, 8, 3}, 5);
  CHECK((source->shape() == SampleShape{8, 8, 3}));
  const Split split{source, {0, 1, 2}};
  const HostPipeline pipeline = pipeline_of({random_resized_crop(8, 8)});
  for (const int workers : {1, 3}) {
    Loader::Options options;
    options.decoders = std::make_shared<DecoderPool>(workers);
    options.sampling.shuffle = false;
    Loader loader(split, options);
    for (const std::int64_t epoch : {0, 4, 1}) {
      loader.start(epoch, {{0, 2}, {2, 3}});
      Bytes all;
      for (int i = 0; i < 2; ++i) {
        const HostBatch batch = loader.next();
        for (const std::byte b : batch.pixels) all.push_back(std::to_integer<std::uint8_t>(b));
      }
      Bytes expected;
      for (const std::int64_t index : {0, 1, 2}) {
        expected = concat(expected, result(pipeline, *dir.source({8, 8, 3}), epoch, index));
      }
      CHECK((all == expected));
    }
  }
}

TEST_CASE("a list is cut after the last transform that only the host can apply") {
  const std::vector<Variant> list = {random_resized_crop(8, 8), host_flip(), resize({8, 8}),
                                     host_flip(), normalize_all()};
  CHECK(divide_transforms(list).host.size() == 3);
  CHECK(divide_transforms(list).device.size() == 2);
  const std::vector<Variant> crop = {resize({9}), host_flip(), random_crop(8), normalize_all()};
  CHECK(divide_transforms(crop).host.size() == 3);
  const std::vector<Variant> old = {random_crop(8, 2), host_flip(), normalize_all()};
  CHECK(divide_transforms(old).host.empty());
  CHECK(pipeline_error({normalize_all(), resize({8, 8})}) ==
        "config.yaml:3:5: Normalize: must be last, after Resize");
}

TEST_CASE("transforms are checked without data, as far as they can be") {
  const auto check = [](const std::vector<Variant>& list) {
    return error_of([&] { check_transforms(list, {8, 8, 3}); }, ErrorKind::usage);
  };
  check_transforms({resize({12}), center_crop(8, 8), host_flip(), normalize_all()}, {8, 8, 3});
  check_transforms({resize({12}), random_crop(8), normalize_all()}, {8, 8, 3});
  CHECK(check({random_resized_crop(9, 8), normalize_all()}) ==
        "config.yaml:3:5: RandomResizedCrop: produces images of 9x8, but model.input is 8x8: "
        "give it size: [8, 8]");
}

TEST_CASE("samples that are not images are refused") {
  const auto source = open("synthetic", {{"size", std::int64_t{4}}}, {{8, 8, 2}, 2}).train;
  CHECK(error_of(
            [&] {
              with_host_transforms(source, std::vector{resize({8, 8})}, {8, 8, 2}, 1);
            },
            ErrorKind::usage) ==
        "config.yaml:3:5: Resize: expected images of 8-bit pixels with 1 or 3 channels, but the "
        "data set's samples are u8 with 2 channels");
}

}  // namespace
}  // namespace dpt
