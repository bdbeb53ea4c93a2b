// The data sets in IDX files: `idx` (any pair of files), MNIST, Fashion-MNIST, and the small digits
// that are embedded in the program.
#include <array>

#include "datasets/dataset.h"
#include "datasets/embedded_digits.h"
#include "datasets/idx.h"
#include "datasets/kinds.h"
#include "datasets/requirements.h"
#include "engine/data/data_sets.h"

namespace dpt {
namespace {

/// Fields of a published data set.
struct PublishedOptions {
  std::string root;
};

const IdxFacts kMnist{{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"}, 60000, 10000, "mnist"};

const IdxFacts kFashionMnist{{"T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal",
                              "Shirt", "Sneaker", "Bag", "Ankle boot"},
                             60000,
                             10000,
                             "fashion_mnist"};

const IdxFacts kDigits{kMnist.classes, 1437, 360, {}};

const ObjectTable& idx_files_table() {
  static const ObjectTable table = object_table<IdxFiles>(
      "idx files", "A pair of IDX files, plain or .gz.",
      {path_field("images", &IdxFiles::images,
                  "Images (N, H, W) or (N, H, W, C) of unsigned bytes.")
           .required(),
       path_field("labels", &IdxFiles::labels, "Labels (N) of unsigned bytes.")
           .required_of_labels()});
  return table;
}

const ObjectTable& idx_table() {
  static const ObjectTable table = object_table<IdxOptions>(
      "idx",
      "Any pair of IDX files (the format of MNIST), plain or .gz; labels from 0 to the number of "
      "outputs of the last layer - 1.",
      {path_field("root", &IdxOptions::root,
                  "Folder with train-images*, train-labels* and, for a test set, t10k-images*, "
                  "t10k-labels*."),
       object_field("train", &IdxOptions::train, idx_files_table(),
                    "Training samples; by default the files under root."),
       object_field("val", &IdxOptions::val, idx_files_table(),
                    "Validation samples, instead of data.val_split; none by default."),
       object_field("test", &IdxOptions::test, idx_files_table(),
                    "Test samples; by default the files under root.")},
      [](const IdxOptions& options) -> std::string {
        if (!options.root.empty() || options.train) return {};
        return "expected root (a folder with the files) or train (the files), found neither";
      });
  return table;
}

const ObjectTable& mnist_table() {
  static const ObjectTable table = object_table<PublishedOptions>(
      "mnist", "MNIST: 60,000 + 10,000 handwritten digits, 28x28 grey.",
      {path_field("root", &PublishedOptions::root,
                  "Folder with the four IDX files, plain or .gz (scripts/fetch-data mnist).")
           .required()});
  return table;
}

const ObjectTable& fashion_mnist_table() {
  static const ObjectTable table = object_table<PublishedOptions>(
      "fashion_mnist", "Fashion-MNIST: 60,000 + 10,000 images of clothing, 28x28 grey.",
      {path_field(
           "root", &PublishedOptions::root,
           "Folder with the four IDX files, plain or .gz (scripts/fetch-data fashion_mnist).")
           .required()});
  return table;
}

const ObjectTable& digits_table() {
  static const ObjectTable table = object_table<PublishedOptions>(
      "digits",
      "Optical recognition of handwritten digits (E. Alpaydin, C. Kaynak, UCI 1998, CC BY 4.0): "
      "1,437 + 360 digits, 8x8 grey. Built into the program: needs no files.",
      {path_field("root", &PublishedOptions::root,
                  "Folder with the four IDX files; the built-in copy if not given.")});
  return table;
}

DataSets open_digits(const Variant& options, const DataRequirements& requirements) {
  const std::string& root = options.as<PublishedOptions>().root;
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
  const std::string& root = options.as<PublishedOptions>().root;
  const bool is_test = part == DataPart::test;
  if (!root.empty()) return open_idx_images("digits", root, &kDigits, part, requirements);
  const EmbeddedDigits& files = embedded_digits();
  return read_idx_pair(
      ByteStream(is_test ? files.test_images : files.train_images,
                 fmt::format("digits (built in): {}-images", is_test ? "t10k" : "train")),
      std::nullopt, {}, is_test ? kDigits.test_size : kDigits.train_size, requirements);
}

}  // namespace

DatasetKind idx_dataset() {
  DatasetKind kind = {&idx_table(),
                      [](const Variant& options, const DataRequirements& requirements) {
                        return open_idx_files(options.as<IdxOptions>(), requirements);
                      },
                      [](const Variant& options, DataPart part,
                         const DataRequirements& requirements, UnreadableSamples&) {
                        return open_idx_file_images(options.as<IdxOptions>(), part, requirements);
                      }};
  kind.declares = [](const Variant& options) {
    return DeclaredSamples{false, TargetKind::class_index, false, DType::u8,
                           options.as<IdxOptions>().val.has_value()};
  };
  return kind;
}

DatasetKind mnist_dataset() {
  return {&mnist_table(),
          [](const Variant& options, const DataRequirements& requirements) {
            return open_idx("mnist", options.as<PublishedOptions>().root, &kMnist, requirements);
          },
          [](const Variant& options, DataPart part, const DataRequirements& requirements,
             UnreadableSamples&) {
            return open_idx_images("mnist", options.as<PublishedOptions>().root, &kMnist, part,
                                   requirements);
          },
          false, DataFacts{{1, 28, 28}, 10}};
}

DatasetKind fashion_mnist_dataset() {
  return {&fashion_mnist_table(),
          [](const Variant& options, const DataRequirements& requirements) {
            return open_idx("fashion_mnist", options.as<PublishedOptions>().root, &kFashionMnist,
                            requirements);
          },
          [](const Variant& options, DataPart part, const DataRequirements& requirements,
             UnreadableSamples&) {
            return open_idx_images("fashion_mnist", options.as<PublishedOptions>().root,
                                   &kFashionMnist, part, requirements);
          },
          false, DataFacts{{1, 28, 28}, 10}};
}

DatasetKind digits_dataset() {
  return {&digits_table(), open_digits, open_digits_unlabelled, false, DataFacts{{1, 8, 8}, 10}};
}

}  // namespace dpt
