// CIFAR-10 and CIFAR-100 in their binary form. A record is a label (in CIFAR-100 a coarse and a
// fine label; only the fine one is used) and 3072 bytes: 32x32 red, then green, then blue. In
// memory, the channels of a pixel are adjacent (HWC). Source:
// https://www.cs.toronto.edu/~kriz/cifar.html
#include <filesystem>
#include <system_error>

#include "datasets/byte_stream.h"
#include "datasets/dataset.h"
#include "datasets/kinds.h"
#include "datasets/requirements.h"
#include "datasets/resident_source.h"
#include "engine/data/data_sets.h"
#include "kernels/base/error.h"

namespace dpt {
namespace {

constexpr SampleShape kShape{32, 32, 3};
constexpr std::size_t kPlane = 32 * 32;
constexpr std::size_t kPixelBytes = 3 * kPlane;

struct CifarOptions {
  std::string root;
};

/// Differences between CIFAR-10 and CIFAR-100.
struct CifarFacts {
  std::string name;    ///< name of the data set in configs and scripts/fetch-data
  std::string folder;  ///< folder in the published archive
  std::vector<std::string> train_files, test_files;
  std::int64_t records;  ///< per training file
  std::size_t label_bytes;
  std::vector<std::string> classes;
};

const CifarFacts& cifar10() {
  static const CifarFacts facts{
      "cifar10",
      "cifar-10-batches-bin",
      {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
       "data_batch_5.bin"},
      {"test_batch.bin"},
      10000,
      1,
      {"airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"}};
  return facts;
}

const CifarFacts& cifar100() {
  static const CifarFacts facts{
      "cifar100",
      "cifar-100-binary",
      {"train.bin"},
      {"test.bin"},
      50000,
      2,
      {"apple",       "aquarium_fish", "baby",      "bear",       "beaver",       "bed",
       "bee",         "beetle",        "bicycle",   "bottle",     "bowl",         "boy",
       "bridge",      "bus",           "butterfly", "camel",      "can",          "castle",
       "caterpillar", "cattle",        "chair",     "chimpanzee", "clock",        "cloud",
       "cockroach",   "couch",         "crab",      "crocodile",  "cup",          "dinosaur",
       "dolphin",     "elephant",      "flatfish",  "forest",     "fox",          "girl",
       "hamster",     "house",         "kangaroo",  "keyboard",   "lamp",         "lawn_mower",
       "leopard",     "lion",          "lizard",    "lobster",    "man",          "maple_tree",
       "motorcycle",  "mountain",      "mouse",     "mushroom",   "oak_tree",     "orange",
       "orchid",      "otter",         "palm_tree", "pear",       "pickup_truck", "pine_tree",
       "plain",       "plate",         "poppy",     "porcupine",  "possum",       "rabbit",
       "raccoon",     "ray",           "road",      "rocket",     "rose",         "sea",
       "seal",        "shark",         "shrew",     "skunk",      "skyscraper",   "snail",
       "snake",       "spider",        "squirrel",  "streetcar",  "sunflower",    "sweet_pepper",
       "table",       "tank",          "telephone", "television", "tiger",        "tractor",
       "train",       "trout",         "tulip",     "turtle",     "wardrobe",     "whale",
       "willow_tree", "wolf",          "woman",     "worm"}};
  return facts;
}

/// Appends the records of one file to `data`.
void read_file(const CifarFacts& facts, const std::string& path, std::int64_t records,
               ResidentSource::Data& data) {
  ByteStream file(path);
  const std::size_t record_bytes = facts.label_bytes + kPixelBytes;
  file.expect(static_cast<std::uint64_t>(records) * record_bytes,
              fmt::format("{} records of {} bytes", records, record_bytes));
  std::vector<std::byte> record(record_bytes);
  for (std::int64_t i = 0; i < records; ++i) {
    const std::uint64_t offset = file.position();
    file.read(record, "a record");
    const auto label = std::to_integer<std::int32_t>(record[facts.label_bytes - 1]);
    if (static_cast<std::size_t>(label) >= facts.classes.size()) {
      check_label(label, facts.classes.size(),
                  fmt::format("{}, record {} at offset {}", path, i, offset));
    }
    const std::byte* planes = record.data() + facts.label_bytes;
    std::byte* to = data.pixels.get() + data.labels.size() * kPixelBytes;
    for (std::size_t p = 0; p < kPlane; ++p) {
      for (std::size_t c = 0; c < 3; ++c) to[3 * p + c] = planes[c * kPlane + p];
    }
    data.labels.push_back(label);
  }
  file.expect_end();
  data.files.emplace_back(path, records);
}

std::shared_ptr<const DataSource> read_files(const CifarFacts& facts, const std::string& folder,
                                             const std::vector<std::string>& files,
                                             std::int64_t records) {
  namespace fs = std::filesystem;
  ResidentSource::Data data;
  data.shape = kShape;
  data.classes = facts.classes;
  // Check all sizes first: memory is allocated only if every file is complete.
  for (const std::string& file : files) {
    const std::string path = (fs::path(folder) / file).string();
    std::error_code error;
    // Look only for a missing file: ByteStream reports other problems.
    if (fs::status(path, error).type() == fs::file_type::not_found) {
      fail(ErrorKind::data, "{}: {} has no file {}; expected {} and {}{}", facts.name, folder, file,
           fmt::join(facts.train_files, ", "), fmt::join(facts.test_files, ", "),
           fetch_hint(facts.name));
    }
    ByteStream(path).expect(
        static_cast<std::uint64_t>(records) * (facts.label_bytes + kPixelBytes),
        fmt::format("{} records of {} bytes", records, facts.label_bytes + kPixelBytes));
  }
  const std::size_t samples = files.size() * static_cast<std::size_t>(records);
  data.pixels = allocate_pixels(samples * kPixelBytes, folder);
  data.labels.reserve(samples);
  for (const std::string& file : files) {
    read_file(facts, (fs::path(folder) / file).string(), records, data);
  }
  return std::make_shared<ResidentSource>(std::move(data));
}

/// Returns the folder of the files. Throws if there is none.
std::string folder_of_files(const CifarFacts& facts, const std::string& root) {
  namespace fs = std::filesystem;
  check_root(facts.name, root,
             fmt::format("{}, {} (or with the folder {})", fmt::join(facts.train_files, ", "),
                         fmt::join(facts.test_files, ", "), facts.folder),
             facts.name);
  const fs::path inner = fs::path(root) / facts.folder;
  std::error_code error;
  const fs::path first = fs::path(root) / facts.train_files[0];
  const bool is_archive =
      fs::status(first, error).type() == fs::file_type::not_found && fs::is_directory(inner, error);
  return is_archive ? inner.string() : root;
}

std::string name_with_root(const CifarFacts& facts, const std::string& root) {
  return fmt::format("{} ({})", facts.name, root);
}

std::shared_ptr<const DataSource> read_part(const CifarFacts& facts, const std::string& folder,
                                            DataPart part) {
  return part == DataPart::train ? read_files(facts, folder, facts.train_files, facts.records)
                                 : read_files(facts, folder, facts.test_files, 10000);
}

DataSets open_cifar(const CifarFacts& facts, const Variant& options,
                    const DataRequirements& requirements) {
  const std::string& root = options.as<CifarOptions>().root;
  const std::string folder = folder_of_files(facts, root);
  check_classes(name_with_root(facts, root), facts.classes.size(), requirements);
  check_shape(name_with_root(facts, root), kShape, requirements);
  DataSets sets;
  if (requirements.wants(DataPart::train)) sets.train = read_part(facts, folder, DataPart::train);
  if (requirements.wants(DataPart::test)) sets.test = read_part(facts, folder, DataPart::test);
  return sets;
}

/// Opens one part for prediction. Its records always have labels, which are not used.
std::shared_ptr<const DataSource> open_cifar_unlabelled(const CifarFacts& facts,
                                                        const Variant& options, DataPart part,
                                                        const DataRequirements& requirements) {
  const std::string& root = options.as<CifarOptions>().root;
  const std::string folder = folder_of_files(facts, root);
  check_shape(name_with_root(facts, root), kShape, requirements);
  return read_part(facts, folder, part);
}

ObjectTable table_of(const char* name, const char* doc) {
  return object_table<CifarOptions>(
      name, doc,
      {path_field("root", &CifarOptions::root,
                  "Folder with the binary files, or the folder that contains the unpacked archive "
                  "(scripts/fetch-data).")
           .required()});
}

}  // namespace

DatasetKind cifar10_dataset() {
  static const ObjectTable table = table_of(
      "cifar10", "CIFAR-10, binary version: 50,000 + 10,000 colour images, 32x32, 10 classes.");
  return {&table,
          [](const Variant& options, const DataRequirements& requirements) {
            return open_cifar(cifar10(), options, requirements);
          },
          [](const Variant& options, DataPart part, const DataRequirements& requirements,
             UnreadableSamples&) {
            return open_cifar_unlabelled(cifar10(), options, part, requirements);
          },
          false, DataFacts{{3, 32, 32}, 10}};
}

DatasetKind cifar100_dataset() {
  static const ObjectTable table = table_of(
      "cifar100",
      "CIFAR-100, binary version: 50,000 + 10,000 colour images, 32x32, 100 fine classes.");
  return {&table,
          [](const Variant& options, const DataRequirements& requirements) {
            return open_cifar(cifar100(), options, requirements);
          },
          [](const Variant& options, DataPart part, const DataRequirements& requirements,
             UnreadableSamples&) {
            return open_cifar_unlabelled(cifar100(), options, part, requirements);
          },
          false, DataFacts{{3, 32, 32}, 100}};
}

}  // namespace dpt
