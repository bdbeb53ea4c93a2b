// Files in other formats where a safetensors file is expected: the message names the format.
#include <doctest/doctest.h>

#include "engine/checkpoints/foreign_file.h"
#include "engine/checkpoints/safetensors.h"
#include "tests/engine/checkpoints/files.h"
#include "tests/support/text.h"

namespace dpt {
namespace {

using testing::check_contains;
using std::string_literals::operator""s;

/// Returns the beginning of a zip archive whose first file is named `member`.
std::string zip(const std::string& member) {
  std::string bytes = "PK\x03\x04"s + std::string(22, '\0');
  bytes += static_cast<char>(member.size());
  bytes += "\0\0\0"s + member;
  return bytes + std::string(64, '\0');
}

/// Returns the error for opening a file with these bytes, without its path.
std::string said(const std::string& bytes, const std::string& name = "w.pt") {
  const TempDir folder;
  const std::string path = folder.file(name);
  write_all_text(path, bytes);
  return error_of([&] { SafetensorsFile::open(path); }, path);
}

TEST_CASE("foreign files are named by their first bytes") {
  struct Case {
    std::string bytes, text;
  };
  const std::string tar = std::string(257, 'a') + "ustar" + std::string(300, '\0');
  const std::vector<Case> cases = {
      {zip("archive/data.pkl"), "found a PyTorch file (torch.save), which may hold weights"},
      {zip("w/data.pkl"), "found a PyTorch file (torch.save)"},
      {zip("w/.format_version"), "found a PyTorch file (torch.save)"},
      {"\x80\x02\x8a\x0al\xfc\x9c\x46\xf9 j\xa8P\x19."s,
       "found a PyTorch file (torch.save) in its old format"},
      {zip("conv1.weight.npy"), "found a NumPy archive (.npz)"},
      {zip("word/document.xml"), "found a zip archive. Unpack it"},
      {"PK\x03\x04PK\x03\x04"s, "found a zip archive"},
      {"\x93NUMPY\x01\0v\0{'descr'"s, "found a NumPy array (.npy)"},
      {"\x08\x07\x12\x07pytorch\x1a\x05"s, "found an ONNX model"},
      {"\x89HDF\r\n\x1a\n\0\0\0\0"s, "found an HDF5 file, such as Keras writes"},
      {"GGUF\x03\0\0\0\0\0"s, "found a GGUF file"},
      {"\x1f\x8b\x08\0\0\0\0\0\0\x03"s, "found a compressed file. Decompress it first: gzip -d"},
      {"\x28\xb5\x2f\xfd\x04\0\0\0\0"s, "zstd -d"},
      {"BZh91AY&SY"s, "bzip2 -d"},
      {tar, "found a tar archive"},
      {"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 5\n",
       "found a pointer of Git LFS, which stands for the file. Fetch the file itself: git lfs "
       "pull"},
      {"<!DOCTYPE html>\n<html lang=\"en\">", "found an HTML page"},
      {"\n  <HTML><head>", "found an HTML page"},
      {"<?xml version=\"1.0\"?><Error><Code>AccessDenied", "found XML text"},
      {"{\"metadata\": {\"total_size\": 1}, \"weight_map\": {\"a\": \"b\"}}",
       "found the index of weights that are split into several files"},
      {"Not Found: the page that you look for", "found text that begins with 'Not Found: "},
      {"No file.", "found text that begins with 'No file.'"},
  };
  for (const Case& one : cases) {
    CAPTURE(one.text);
    check_contains(said(one.bytes), "F: expected a safetensors file, " +
                                        (one.text.starts_with("found") ? one.text : ""s));
    check_contains(said(one.bytes), one.text);
  }
}

TEST_CASE("the conversion of a PyTorch file names both files, quoted for Python") {
  const std::string text = describe_foreign_file("my \"w\".ckpt", "\x80\x02\x8a\x0al");
  check_contains(text, R"(torch.load("my \"w\".ckpt", map_location="cpu", weights_only=True))");
  check_contains(text, R"(state.get("state_dict", state.get("model", state)))");
  check_contains(text, R"(}, "my \"w\".safetensors"))");
  check_contains(text, "--weights my \"w\".safetensors");
}

TEST_CASE("files of unknown kinds and short files are not described") {
  CHECK(describe_foreign_file("w", std::string(64, '\xFF')).empty());
  CHECK(describe_foreign_file("w", "\x02\0\0\0\0\0\0\0[]"s).empty());
  CHECK(describe_foreign_file("w", "").empty());
  CHECK(said("1234567") == "F: expected a safetensors file of at least 8 bytes, found 7 bytes");
}

}  // namespace
}  // namespace dpt
