// Writing and reading valid safetensors files, and detecting changed ones.
#include "engine/checkpoints/safetensors.h"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "engine/checkpoints/tensor_view.h"
#include "tests/engine/checkpoints/files.h"

namespace dpt {
namespace {

using Shape = std::vector<std::int64_t>;

struct Sample {
  std::vector<float> weight = {1.5F, -2.0F, 0.0F, 1e-30F, 3e30F, -0.0F};
  std::vector<std::int64_t> count = {std::numeric_limits<std::int64_t>::max()};
  std::vector<std::uint8_t> bytes = {1, 2, 255};
  std::vector<TensorView> views() const {
    return {{"conv.weight", "F32", {2, 3}, weight.data()},
            {"odd \"name\" \u00e9", "U8", {3}, bytes.data()},
            {"count", "I64", {}, count.data()},
            {"empty", "F32", {0, 7}, nullptr}};
  }
};

const Metadata kMetadata = {{"format", "pt"}, {"text", "line\n\"quoted\" \\ \u20ac \x01"}};

TEST_CASE("written files are read back") {
  TempDir folder;
  const std::string path = folder.file("a.safetensors");
  const Sample sample;
  write_safetensors(path, kMetadata, sample.views());

  const SafetensorsFile file = SafetensorsFile::open(path);
  CHECK(file.path() == path);
  CHECK(file.metadata() == kMetadata);
  CHECK(file.check_integrity() == Integrity::good);
  REQUIRE(file.tensors().size() == 5);
  // Tensors keep the given order; the checksum comes last.
  CHECK(file.tensors()[0].name == "conv.weight");
  CHECK(file.tensors()[4].name == "dpt.integrity");
  CHECK(file.find("nothing") == nullptr);
  const TensorEntry* weight = file.find("conv.weight");
  REQUIRE(weight);
  CHECK(weight->dtype == "F32");
  CHECK(weight->shape == Shape{2, 3});
  const std::vector<float> floats = file.read_floats(*weight);
  CHECK(std::memcmp(floats.data(), sample.weight.data(), 24) == 0);
  const std::vector<std::byte> raw = file.read(*file.find("count"));
  CHECK(std::memcmp(raw.data(), sample.count.data(), 8) == 0);
  CHECK(file.find("odd \"name\" \u00e9")->bytes() == 3);
  CHECK(file.find("empty")->bytes() == 0);
  CHECK(file.read_floats(*file.find("empty")).empty());

  // The format's alignment: the header is padded with spaces, so data begins at a multiple of 8.
  const std::string bytes = read_all(path);
  std::uint64_t header = 0;
  std::memcpy(&header, bytes.data(), 8);
  CHECK(header % 8 == 0);
  CHECK(bytes[8] == '{');
  CHECK(bytes.size() == 8 + header + 24 + 3 + 8 + 16);
  // No other file remains in the folder.
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);
}

TEST_CASE("the same content gives the same bytes") {
  TempDir folder;
  write_safetensors(folder.file("a"), kMetadata, Sample().views());
  write_safetensors(folder.file("b"), kMetadata, Sample().views());
  CHECK(read_all(folder.file("a")) == read_all(folder.file("b")));
}

TEST_CASE("files without metadata, without tensors, with pretty JSON and any order of keys") {
  TempDir folder;
  const std::string path = folder.file("a");
  write_safetensors(path, {}, {});
  CHECK(SafetensorsFile::open(path).check_integrity() == Integrity::good);

  write_all_text(path, raw_file("{}"));
  CHECK(SafetensorsFile::open(path).tensors().empty());
  CHECK(SafetensorsFile::open(path).check_integrity() == Integrity::absent);

  write_all_text(path, raw_file("{ \"b\": {\n\"data_offsets\": [4, 8], \"shape\": [1], \"dtype\": "
                                "\"F32\"}, \"__metadata__\": {}, \"\\u0061\": {\"dtype\": "
                                "\"I32\", \"shape\": [], \"data_offsets\": [0, 4]}}   ",
                                std::string(8, 'x')));
  const SafetensorsFile file = SafetensorsFile::open(path);
  REQUIRE(file.tensors().size() == 2);
  CHECK(file.tensors()[0].name == "a");
  CHECK(file.tensors()[1].name == "b");
}

TEST_CASE("F16, BF16 and F64 are converted exactly") {
  TempDir folder;
  const std::string path = folder.file("a");
  const std::vector<std::uint16_t> f16 = {0x0000, 0x8000, 0x3C00, 0xC000, 0x7BFF, 0x0001,
                                          0x03FF, 0x0400, 0x7C00, 0xFC00, 0x7E00, 0x3555};
  const std::vector<std::uint16_t> bf16 = {0x3F80, 0xC000, 0x0001, 0x7F80};
  const std::vector<double> f64 = {0.1, -1e300, 5.0};
  const std::vector<std::uint8_t> u8 = {1};
  write_safetensors(path, {},
                    {{"h", "F16", {12}, f16.data()},
                     {"b", "BF16", {4}, bf16.data()},
                     {"d", "F64", {3}, f64.data()},
                     {"u", "U8", {1}, u8.data()}});
  const SafetensorsFile file = SafetensorsFile::open(path);
  const std::vector<float> h = file.read_floats(*file.find("h"));
  const std::vector<float> expected = {0.0F,     -0.0F,           1.0F,     -2.0F,    65504.0F,
                                       0x1p-24F, 1023 * 0x1p-24F, 0x1p-14F, INFINITY, -INFINITY};
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CHECK(std::bit_cast<std::uint32_t>(h[i]) == std::bit_cast<std::uint32_t>(expected[i]));
  }
  CHECK(std::isnan(h[10]));
  CHECK(h[11] == 0.333251953125F);
  CHECK(file.read_floats(*file.find("b")) == std::vector<float>{1.0F, -2.0F, 0x1p-133F, INFINITY});
  CHECK(file.read_floats(*file.find("d")) == std::vector<float>{0.1F, -INFINITY, 5.0F});
  CHECK(error_of([&] { file.read_floats(*file.find("u")); }, path) ==
        "F: tensor 'u': expected F32, F16, BF16 or F64, found U8");
}

