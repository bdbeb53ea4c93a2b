// Files of torch.save: dictionaries, views of storages, number types.
#include "engine/checkpoints/torch_file.h"

#include <doctest/doctest.h>

#include "tests/engine/checkpoints/files.h"
#include "tests/support/places.h"
#include "tests/support/text.h"
#include "tests/support/torch_archive.h"

namespace dpt {
namespace {

using namespace testing::pickled;
using testing::check_contains;
using testing::PickledTensor;
using testing::torch_archive;
using Floats = std::vector<float>;

/// A file "w.pth" in a temporary folder.
struct Written {
  TempDir folder;
  std::string path = folder.file("w.pth");

  void write(const std::string& value,
             const std::vector<std::pair<std::string, std::string>>& storages =
                 {{"0", testing::counted(12)}},
             const testing::ZipStyle& style = {}) const {
    write_all_text(path, torch_archive(testing::pickle(value), storages, style));
  }
  TorchFile open(const std::optional<std::string>& key = {}) const {
    TorchFile file = TorchFile::open(path);
    file.choose(key);
    return file;
  }
  std::string error(const std::optional<std::string>& key = {}) const {
    return error_of([&] { open(key); }, path);
  }
};

Floats floats(const TorchFile& file, const std::string& name) {
  const TensorEntry* entry = file.find(name);
  REQUIRE(entry);
  return file.read_floats(*entry);
}

const PickledTensor kVector{{3}, {1}, "0", 12, 2};

TEST_CASE("a file that torch.save wrote: views, ties, half precision, dictionaries") {
  const std::string path = testing::source_dir() + "/tests/golden/torch_state.pth";
  CHECK(is_torch_file(path));
  TorchFile file = TorchFile::open(path);
  REQUIRE(file.dictionaries().size() == 2);
  CHECK(file.dictionaries()[0].key == "state_dict");
  CHECK(file.dictionaries()[1].key == "ema.module");
  file.choose(std::nullopt);
  CHECK(file.check_integrity() == Integrity::good);
  CHECK(file.tensors().size() == 6);
  const Floats weight = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  CHECK(floats(file, "fc.weight") == weight);
  CHECK(floats(file, "tied.weight") == weight);
  CHECK(file.find("turned.weight")->shape == std::vector<std::int64_t>{4, 3});
  CHECK(floats(file, "turned.weight") == Floats{0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11});
  CHECK(floats(file, "part.weight") == Floats{5, 7, 9, 11});
  CHECK(file.find("half.weight")->dtype == "F16");
  CHECK(floats(file, "half.weight") == Floats{-2, 1, -1, 2, 0, 3});
  CHECK(file.read_integers(*file.find("count")) == std::vector<std::int64_t>{7});
  file.choose("ema.module");
  CHECK(floats(file, "fc.weight") == Floats{0, 0.5F, 1, 1.5F});
}

TEST_CASE("torch file: which dictionary is meant, and weights.key") {
  const Written w;
  const std::string tensor = kVector.text();
  const std::string state = ordered({{"a", tensor}, {"b", tensor}});
  w.write(state);
  CHECK(w.open().chosen().key.empty());
  CHECK(floats(w.open(), "b") == Floats{2, 3, 4});
  w.write(dictionary({{"epoch", integer(3)}, {"net", state}}));
  CHECK(w.open().chosen().key == "net");
  CHECK(w.open().dictionaries().size() == 1);
  // A tensor next to a state_dict does not make the outer dictionary the chosen one.
  w.write(dictionary({{"best", tensor}, {"net", state}}));
  CHECK(w.open().chosen().key == "net");
  CHECK(w.open("").chosen().tensors.size() == 1);
  w.write(dictionary({{"ema", state}, {"state_dict", state}}));
  CHECK(w.open().chosen().key == "state_dict");
  CHECK(w.open("ema").chosen().key == "ema");
  w.write(dictionary({{"state_dict", state}, {"model", state}}));
  CHECK(w.open().chosen().key == "model");
  w.write(dictionary({{"ema", dictionary({{"module", state}})}, {"net", state}}));
  CHECK(w.open("ema.module").chosen().tensors.size() == 2);
  CHECK(w.error() ==
        "F: expected one dictionary of tensors, or one called model or state_dict, found others. "
        "The file has these dictionaries of tensors:\n  ema.module: 2 tensors\n  net: 2 "
        "tensors\nChoose one in the config: weights: {file: ..., key: ...}");
  check_contains(
      w.error("ema"),
      "F: weights.key: found no dictionary of tensors 'ema'. The file has these dictionaries");
  w.write(dictionary({{"epoch", integer(3)}}));
  CHECK(w.error() ==
        "F: expected a dictionary of tensors, such as a state_dict, found a dictionary without "
        "tensors (its keys: epoch): save the state_dict() of the model");
  w.write(tensor);
  CHECK(w.error() ==
        "F: expected a dictionary of tensors, such as a state_dict, found a tensor: save the "
        "state_dict() of the model");
}

TEST_CASE("torch file: every type of storage, and every way to write a number") {
  const Written w;
  struct Type {
    const char *storage, *dtype;
    std::size_t width;
  };
  for (const Type& type : {Type{"FloatStorage", "F32", 4},
                           {"DoubleStorage", "F64", 8},
                           {"HalfStorage", "F16", 2},
                           {"BFloat16Storage", "BF16", 2},
                           {"LongStorage", "I64", 8},
                           {"IntStorage", "I32", 4},
                           {"ShortStorage", "I16", 2},
                           {"CharStorage", "I8", 1},
                           {"ByteStorage", "U8", 1},
                           {"BoolStorage", "BOOL", 1}}) {
    CAPTURE(type.storage);
    PickledTensor tensor{{2}, {1}, "k", 2};
    tensor.storage = type.storage;
    w.write(ordered({{"a", tensor.text()}}), {{"k", std::string(2 * type.width, '\x01')}});
    CHECK(w.open().find("a")->dtype == type.dtype);
    CHECK(w.open().read(*w.open().find("a")) ==
          std::vector<std::byte>(2 * type.width, std::byte{1}));
  }
  // Covers None, True, BININT, BININT1, BININT2, LONG1 of 0, 1 and 9 bytes, BINFLOAT,
  // SHORT_BINUNICODE.
  using std::string_literals::operator""s;
  const std::string numbers = "](N\x88J\xff\xff\xff\xffK\x01M\x01\x02\x8a\0\x8a\x01\x80\x8a\x09"s +
                              std::string(9, 'x') + "G" + std::string(8, 'x') + "\x8c\x01y" + "e";
  w.write(dictionary({{"numbers", numbers}, {"state", ordered({{"a", kVector.text()}})}}));
  CHECK(floats(w.open(), "a") == Floats{2, 3, 4});
}

TEST_CASE("torch file: protocol 4, parameters, scalars, empty and expanded tensors") {
  const Written w;
  const auto named = [](const std::string& text) {
    return "\x8c" + testing::little_endian(text.size(), 1) + text + "\x94";
  };
  // Protocol 4 numbers the memo implicitly: OrderedDict is value 2.
  const std::string type = named("collections") + named("OrderedDict") + "\x93\x94";
  const std::string state =
      std::string("\x95") + std::string(8, '\0') + type + ")R(" + named("a") + kVector.text() +
      named("b") + object("torch._utils", "_rebuild_parameter") +
      tuple({kVector.text(), "\x88", std::string("h\x02") + ")R"}) + "R" + "u";
  write_all_text(w.path, torch_archive("\x80\x04" + state + ".", {{"0", testing::counted(12)}}));
  CHECK(floats(w.open(), "a") == Floats{2, 3, 4});
  CHECK(floats(w.open(), "b") == Floats{2, 3, 4});
  const PickledTensor scalar{{}, {}, "0", 12, 11};
  const PickledTensor empty{{0, 3}, {3, 1}, "none", 0};
  const PickledTensor expanded{{2, 2}, {0, 5}, "0", 12, 1};
  w.write(ordered({{"s", scalar.text()}, {"e", empty.text()}, {"x", expanded.text()}}),
          {{"0", testing::counted(12)}, {"none", ""}});
  CHECK(floats(w.open(), "s") == Floats{11});
  CHECK(floats(w.open(), "e").empty());
  CHECK(floats(w.open(), "x") == Floats{1, 6, 1, 6});
}

TEST_CASE("torch file: deflated members, zip64, and checksums that are left out") {
  const Written w;
  const std::string state = ordered({{"a", kVector.text()}});
  for (const testing::ZipStyle& style :
       {testing::ZipStyle{.deflated = true}, testing::ZipStyle{.zip64 = true}}) {
    w.write(state, {{"0", testing::counted(12)}}, style);
    CHECK(floats(w.open(), "a") == Floats{2, 3, 4});
    CHECK(w.open().check_integrity() == Integrity::good);
  }
  w.write(state);
  std::string bytes = read_all(w.path);
  const std::size_t at = bytes.find(testing::counted(12)) + 9;
  bytes[at] = '\x55';
  write_all_text(w.path, bytes);
  const TorchFile file = w.open();
  for (const std::string& error : {error_of([&] { file.check_integrity(); }, w.path),
                                   error_of([&] { file.read(*file.find("a")); }, w.path)}) {
    CHECK(error.starts_with("F, member archive/data/0: damaged: expected the checksum (CRC-32) "));
  }
  // The archive is written as after torch.serialization.set_crc32_options(False).
  w.write(state, {{"0", testing::counted(12)}}, {.has_crc = false});
  CHECK(floats(w.open(), "a") == Floats{2, 3, 4});
  CHECK(w.open().check_integrity() == Integrity::absent);
}

}  // namespace
}  // namespace dpt
