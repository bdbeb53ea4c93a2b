// The data sets that come as IDX files: any pair of them, MNIST, Fashion-MNIST, and the small
// digits that stand inside the program.
#include <array>

#include "datasets/embedded_digits.h"
#include "datasets/idx.h"
#include "datasets/kinds.h"
#include "datasets/requirements.h"

namespace dpt {
namespace {

struct IdxOptions {
  std::string root;
};

const IdxFacts kMnist{{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"}, 60000, 10000, "mnist"};

const IdxFacts kFashionMnist{{"T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal",
                              "Shirt", "Sneaker", "Bag", "Ankle boot"},
                             60000,
                             10000,
                             "fashion_mnist"};

const IdxFacts kDigits{kMnist.classes, 1437, 360, {}};

const ObjectTable& idx_table() {
  static const ObjectTable table = object_table<IdxOptions>(
      "idx",
      "Any pair of IDX files (the format of MNIST), plain or .gz; labels from 0 to the last "
      "layer's width - 1.",
      {path_field("root", &IdxOptions::root,
                  "Folder with train-images*, train-labels* and, for a test set, t10k-images*, "
                  "t10k-labels*.")
           .required()});
  return table;
}

const ObjectTable& mnist_table() {
  static const ObjectTable table = object_table<IdxOptions>(
      "mnist", "MNIST: 60,000 + 10,000 handwritten digits, 28x28 grey.",
      {path_field("root", &IdxOptions::root,
                  "Folder with the four IDX files, plain or .gz (scripts/fetch-data mnist).")
           .required()});
  return table;
}

const ObjectTable& fashion_mnist_table() {
  static const ObjectTable table = object_table<IdxOptions>(
      "fashion_mnist", "Fashion-MNIST: 60,000 + 10,000 images of clothing, 28x28 grey.",
      {path_field(
           "root", &IdxOptions::root,
           "Folder with the four IDX files, plain or .gz (scripts/fetch-data fashion_mnist).")
           .required()});
  return table;
}

const ObjectTable& digits_table() {
  static const ObjectTable table = object_table<IdxOptions>(
      "digits",
      "Optical recognition of handwritten digits (E. Alpaydin, C. Kaynak, UCI 1998, CC BY 4.0): "
      "1,437 + 360 digits, 8x8 grey. Built into the program: needs no files.",
      {path_field("root", &IdxOptions::root,
                  "Folder with the four IDX files; the built-in copy if not given.")});
  return table;
}

DataSets open_digits(const Variant& options, const DataRequirements& requirements) {
  const std::string& root = options.as<IdxOptions>().root;
  const IdxFacts& facts = kDigits;
  if (!root.empty()) return open_idx("digits", root, &facts, requirements);
  check_classes("digits", facts.classes.size(), requirements);
  const auto read = [&](std::span<const std::byte> images, std::span<const std::byte> labels,
                        const std::string& part, std::int64_t size) {
    const std::string name = "digits (built in): " + part;
    return read_idx_pair(ByteStream(images, name + "-images"), ByteStream(labels, name + "-labels"),
                         facts.classes, size, requirements);
  };
  const EmbeddedDigits& files = embedded_digits();
  return {read(files.train_images, files.train_labels, "train", facts.train_size),
          read(files.test_images, files.test_labels, "t10k", facts.test_size)};
}

std::shared_ptr<const DataSource> open_digits_unlabelled(const Variant& options, DataPart part,
                                                         const DataRequirements& requirements,
                                                         UnreadableSamples& /*unreadable*/) {
  const std::string& root = options.as<IdxOptions>().root;
  const bool is_test = part == DataPart::test;
  if (!root.empty()) return open_idx_images("digits", root, &kDigits, part, requirements);
  const EmbeddedDigits& files = embedded_digits();
  return read_idx_pair(
      ByteStream(is_test ? files.test_images : files.train_images,
                 fmt::format("digits (built in): {}-images", is_test ? "t10k" : "train")),
      std::nullopt, {}, is_test ? kDigits.test_size : kDigits.train_size, requirements);
}

}  // namespace

DatasetKind idx_kind() {
  return {&idx_table(),
          [](const Variant& options, const DataRequirements& requirements) {
            return open_idx("idx", options.as<IdxOptions>().root, nullptr, requirements);
          },
          [](const Variant& options, DataPart part, const DataRequirements& requirements,
             UnreadableSamples&) {
            return open_idx_images("idx", options.as<IdxOptions>().root, nullptr, part,
                                   requirements);
          }};
}

DatasetKind mnist_kind() {
  return {&mnist_table(),
          [](const Variant& options, const DataRequirements& requirements) {
            return open_idx("mnist", options.as<IdxOptions>().root, &kMnist, requirements);
          },
          [](const Variant& options, DataPart part, const DataRequirements& requirements,
             UnreadableSamples&) {
            return open_idx_images("mnist", options.as<IdxOptions>().root, &kMnist, part,
                                   requirements);
          },
          false, DataFacts{{1, 28, 28}, 10}};
}

DatasetKind fashion_mnist_kind() {
  return {&fashion_mnist_table(),
          [](const Variant& options, const DataRequirements& requirements) {
            return open_idx("fashion_mnist", options.as<IdxOptions>().root, &kFashionMnist,
                            requirements);
          },
          [](const Variant& options, DataPart part, const DataRequirements& requirements,
             UnreadableSamples&) {
            return open_idx_images("fashion_mnist", options.as<IdxOptions>().root, &kFashionMnist,
                                   part, requirements);
          },
          false, DataFacts{{1, 28, 28}, 10}};
}

DatasetKind digits_kind() {
  return {&digits_table(), open_digits, open_digits_unlabelled, false, DataFacts{{1, 8, 8}, 10}};
}

}  // namespace dpt