TEST_CASE("every type of the format has its size") {
  TempDir folder;
  const std::string path = folder.file("a");
  const std::vector<std::byte> data(64);
  const std::pair<const char*, std::uint64_t> types[] = {
      {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E5M2", 1}, {"F8_E4M3", 1}, {"F8_E8M0", 1},
      {"U16", 2},  {"I16", 2}, {"F16", 2}, {"BF16", 2},    {"U32", 4},     {"I32", 4},
      {"F32", 4},  {"U64", 8}, {"I64", 8}, {"F64", 8},     {"C64", 8}};
  for (const auto& [dtype, bytes] : types) {
    CAPTURE(dtype);
    write_safetensors(path, {}, {{"a", dtype, {3}, data.data()}});
    const SafetensorsFile file = SafetensorsFile::open(path);
    CHECK(file.find("a")->bytes() == 3 * bytes);
    CHECK(file.check_integrity() == Integrity::good);
  }
}

TEST_CASE("data longer than a block is read, written and hashed whole") {
  const TempDir folder;
  const std::string path = folder.file("a");
  std::vector<float> values(3'000'000);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 9973);
  write_safetensors(path, {}, {{"x", "F32", {3'000'000}, values.data()}});
  const SafetensorsFile file = SafetensorsFile::open(path);
  CHECK(file.check_integrity() == Integrity::good);
  CHECK((file.read_floats(*file.find("x")) == values));
  // A changed byte in each of the blocks, including the last.
  const std::string good = read_all(path);
  for (std::size_t at = 1000; at < good.size(); at += 1 << 20) {
    CAPTURE(at);
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 1);
    write_all_text(path, bad);
    CHECK(SafetensorsFile::open(path).check_integrity() == Integrity::mismatch);
  }
}

TEST_CASE("a file of another program is read without a checksum, whatever its metadata") {
  TempDir folder;
  const std::string path = folder.file("a");
  const std::string one = "\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}";
  for (const std::string& metadata :
       {std::string(), std::string("\"__metadata__\":{\"a\":\"first\",\"format\":\"pt\"},")}) {
    write_all_text(path, raw_file("{" + metadata + one, "x"));
    const SafetensorsFile file = SafetensorsFile::open(path);
    CHECK(file.check_integrity() == Integrity::absent);
    CHECK(file.stored_checksum().empty());
    CHECK(file.metadata().size() == (metadata.empty() ? 0 : 2));
  }
}

