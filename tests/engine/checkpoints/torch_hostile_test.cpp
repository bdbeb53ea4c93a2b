// Malicious files of torch.save, and files with content that dpt does not read. Each is refused
// with a message that names the content, and nothing in the file is executed.
#include <doctest/doctest.h>

#include "engine/checkpoints/safetensors.h"
#include "engine/checkpoints/torch_file.h"
#include "tests/engine/checkpoints/files.h"
#include "tests/support/text.h"
#include "tests/support/torch_archive.h"

namespace dpt {
namespace {

using namespace testing::pickled;
using std::string_literals::operator""s;
using testing::check_contains;
using testing::little_endian;
using testing::PickledTensor;
using testing::torch_archive;

const std::string kStorage(48, '\0');
const PickledTensor kGood{{3}, {1}, "0", 12};

/// A part of a pickle, and a part of the message that refuses it.
struct HostilePickle {
  std::string bytes, text;
};

/// Returns the error for a file of these bytes, without its path.
std::string refused(const std::string& bytes, const std::string& name = "w.pth") {
  const TempDir folder;
  const std::string path = folder.file(name);
  write_all_text(path, bytes);
  return error_of([&] { TorchFile::open(path).choose(std::nullopt); }, path);
}
std::string refused_pickle(const std::string& data_pkl) {
  return refused(torch_archive(data_pkl, {{"0", kStorage}}));
}
std::string refused_value(const std::string& value) {
  return refused_pickle(testing::pickle(value));
}
std::string refused_tensor(const PickledTensor& tensor) {
  return refused_value(ordered({{"a", tensor.text()}}));
}

TEST_CASE("a pickle's other objects are refused by name, whatever they would do") {
  const std::string said =
      ". dpt reads tensors, dictionaries, lists, strings and numbers; it executes nothing. Convert "
      "the weights in Python, if you trust the file (torch.load then runs code that it holds):\n"
      "  import torch; from safetensors.torch import save_file\n"
      "  found = torch.load(\"F\", map_location=\"cpu\", weights_only=False)\n";
  const TempDir folder;
  const std::string mark = folder.file("mark");
  const std::string command = tuple({text("touch " + mark)});
  CHECK(refused_value(object("posix", "system") + command + "R")
            .starts_with("F: data.pkl, byte 2: found the Python object posix.system" + said));
  const std::vector<HostilePickle> cases = {
      {object("__main__", "Net") + ")\x81", "__main__.Net"},
      {object("builtins", "eval") + command + "R", "builtins.eval"},
      {object("builtins", "getattr"), "builtins.getattr"},
      {object("argparse", "Namespace") + ")R", "argparse.Namespace"},
      {object("torch._utils", "_rebuild_tensor_v3"), "torch._utils._rebuild_tensor_v3"},
      {object("torch", "_utils._rebuild_sparse_tensor"), "torch._utils._rebuild_sparse_tensor"},
      {object("torch", "QInt8Storage"), "torch.QInt8Storage"},
      {object("torch.storage", "UntypedStorage"), "torch.storage.UntypedStorage"},
      {object("numpy.core.multiarray", "scalar"), "numpy.core.multiarray.scalar"},
      {text("os") + text("system") + "\x93" + command + "R", "os.system"},
      {dictionary({{"net", ordered({{"a", kGood.text()}})}, {"f", object("nt", "system")}}),
       "nt.system"},
      {object("a\x1b[2J", std::string(300, 'n')), "a?[2J." + std::string(194, 'n') + "..."}};
  for (const HostilePickle& one : cases) {
    CAPTURE(one.text);
    check_contains(refused_value(one.bytes), ": found the Python object " + one.text + said);
  }
  CHECK_FALSE(std::filesystem::exists(mark));
}

TEST_CASE("a pickle's other opcodes are refused by name") {
  const std::vector<HostilePickle> cases = {{"ios\nsystem\n", "INST"},
                                            {"o", "OBJ"},
                                            {"\x81", "NEWOBJ"},
                                            {"\x92", "NEWOBJ_EX"},
                                            {"\x82\x01", "EXT1"},
                                            {"\x83\x01\0"s, "EXT2"},
                                            {"\x84\x01\0\0\0"s, "EXT4"},
                                            {"P1\n", "PERSID"},
                                            {"0", "POP"},
                                            {"1", "POP_MARK"},
                                            {"2", "DUP"},
                                            {"I1\n", "INT"},
                                            {"S'x'\n", "STRING"},
                                            {"B\0\0\0\0"s, "BINBYTES"},
                                            {"C\x01x", "SHORT_BINBYTES"},
                                            {"\x8f", "EMPTY_SET"},
                                            {"\x91", "FROZENSET"},
                                            {"\x96", "BYTEARRAY8"},
                                            {"\x97", "NEXT_BUFFER"},
                                            {"\x8b\x01\0\0\0x"s, "LONG4"},
                                            {"d", "DICT"},
                                            {"l", "LIST"}};
  for (const HostilePickle& one : cases) {
    CAPTURE(one.text);
    check_contains(refused_value(one.bytes),
                   "F: data.pkl, byte 2: found the pickle opcode " + one.text + ". dpt reads");
  }
  CHECK(refused_value("\xff") ==
        "F: data.pkl, byte 2: expected an opcode of pickle, found the byte 0xff: the file is "
        "damaged");
}

TEST_CASE("a pickle that is not a program with one value") {
  const std::string text_of_8 = "\x8d" + std::string(8, '\xff');
  const std::vector<HostilePickle> cases = {
      {"", "byte 0: expected more bytes, found the end of data.pkl"},
      {"\x80\x02", "byte 2: expected more bytes, found the end of data.pkl"},
      {"\x80\x01N.", "byte 0: expected protocol 2 to 5, found 1"},
      {"\x80\x06N.", "byte 0: expected protocol 2 to 5, found 6"},
      {"\x80\x02.", "byte 2: expected a value on the stack, found none"},
      {"\x80\x02NN.", "byte 4: expected one value, found more on the stack"},
      {"\x80\x02(N.", "byte 4: expected one value, found more on the stack"},
      {"\x80\x02]u.", "byte 3: expected a mark on the stack, found none"},
      {"\x80\x02N(a.", "byte 4: expected a value on the stack, found none"},
      {"\x80\x02}(Nu.", "byte 5: expected a value for each key, found a key without one"},
      {"\x80\x02}Na.", "byte 4: expected a list, found a dictionary"},
      {"\x80\x02]NNs.", "byte 5: expected a dictionary, found a list"},
      {"\x80\x02h\x07.", "byte 2: expected a value in the memo at 7, found none"},
      {"\x80\x02q\x07.", "byte 2: expected a value on the stack, found none"},
      {"\x80\x02X\xff\xff\xff\xff.", "byte 2: expected more bytes, found the end of data.pkl"},
      {"\x80\x02" + text_of_8 + ".", "byte 2: expected more bytes, found the end of data.pkl"},
      {"\x80\x02"
       "ctorch",
       "byte 2: expected a line, found the end of data.pkl"},
      {"\x80\x02NN\x93.", "byte 4: expected a string, found None"},
      {"\x80\x02N)R.", "byte 4: expected a class or function, found None"},
      {"\x80\x02" + object("collections", "OrderedDict") + "NR.",
       "byte 28: expected a tuple, found None"},
      {"\x80\x02" + object("collections", "OrderedDict") + tuple({integer(1)}) + "R.",
       "byte 39: expected a call of a known function, found collections.OrderedDict with other "
       "arguments"},
      {"\x80\x02" + object("torch", "FloatStorage") + ")R.",
       "byte 23: expected a call of a known function, found torch.FloatStorage with other "
       "arguments"},
      {"\x80\x02]}b.", "byte 4: expected a dictionary, found a list"},
      {"\x80\x02}Nb.", "byte 4: expected a dictionary, found None"},
      {"\x80\x02)Q.", "byte 3: expected a tuple of 5, found 0"},
      {"\x80\x02" +
           tuple({text("module"), object("torch", "FloatStorage"), text("0"), text("cpu"),
                  integer(1)}) +
           "Q.",
       "expected a storage, found torch.FloatStorage"},
      {"\x80\x02" +
           tuple({text("storage"), object("collections", "OrderedDict"), text("0"), text("cpu"),
                  integer(1)}) +
           "Q.",
       "expected a storage, found collections.OrderedDict"},
      {"\x80\x02" + std::string(1001, '(') + ".",
       "byte 1002: expected at most 1000 nested values, found more"}};
  for (const HostilePickle& one : cases) {
    CAPTURE(one.text);
    const std::string error = refused_pickle(one.bytes);
    CHECK(error.starts_with("F: data.pkl, byte "));
    check_contains(error, one.text + ": the file is damaged");
  }
}

TEST_CASE("views that leave their storage, or whose sizes overflow") {
  const auto beyond = [](const PickledTensor& tensor) {
    check_contains(refused_tensor(tensor),
                   ": expected a tensor within the 12 elements of its storage, found one that goes "
                   "beyond: the file is damaged");
  };
  CHECK(refused_tensor({{12}, {1}, "0", 12}) == "no error");
  beyond({{13}, {1}, "0", 12});
  beyond({{12}, {1}, "0", 12, 1});
  beyond({{2}, {12}, "0", 12});
  beyond({{}, {}, "0", 12, 12});
  beyond({{1}, {1}, "0", 12, INT64_MAX});
  beyond({{3}, {INT64_MAX}, "0", 12, 3});
  beyond({{5, 2}, {INT64_MAX, 1}, "0", 12});
  const auto refuse = [](const PickledTensor& tensor, const std::string& text) {
    check_contains(refused_tensor(tensor), text);
  };
  refuse({{-1}, {1}, "0", 12}, "expected a size of at least 0, found -1");
  refuse({{1}, {-1}, "0", 12}, "expected a size of at least 0, found -1");
  refuse({{1}, {1}, "0", 12, -1}, "expected a size of at least 0, found -1");
  refuse({{1}, {1}, "0", -12}, "expected a size of at least 0, found -12");
  refuse({{1, 1}, {1}, "0", 12}, "expected at most 32 dimensions, each with a stride, found 2");
  refuse({std::vector<std::int64_t>(33, 1), std::vector<std::int64_t>(33, 1), "0", 12},
         "expected at most 32 dimensions, each with a stride, found 33 with 33");
  refuse({{INT64_MAX, INT64_MAX}, {0, 0}, "0", 12}, "expected a tensor of less than 2^64 bytes");
  PickledTensor negated = kGood;
  negated.metadata = dictionary({{"neg", "\x88"}});
  refuse(negated, "found the Python object torch tensor with metadata");
  negated.metadata = dictionary({});
  CHECK(refused_tensor(negated) == "no error");
  negated.metadata = "N";
  CHECK(refused_tensor(negated) == "no error");
  // A view of one element may have any shape; memory of that size is never allocated.
  CHECK(refused_tensor({{1'000'000'000'000}, {0}, "0", 12}) == "no error");
}

TEST_CASE("archives that lack a file named in the pickle") {
  const std::string state = testing::pickle(ordered({{"a", kGood.text()}}));
  CHECK(refused(torch_archive(state, {})) ==
        "F: tensor 'a': expected the member archive/data/0 of the archive, found none");
  CHECK(refused(torch_archive(state, {{"0", std::string(47, '\0')}})) ==
        "F: tensor 'a': expected 12 elements of F32 in the member archive/data/0, found 47 bytes");
  CHECK(refused(torch_archive(state, {{"0", std::string(52, '\0')}})) ==
        "F: tensor 'a': expected 12 elements of F32 in the member archive/data/0, found 52 bytes");
  CHECK(refused(testing::zip({{"a/version", "3"}})) ==
        "F: expected a file written by torch.save, found a zip archive without a data.pkl");
  CHECK(refused(testing::zip({{"a/data.pkl", state}, {"b/data.pkl", state}})) ==
        "F: expected one data.pkl, found two");
  check_contains(
      refused(
          testing::zip({{"a/data.pkl", state}, {"a/byteorder", "big"}, {"a/data/0", kStorage}})),
      "F: byteorder: expected a file written on a little-endian machine, found another byte order");
  const std::string script = refused(
      testing::zip({{"a/data/0", kStorage}, {"a/data.pkl", state}, {"a/constants.pkl", ""}}));
  check_contains(script, "F: found a TorchScript archive, which holds a program. Convert");
  check_contains(script, "torch.jit.load(\"F\", map_location=\"cpu\").state_dict()\n");
  const std::string good = torch_archive(state, {{"0", kStorage}});
  for (std::size_t size = 0; size < good.size(); ++size) {
    CHECK(refused(good.substr(0, size)) != "no error");
  }
  const std::string zeros =
      testing::pickle(ordered({{"a", PickledTensor{{250'000}, {1}, "0", 250'000}.text()}}));
  const TempDir folder;
  const std::string path = folder.file("w.pth");
  write_all_text(path,
                 torch_archive(zeros, {{"0", std::string(1'000'000, '\0')}}, {.deflated = true}));
  TorchFile file = TorchFile::open(path);
  file.choose(std::nullopt);
  check_contains(error_of([&] { file.check_integrity(); }, path),
                 "F, member archive/data/0: expected at most 100 times the file's ");
  check_contains(refused(torch_archive(state, {{"0", kStorage}}, {.method = 12})),
                 "found the compression method 12: save it again with torch.save");
}

TEST_CASE("names, and dictionaries in each other") {
  const std::string good = kGood.text();
  CHECK(refused_value(ordered({{"a", good}, {"a", good}})) == "F: two tensors are called 'a'");
  check_contains(refused_value(ordered({{"", good}})), "F: a tensor's name: ");
  check_contains(refused_value(ordered({{"a\nb", good}})), "printable characters");
  // A dictionary that contains itself, and a list of a million levels.
  CHECK(refused_value("}q\x01(" + text("a") + good + text("self") + "h\x01u") == "no error");
  const std::string deep = std::string(1'000'000, ']') + std::string(999'999, 'a');
  check_contains(refused_value(deep), "F: expected a dictionary of tensors, such as a state_dict");
  // A dictionary that occurs 400 times in another one, which occurs 400 times in a third.
  const auto many = [](const std::string& value) {
    std::string all = "}(" + text("0") + value + "q\x05";
    for (int i = 1; i < 400; ++i) all += text(std::to_string(i)) + "h\x05";
    return all + "u";
  };
  CHECK(refused_value(many(many(many(dictionary({{"t", good}}))))) ==
        "F: expected at most 400000 tensors, found more");
  CHECK(refused_value(many(many(many(dictionary({{"n", integer(1)}}))))) ==
        "F: expected at most 8000000 dictionary items, found more");
}

TEST_CASE("a torch file where a checkpoint of dpt is needed, and an old one") {
  const TempDir folder;
  const std::string path = folder.file("w.pth");
  const auto error = [&] { return error_of([&] { SafetensorsFile::open(path); }, path); };
  write_all_text(path, torch_archive(testing::pickle(ordered({})), {}));
  CHECK(error() ==
        "F: expected a safetensors file, found a PyTorch file (torch.save), which may hold "
        "weights, but not the rest of a dpt checkpoint. A new run can start from its weights: dpt "
        "train CONFIG --weights F. dpt inspect F shows what it holds");
  write_all_text(path, "\x80\x02\x8a\x0al\xfc\x9c\x46\xf9 j\xa8P\x19."s);
  CHECK_FALSE(is_torch_file(path));
  check_contains(error(),
                 "F: expected a safetensors file, found a PyTorch file (torch.save) in its old "
                 "format, a pickle without a zip archive, which dpt does not read. Convert the "
                 "weights in Python:\n");
  CHECK_FALSE(is_torch_file(folder.path()));
  CHECK_FALSE(is_torch_file(folder.file("none")));
}

}  // namespace
}  // namespace dpt
