// The transforms of a config, translated to a description of the input kernel.
#include "engine/data/transforms.h"
#include "datasets/dataset.h"
#include "engine/data/host_pipeline.h"
#include "engine/data/loader.h"
#include "engine/data/transform_kinds.h"
#include "tests/engine/data/support.h"

namespace dpt {
namespace {

using namespace data_test;
using Numbers = std::vector<double>;

Variant transform(const std::string& name,
                  std::initializer_list<std::pair<std::string, PlainValue>> fields = {}) {
  return variant(transform_kinds().table(), name, fields);
}

Variant normalize(Numbers mean, Numbers std) {
  return transform("Normalize", {{"mean", std::move(mean)}, {"std", std::move(std)}});
}

std::shared_ptr<const DataSource> source(SampleShape shape) {
  return open("synthetic", {{"size", std::int64_t{4}}, {"test_size", std::int64_t{0}}}, {shape, 10})
      .train;
}

InputDesc desc_of(const std::vector<Variant>& transforms, SampleShape raw = {32, 32, 3},
                  SampleShape input = {32, 32, 3}) {
  return make_input_desc(transforms, *source(raw), input, 9);
}

std::string error(const std::vector<Variant>& transforms, SampleShape raw = {32, 32, 3},
                  SampleShape input = {32, 32, 3}) {
  return error_of([&] { desc_of(transforms, raw, input); }, ErrorKind::usage);
}

TEST_CASE("no transforms: scaled bytes") {
  const InputDesc desc = desc_of({});
  CHECK(desc.raw == SampleShape{32, 32, 3});
  CHECK(desc.out == desc.raw);
  CHECK(desc.raw_type == DType::u8);
  CHECK(!desc.crop);
  CHECK(!desc.flip);
  CHECK(desc.mean.empty());
  CHECK(desc.seed == 9);
}

TEST_CASE("crop, flip and normalise in one kernel") {
  const InputDesc desc =
      desc_of({transform("RandomHorizontalFlip"),
               transform("RandomCrop", {{"size", Size2{32, 32}}, {"padding", std::int64_t{4}}}),
               normalize({0.1, 0.2, 0.3}, {1, 2, 3})});
  CHECK(desc.crop);
  CHECK(desc.crop_padding == 4);
  CHECK(desc.flip);
  CHECK(desc.flip_probability == 0.5F);
  CHECK(desc.mean == std::vector<float>{0.1F, 0.2F, 0.3F});
  CHECK(desc.stddev == std::vector<float>{1, 2, 3});
  CHECK(desc_of({transform("RandomHorizontalFlip", {{"p", 0.25}})}).flip_probability == 0.25F);
  const InputDesc smaller =
      desc_of({transform("RandomCrop", {{"size", Size2{24, 20}}})}, {32, 32, 3}, {24, 20, 3});
  CHECK(smaller.raw == SampleShape{32, 32, 3});
  CHECK(smaller.out == SampleShape{24, 20, 3});
}

TEST_CASE("transforms that do not fit are refused with their line") {
  CHECK(error({transform("RandomCrop", {{"size", Size2{28, 28}}})}) ==
        "config.yaml:3:5: RandomCrop: size 28x28 is not the height and width of model.input, "
        "32x32: write size: [32, 32]");
  CHECK(error({transform("RandomCrop", {{"size", Size2{36, 32}}, {"padding", std::int64_t{1}}})},
              {32, 32, 3}, {36, 32, 3}) ==
        "config.yaml:3:5: RandomCrop: size 36x32 is larger than the data set's 32x32 images with "
        "padding 1 (34x34)");
  CHECK(error({normalize({0.5}, {0.5})}) ==
        "config.yaml:3:5: Normalize: mean has 1 value, but the images have 3 channels");
  CHECK(error({normalize({0.5, 0.5, 0.5}, {0.5, 0.5})}) ==
        "config.yaml:3:5: Normalize: std has 2 values, but the images have 3 channels");
  CHECK(error({normalize({0.5, 0.5, 0.5}, {0.5, 0, 0.5})}) ==
        "config.yaml:3:5: Normalize: std must hold numbers above 0, found 0");
  CHECK(error({normalize({0.5, 1e300, 0.5}, {1, 1, 1})}) ==
        "config.yaml:3:5: Normalize: mean must hold finite numbers, found 1e+300");
  CHECK(error({normalize({0, 0, 0}, {1, 1, 1}), transform("RandomHorizontalFlip")}) ==
        "config.yaml:3:5: RandomHorizontalFlip: must come before Normalize");
  CHECK(error({normalize({0, 0, 0}, {1, 1, 1}), normalize({0, 0, 0}, {1, 1, 1})}) ==
        "config.yaml:3:5: Normalize: appears twice in the list");
  CHECK(error({transform("RandomHorizontalFlip"), transform("RandomHorizontalFlip")}) ==
        "config.yaml:3:5: RandomHorizontalFlip: appears twice in the list");
  const Variant crop = transform("RandomCrop", {{"size", Size2{32, 32}}});
  CHECK(error({crop, crop}) == "config.yaml:3:5: RandomCrop: appears twice in the list");
  const Variant erasing = transform("RandomErasing");
  CHECK(error({erasing, erasing}) == "config.yaml:3:5: RandomErasing: appears twice in the list");
  CHECK(error({erasing, normalize({0, 0, 0}, {1, 1, 1})}) ==
        "config.yaml:3:5: Normalize: must come before RandomErasing");
  CHECK(error({erasing, transform("RandomHorizontalFlip")}) ==
        "config.yaml:3:5: RandomHorizontalFlip: must come before RandomErasing");
  CHECK(error({transform("RandomErasing", {{"value", Numbers{1, 2}}})}) ==
        "config.yaml:3:5: RandomErasing: value has 2 values, but the images have 3 channels");
  // All errors of a list are reported at once.
  CHECK(error({transform("RandomCrop", {{"size", Size2{9, 9}}}), normalize({0}, {1}), crop}) ==
        "config.yaml:3:5: RandomCrop: size 9x9 is not the height and width of model.input, 32x32: "
        "write size: [32, 32]\n"
        "config.yaml:3:5: Normalize: mean has 1 value, but the images have 3 channels\n"
        "config.yaml:3:5: RandomCrop: must come before Normalize");
}

TEST_CASE("RandomErasing is done by the kernel, after Normalize") {
  CHECK(!desc_of({}).erase);
  const InputDesc one = desc_of({normalize({0, 0, 0}, {1, 1, 1}), transform("RandomErasing")});
  CHECK(one.erase);
  CHECK(one.erase_value == std::vector<float>{0, 0, 0});
  const InputDesc each = desc_of({transform("RandomErasing", {{"value", Numbers{1, -2, 0.5}}})});
  CHECK(each.erase_value == std::vector<float>{1, -2, 0.5F});
  // Transforms that run on the host must come first.
  const std::vector<Variant> list = {transform("RandomErasing"), transform("RandomVerticalFlip")};
  CHECK(error_of(
            [&] {
              with_host_transforms(source({32, 32, 3}), list, {32, 32, 3}, 1);
            },
            ErrorKind::usage) ==
        "config.yaml:3:5: RandomErasing: must be last, after RandomVerticalFlip");
}

TEST_CASE("the message about a model that needs other images says what to write") {
  CHECK(
      error({}, {32, 32, 3}, {28, 28, 3}) ==
      "model.input is 28x28, but the data set's images are 32x32: write model.input: [3, 32, 32]");
  CHECK(error({}, {28, 28, 1}, {28, 28, 3}) ==
        "model.input has 3 channels, but the data set's images have 1: write model.input: [1, 28, "
        "28]");
}

TEST_CASE("crops and images at the borders of what fits") {
  const auto crop = [](Size2 size, std::int64_t padding) {
    return transform("RandomCrop", {{"size", size}, {"padding", padding}});
  };
  // The crop may be as large as the image with its border, but no larger on either side.
  CHECK(desc_of({crop({34, 36}, 2)}, {30, 32, 1}, {34, 36, 1}).crop);
  CHECK(error({crop({35, 36}, 2)}, {30, 32, 1}, {35, 36, 1}).find("(34x36)") != std::string::npos);
  CHECK(error({crop({34, 37}, 2)}, {30, 32, 1}, {34, 37, 1}).find("(34x36)") != std::string::npos);
  CHECK(error({crop({34, 35}, 2)}, {30, 32, 1}, {34, 36, 1})
            .find("size 34x35 is not the height and width of model.input, 34x36") !=
        std::string::npos);
  // Without a crop, both sides must equal the model's.
  CHECK(error({}, {32, 32, 3}, {31, 32, 3}).starts_with("model.input is 31x32, but"));
  CHECK(error({}, {32, 32, 3}, {32, 31, 3}).starts_with("model.input is 32x31, but"));
  CHECK(error({}, {28, 28, 3}, {28, 28, 1}) ==
        "model.input has 1 channel, but the data set's images have 3: write model.input: [3, "
        "28, 28]");
  CHECK(error({normalize({0, 0}, {1, 1})}, {8, 8, 1}, {8, 8, 1}) ==
        "config.yaml:3:5: Normalize: mean has 2 values, but the images have 1 channel");
  CHECK(error({normalize({0}, {-1})}, {8, 8, 1}, {8, 8, 1}) ==
        "config.yaml:3:5: Normalize: std must hold numbers above 0, found -1");
  CHECK(desc_of({normalize({-1}, {1e-30})}, {8, 8, 1}, {8, 8, 1}).mean.at(0) == -1.0F);
}

TEST_CASE("the tables name dpt's counterparts of other systems' transforms") {
  CHECK(transform_kinds().table().tag == "type");
  CHECK(dataset_kinds().table().tag == "dataset");
  for (const VariantTable* table : {&transform_kinds().table(), &dataset_kinds().table()}) {
    for (const auto& [other, ours] : table->hints) {
      for (const ObjectTable* object : table->alternatives) CHECK(object->name != other);
    }
  }
}

}  // namespace
}  // namespace dpt