TEST_CASE("the writer refuses files that the reader would refuse") {
  TempDir folder;
  const std::string path = folder.file("a");
  const float one = 1;
  const auto text = [&](const Metadata& metadata, const std::vector<TensorView>& tensors) {
    return error_of([&] { write_safetensors(path, metadata, tensors); }, path);
  };
  CHECK(text({}, {{"a", "F32", {1}, &one}, {"a", "F32", {1}, &one}}) ==
        "F: cannot write tensor 'a': a tensor with that name already exists");
  CHECK(text({}, {{"dpt.integrity", "F32", {1}, &one}}) ==
        "F: cannot write tensor 'dpt.integrity': a tensor with that name already exists");
  CHECK(text({}, {{"__metadata__", "F32", {1}, &one}}) ==
        "F: cannot write tensor '__metadata__': a tensor with that name already exists");
  CHECK(text({}, {{"a", "F31", {1}, &one}}) == "F: tensor 'a': safetensors has no type F31");
  CHECK(text({}, {{"a", "F32", {-1}, &one}}) ==
        "F: tensor 'a': the shape [-1] is negative or too large to write");
  CHECK(text({}, {{"", "F32", {1}, &one}}) == "F: tensor '': expected a name, found an empty one");
  CHECK(text({{"k", "\xFF"}}, {}) == "F: cannot write it: expected UTF-8, found '\xFF'");
  CHECK_FALSE(std::filesystem::exists(path));
}

TEST_CASE("every single flipped bit is found") {
  TempDir folder;
  const std::string path = folder.file("a");
  const Sample sample;
  write_safetensors(path, {{"k", "v"}}, {sample.views()[0], sample.views()[2]});
  const std::string good = read_all(path);
  int by_reader = 0, by_checksum = 0;
  for (std::size_t bit = 0; bit < good.size() * 8; ++bit) {
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << bit % 8));
    write_all_text(path, bad);
    try {
      const Integrity integrity = SafetensorsFile::open(path).check_integrity();
      CAPTURE(bit);
      REQUIRE(integrity != Integrity::good);
      ++by_checksum;
    } catch (const Error& error) {
      REQUIRE(error.kind() == ErrorKind::data);
      ++by_reader;
    }
  }
  CHECK(by_reader > 0);
  CHECK(by_checksum > 8 * 48);  // at least all tensors and the checksum itself
}

TEST_CASE("every truncation, and every tail, is found") {
  TempDir folder;
  const std::string path = folder.file("a");
  write_safetensors(path, {{"k", "v"}}, {Sample().views()[3]});
  const std::string good = read_all(path);
  for (std::size_t size = 0; size < good.size(); ++size) {
    write_all_text(path, good.substr(0, size));
    REQUIRE_THROWS_AS(SafetensorsFile::open(path), Error);
  }
  write_all_text(path, good + "x");
  CHECK_THROWS_AS(SafetensorsFile::open(path), Error);
}

TEST_CASE("random damage never does more than throw") {
  TempDir folder;
  const std::string path = folder.file("a");
  const Sample sample;
  write_safetensors(path, kMetadata, sample.views());
  const std::string good = read_all(path);
  std::mt19937 random(11);
  const std::string spice = "{}[]\",:0123456789-eE.\\u \t\x00\xff/tfn";
  int opened = 0;
  for (int trial = 0; trial < 4000; ++trial) {
    std::string bad = good;
    for (std::uint32_t edits = 1 + random() % 6; edits > 0; --edits) {
      const std::size_t at = random() % bad.size();
      switch (random() % 5) {
        case 0:
          bad[at] = static_cast<char>(random());
          break;
        case 1:
          bad[at] = spice[random() % spice.size()];
          break;
        case 2:
          bad.erase(at, 1 + random() % 9);
          break;
        case 3:
          bad.insert(at, bad.substr(random() % bad.size(), random() % 40));
          break;
        default:
          bad.insert(at, 1, spice[random() % spice.size()]);
      }
      if (bad.empty()) bad = "x";
    }
    write_all_text(path, bad);
    try {
      const SafetensorsFile file = SafetensorsFile::open(path);
      ++opened;
      for (const TensorEntry& entry : file.tensors()) file.read(entry);
      REQUIRE((file.check_integrity() != Integrity::good || bad == good));
    } catch (const Error& error) {
      REQUIRE(error.kind() == ErrorKind::data);
    }
  }
  CHECK(opened > 0);
}

TEST_CASE("an open file stays what it was when another takes its name") {
  TempDir folder;
  const std::string path = folder.file("a");
  const float one = 1, two = 2;
  write_safetensors(path, {}, {{"x", "F32", {1}, &one}});
  const SafetensorsFile file = SafetensorsFile::open(path);
  write_safetensors(path, {}, {{"x", "F32", {1}, &two}});
  CHECK(file.read_floats(*file.find("x")) == std::vector<float>{1});
  CHECK(file.check_integrity() == Integrity::good);
  const SafetensorsFile again = SafetensorsFile::open(path);
  CHECK(again.read_floats(*again.find("x")) == std::vector<float>{2});
}

}  // namespace
}  // namespace dpt
