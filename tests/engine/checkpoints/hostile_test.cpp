// Malicious files: each is refused with a message that says where the fault is and what it is.
#include <doctest/doctest.h>
#include <sys/stat.h>

#include "engine/checkpoints/safetensors.h"
#include "tests/engine/checkpoints/files.h"

namespace dpt {
namespace {

struct Case {
  std::string bytes, text;
};

std::string open_error(const std::string& path) {
  return error_of([&] { SafetensorsFile::open(path); }, path);
}

void check(const std::vector<Case>& cases) {
  TempDir folder;
  const std::string path = folder.file("bad.safetensors");
  for (const Case& one : cases) {
    write_all_text(path, one.bytes);
    CAPTURE(one.bytes);
    CHECK(open_error(path) == "F: " + one.text);
  }
}

/// Returns a header with one tensor 'a', and its data.
std::string tensor(const std::string& info, std::size_t data_bytes = 4) {
  return raw_file("{\"a\":" + info + "}", std::string(data_bytes, 'x'));
}

std::string two(const std::string& first, const std::string& second, std::size_t data_bytes) {
  const auto u8 = [](const std::string& offsets) {
    const std::size_t comma = offsets.find(',');
    const int begin = std::stoi(offsets), end = std::stoi(offsets.substr(comma + 1));
    return "{\"dtype\":\"U8\",\"shape\":[" + std::to_string(end - begin) + "],\"data_offsets\":[" +
           offsets + "]}";
  };
  return raw_file("{\"a\":" + u8(first) + ",\"b\":" + u8(second) + "}",
                  std::string(data_bytes, 'x'));
}

TEST_CASE("paths that are not files") {
  TempDir folder;
  CHECK(open_error(folder.file("none")) == "F: cannot open: No such file or directory");
  CHECK(open_error(folder.path()) == "F: expected a file, found a folder");
  const std::string pipe = folder.file("pipe");
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  CHECK(open_error(pipe) == "F: expected a file, found a device, pipe or socket");
}

TEST_CASE("lengths that lie") {
  check({{"", "expected a safetensors file of at least 8 bytes, found 0 bytes"},
         {"1234567", "expected a safetensors file of at least 8 bytes, found 7 bytes"},
         {raw_file("{}", "", 3),
          "byte 0: expected a header that fits into the file (at most 2 bytes), found one of 3 "
          "bytes: the file is truncated"},
         {raw_file("{}", "", 100'000'001),
          "byte 0: expected a header of at most 100000000 bytes, found 100000001"},
         {std::string(8, '\xFF') + "{}",
          "byte 0: expected a header of at most 100000000 bytes, found 18446744073709551615"},
         {raw_file("", "", 0), "byte 8: expected a header that begins with '{', found 0x00"}});
}

TEST_CASE("headers that are not JSON, or not an object") {
  check({{raw_file("[]"), "byte 8: expected a header that begins with '{', found 0x5b"},
         {raw_file(" {}"), "byte 8: expected a header that begins with '{', found 0x20"},
         {raw_file(std::string("{}\0{", 4)), "byte 10: expected JSON, found a zero byte"},
         {raw_file("{}{"), "byte 10: the header is not valid JSON here"},
         {raw_file("{\"a\""), "byte 12: the header is not valid JSON here"},
         {raw_file("{\"a\":\xFF}"), "byte 13: the header is not valid JSON here"},
         {raw_file("{" + std::string(50'000, '[')), "byte 9: the header is not valid JSON here"}});
}

TEST_CASE("values of the wrong type") {
  check(
      {{tensor("7"), "tensor 'a': expected an object, found 7"},
       {tensor("null"), "tensor 'a': expected an object, found null"},
       {tensor("[1]"), "tensor 'a': expected an object, found a list"},
       {tensor("{\"dtype\":1}"), "tensor 'a': dtype: expected a string, found 1"},
       {tensor("{\"dtype\":{}}"), "tensor 'a': dtype: expected a string, found an object"},
       {tensor("{\"shape\":4}"), "tensor 'a': shape: expected a list of numbers, found 4"},
       {tensor("{\"shape\":\"F32\"}"),
        "tensor 'a': shape: expected a list of numbers, found a string"},
       {tensor("{\"data_offsets\":\"F32\"}"),
        "tensor 'a': data_offsets: expected a list of numbers, found a string"},
       {tensor("{\"shape\":[-1]}"), "tensor 'a': shape: expected integers of at least 0, found -1"},
       {tensor("{\"shape\":[1.0]}"),
        "tensor 'a': shape: expected integers of at least 0, found 1.0"},
       {tensor("{\"shape\":[[[[[[1]]]]]]}"),
        "tensor 'a': shape: expected integers of at least 0, found a list"},
       {tensor("{\"shape\":[18446744073709551615]}"),
        "tensor 'a': shape: 18446744073709551615 is too large"},
       {tensor("{\"data_offsets\":[true,1]}"),
        "tensor 'a': data_offsets: expected integers of at least 0, found a boolean"},
       {tensor("{\"data_offsets\":[0,1,2]}"),
        "tensor 'a': data_offsets: expected two numbers, found more"},
       {raw_file("{\"__metadata__\":[]}"), "__metadata__: expected an object, found a list"},
       {raw_file("{\"__metadata__\":{\"k\":1}}"), "__metadata__: 'k': expected a string, found 1"},
       {raw_file("{\"__metadata__\":{\"k\":{}}}"),
        "__metadata__: 'k': expected a string, found an object"}});
}

TEST_CASE("keys that are unknown, missing or duplicated") {
  const std::string good = "{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}";
  check({{raw_file("{\"a\":" + good + ",\"a\":" + good + "}", "xxxx"),
          "tensor 'a': appears twice in the header"},
         {raw_file("{\"a\":" + good + ",\"\\u0061\":" + good + "}", "xxxx"),
          "tensor 'a': appears twice in the header"},
         {raw_file("{\"__metadata__\":{},\"__metadata__\":{}}"),
          "__metadata__: appears twice in the header"},
         {raw_file("{\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"}}"), "__metadata__: has 'k' twice"},
         {tensor("{\"dtype\":\"F32\",\"dtype\":\"F32\"}"), "tensor 'a': has 'dtype' twice"},
         {tensor("{\"type\":\"F32\"}"),
          "tensor 'a': expected dtype, shape and data_offsets, found 'type'"},
         {tensor("{\"shape\":[1],\"data_offsets\":[0,4]}"), "tensor 'a': has no dtype"},
         {tensor("{\"dtype\":\"F32\",\"data_offsets\":[0,4]}"), "tensor 'a': has no shape"},
         {tensor("{\"dtype\":\"F32\",\"shape\":[1]}"), "tensor 'a': has no data_offsets"},
         {tensor("{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}"),
          "tensor 'a': data_offsets: expected two numbers, found 1"},
         {tensor("{\"dtype\":\"float32\"}"),
          "tensor 'a': unknown dtype 'float32'; known are BOOL, U8, I8, F8_E5M2, F8_E4M3, "
          "F8_E8M0, U16, I16, F16, BF16, U32, I32, F32, U64, I64, F64, C64"}});
}

TEST_CASE("names") {
  check({{raw_file("{\"\":{}}"), "tensor '': expected a name, found an empty one"},
         {raw_file("{\"a\\u0000b\":{}}"),
          "tensor 'a?b': expected a name of printable characters, found byte 0x00 in it"},
         {raw_file("{\"a\\nb\":{}}"),
          "tensor 'a?b': expected a name of printable characters, found byte 0x0a in it"},
         {raw_file("{\"" + std::string(1025, 'n') + "\":{}}"),
          "tensor '" + std::string(1025, 'n') +
              "': expected a name of at most 1024 bytes, found 1025"}});
}

TEST_CASE("sizes that wrap or do not fit") {
  const auto f32 = [](const std::string& shape, const std::string& offsets, std::size_t data = 4) {
    return tensor(
        "{\"dtype\":\"F32\",\"shape\":[" + shape + "],\"data_offsets\":[" + offsets + "]}", data);
  };
  std::string many_ones;
  for (int i = 0; i < 32; ++i) many_ones += ",1";
  check(
      {{f32("4294967296,4294967296", "0,4"),
        "tensor 'a': shape: [4294967296, 4294967296] elements of F32 overflow a 64-bit count of "
        "bytes"},
       // 2^62 + 1 elements of 4 bytes: the product wraps to 4.
       {f32("4611686018427387905", "0,4"),
        "tensor 'a': shape: [4611686018427387905] elements of F32 overflow a 64-bit count of "
        "bytes"},
       {f32("4611686018427387904,4,0", "0,0", 0),
        "tensor 'a': shape: [4611686018427387904, 4, 0] elements of F32 overflow a 64-bit count of "
        "bytes"},
       {f32("2", "0,4"), "tensor 'a': expected 8 bytes for F32 [2], found 4 (data_offsets 0 to 4)"},
       {f32("1", "4,0"),
        "tensor 'a': data_offsets: expected [begin, end] in ascending order, found [4, 0]"},
       {f32("1", "18446744073709551612,0"),
        "tensor 'a': data_offsets: expected [begin, end] in ascending order, found "
        "[18446744073709551612, 0]"},
       {f32("1000", "0,4000"),
        "tensor 'a': ends at byte 4000 of the data, but the data has only 4 bytes: the file is "
        "truncated"},
       {f32("1", "0,4", 3),
        "tensor 'a': ends at byte 4 of the data, but the data has only 3 bytes: the file is "
        "truncated"},
       {f32("1" + many_ones, "0,4"), "tensor 'a': shape: expected at most 32 dimensions"}});
}

TEST_CASE("lengths, names and shapes at their bounds") {
  const std::string good = ":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}";
  std::string ones = "1";
  for (int i = 1; i < 32; ++i) ones += ",1";
  TempDir folder;
  const std::string path = folder.file("good.safetensors");
  for (const std::string& bytes :
       {raw_file("{\"" + std::string(1024, 'n') + "\"" + good, "x"),
        tensor("{\"dtype\":\"U8\",\"shape\":[" + ones + "],\"data_offsets\":[0,1]}", 1)}) {
    write_all_text(path, bytes);
    CHECK(open_error(path) == "no error");
  }
  check({{raw_file("{}", "", 100'000'000),
          "byte 0: expected a header that fits into the file (at most 2 bytes), found one of "
          "100000000 bytes: the file is truncated"},
         {tensor("{\"dtype\":\"U8\",\"shape\":[9223372036854775807],\"data_offsets\":[0,4]}"),
          "tensor 'a': expected 9223372036854775807 bytes for U8 [9223372036854775807], found 4 "
          "(data_offsets 0 to 4)"},
         // A space is printable; the last of the control characters is not.
         {raw_file("{\"a b\":7}"), "tensor 'a b': expected an object, found 7"},
         {raw_file("{\"a\\u007fb\":{}}"),
          "tensor 'a?b': expected a name of printable characters, found byte 0x7f in it"}});
}

TEST_CASE("a file of dpt that lost all of its tensors is damaged") {
  check({{raw_file("{\"__metadata__\":{\"dpt.version\":\"1.2\"}}"),
          "expected the checksum tensor 'dpt.integrity' at the end (the metadata 'dpt.version' "
          "says that dpt wrote the file), found no tensor: the file is damaged; use an earlier "
          "checkpoint. (If another program rewrote the file, it must drop the metadata keys that "
          "begin with 'dpt.')"}});
}

TEST_CASE("holes, overlaps and tails") {
  check({{two("0,4", "5,8", 8),
          "tensor 'b': expected to begin at byte 4 of the data (after 'a'), found 5, a hole"},
         {two("1,4", "4,8", 8),
          "tensor 'a': expected to begin at byte 0 of the data, found 1, a hole"},
         {two("0,4", "3,8", 8),
          "tensor 'b': expected to begin at byte 4 of the data (after 'a'), found 3, an overlap"},
         {two("0,4", "0,4", 4),
          "tensor 'b': expected to begin at byte 4 of the data (after 'a'), found 0, an overlap"},
         {two("0,4", "4,8", 9), "expected 8 bytes of data, as the header says, found 9"},
         {raw_file("{}", "x"), "expected 0 bytes of data, as the header says, found 1"}});
}

TEST_CASE("an invalid checksum") {
  check({{raw_file("{\"dpt.integrity\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8]}}",
                   std::string(8, 'x')),
          "tensor 'dpt.integrity': expected U8 [16], found U8 [8]"},
         {raw_file("{\"dpt.integrity\":{\"dtype\":\"U8\",\"shape\":[16],\"data_offsets\":[0,16]},"
                   "\"z\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[16,17]}}",
                   std::string(17, 'x')),
          "tensor 'dpt.integrity': expected it to be the last tensor, found 'z' after it"}});
  TempDir folder;
  const std::string path = folder.file("a");
  write_all_text(
      path,
      raw_file("{\"dpt.integrity\":{\"dtype\":\"U8\",\"shape\":[16],\"data_offsets\":[0,16]}}",
               std::string(16, 'x')));
  CHECK(SafetensorsFile::open(path).check_integrity() == Integrity::mismatch);
}

}  // namespace
}  // namespace dpt
