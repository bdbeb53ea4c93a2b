#include "engine/checkpoints/foreign_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "kernels/base/json_text.h"

namespace dpt {
namespace {

using std::string_view_literals::operator""sv;

/// Returns a path as a Python literal.
std::string literal(const std::string& path) {
  return json_text(nlohmann::json(path));
}

std::string converted_name(const std::string& path) {
  return std::filesystem::path(path).replace_extension(".safetensors").string();
}

/// Returns lines of Python that convert `path`, and an example that uses the converted file. `body`
/// has {0} for the old name and {1} for the new one. `remark` is appended to "in Python".
std::string conversion(const std::string& path, const std::string& body, const char* remark = "") {
  const std::string to = converted_name(path);
  return fmt::format(
      ". Convert the weights in Python{}:\n{}\nThen a run can start from them: --weights {}",
      remark, fmt::format(fmt::runtime(body), literal(path), literal(to)), to);
}

/// Describes a PyTorch zip archive that is given instead of a file of dpt.
std::string torch_archive(const std::string& path) {
  return fmt::format(
      "a PyTorch file (torch.save), which may hold weights, but not the rest of a dpt checkpoint. "
      "A new run can start from its weights: dpt train CONFIG --weights {0}. dpt inspect {0} shows "
      "what it holds",
      path);
}

std::string numpy_archive(const std::string& path) {
  return "a NumPy archive (.npz)" +
         conversion(path,
                    "  import numpy; from safetensors.numpy import save_file\n"
                    "  arrays = numpy.load({0})\n"
                    "  save_file({{name: numpy.ascontiguousarray(arrays[name]) for name in "
                    "arrays.files}}, {1})");
}

std::string onnx_file(const std::string& path) {
  return "an ONNX model" +
         conversion(path,
                    "  import onnx; from onnx import numpy_helper; "
                    "from safetensors.numpy import save_file\n"
                    "  save_file({{each.name: numpy_helper.to_array(each).copy()\n"
                    "             for each in onnx.load({0}).graph.initializer}}, {1})") +
         ". If dpt exported the model, give its checkpoint instead";
}

constexpr std::string_view kZipMark = "PK\x03\x04"sv;

constexpr const char* kHdf5 =
    "an HDF5 file, such as Keras writes. dpt reads only safetensors: load the weights in the "
    "program that wrote them and save them with the safetensors package, with PyTorch's names and "
    "layouts";

/// Returns the name of the first file in a zip archive; empty if it is truncated.
std::string_view first_member(std::string_view zip) {
  constexpr std::size_t kLengthAt = 26, kNameAt = 30;
  if (zip.size() < kNameAt) return {};
  std::uint16_t length = 0;
  std::memcpy(&length, zip.data() + kLengthAt, sizeof length);
  return zip.substr(kNameAt, length);
}

/// Returns true if this is the first member of a PyTorch archive.
bool is_torch_member(std::string_view member) {
  // The folder is named after the file, or is called "archive".
  const std::size_t slash = member.find('/');
  const std::string_view inside = slash == std::string_view::npos ? ""sv : member.substr(slash);
  for (const char* name : {"/data.pkl", "/version", "/.format_version", "/byteorder",
                           "/constants.pkl", "/extra/", "/data/0"}) {
    if (inside.starts_with(name)) return true;
  }
  return false;
}

std::string zip_file(const std::string& path, std::string_view head) {
  if (first_member(head).ends_with(".npy")) return numpy_archive(path);
  if (is_torch_archive(head)) return torch_archive(path);
  if (path.ends_with(".keras")) {
    return "a Keras file. dpt reads only safetensors: load the weights in Keras and save them with "
           "the safetensors package, with PyTorch's names and layouts";
  }
  return "a zip archive. Unpack it, and give the safetensors file inside it";
}

/// Returns true for an ONNX ModelProto: field 1 is its version, a small number; other fields
/// follow.
bool is_onnx(std::string_view head) {
  constexpr std::string_view kNextFields = "\x12\x1a\x22\x28\x32\x3a\x42"sv;
  return head.size() > 2 && head[0] == 8 && head[1] > 0 && head[1] < 64 &&
         kNextFields.find(head[2]) != std::string_view::npos;
}

bool is_pickle(std::string_view head) {
  return head.size() > 2 && head[0] == '\x80' && head[1] >= 2 && head[1] <= 5;
}

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF"sv;

std::string_view without_mark(std::string_view text) {
  return text.starts_with(kByteOrderMark) ? text.substr(kByteOrderMark.size()) : text;
}

/// Returns true if the file begins with enough printable ASCII characters.
bool is_text(std::string_view head) {
  constexpr std::size_t kEnough = 64;
  const std::string_view begin = without_mark(head).substr(0, kEnough);
  return std::all_of(begin.begin(), begin.end(), [](char c) {
    return (c >= 0x20 && c < 0x7F) || c == '\n' || c == '\r' || c == '\t';
  });
}

std::string first_line(std::string_view text) {
  constexpr std::size_t kMax = 40;
  const std::string_view line = text.substr(0, text.find_first_of("\r\n"));
  return fmt::format("'{}'{}", line.substr(0, kMax), line.size() > kMax ? "..." : "");
}

/// Describes a text file by its first characters.
std::string text_file(std::string_view head) {
  constexpr const char* kAgain = ". The download failed: download the file itself";
  std::string_view text = without_mark(head);
  text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
  std::string begin(text.substr(0, 64));
  std::transform(begin.begin(), begin.end(), begin.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (begin.starts_with("version https://git-lfs")) {
    return "a pointer of Git LFS, which stands for the file. Fetch the file itself: git lfs pull";
  }
  if (begin.starts_with("<!doctype html") || begin.starts_with("<html")) {
    return std::string("an HTML page, such as a login or error page") + kAgain;
  }
  if (begin.starts_with("<?xml")) {
    return std::string("XML text, such as a server's error message") + kAgain;
  }
  if (text.starts_with('{') && text.find("\"weight_map\"") != std::string_view::npos) {
    return "the index of weights that are split into several files. dpt reads a single file: merge "
           "them in Python with safetensors.torch.load_file and save_file";
  }
  return fmt::format("text that begins with {}", first_line(text));
}

}  // namespace

std::string describe_foreign_file(const std::string& path, std::string_view head) {
  if (head.starts_with(kZipMark)) return zip_file(path, head);
  if (head.starts_with("\x89HDF\r\n\x1a\n"sv)) return kHdf5;
  if (is_pickle(head)) {
    return "a PyTorch file (torch.save) in its old format, a pickle without a zip archive, which "
           "dpt does not read" +
           torch_conversion(path, TorchContent::pickle);
  }
  if (is_onnx(head)) return onnx_file(path);
  if (head.starts_with("\x93NUMPY"sv)) {
    return "a NumPy array (.npy), which has no names. Save a dictionary of arrays with "
           "safetensors.numpy.save_file";
  }
  if (head.starts_with("GGUF"sv)) {
    return "a GGUF file, whose weights are quantised. Give the safetensors file that it was "
           "converted from";
  }
  constexpr std::size_t kTarMagicAt = 257;
  if (head.size() > kTarMagicAt + 5 && head.substr(kTarMagicAt, 5) == "ustar") {
    return "a tar archive. Unpack it, and give the safetensors file inside it";
  }
  const std::pair<std::string_view, const char*> compressed[] = {{"\x1f\x8b"sv, "gzip -d"},
                                                                 {"\x28\xb5\x2f\xfd"sv, "zstd -d"},
                                                                 {"\xfd"
                                                                  "7zXZ\0"sv,
                                                                  "xz -d"},
                                                                 {"BZh"sv, "bzip2 -d"}};
  for (const auto& [magic, command] : compressed) {
    if (head.starts_with(magic)) {
      return fmt::format("a compressed file. Decompress it first: {}", command);
    }
  }
  return head.size() >= 8 && is_text(head) ? text_file(head) : std::string();
}

bool is_torch_archive(std::string_view head) {
  return head.starts_with(kZipMark) && is_torch_member(first_member(head));
}

std::string torch_conversion(const std::string& path, TorchContent content) {
  const std::string save =
      "  save_file({{name: each.clone().contiguous() for name, each in state.items()\n"
      "             if torch.is_tensor(each)}}, {1})";
  const std::string imports = "  import torch; from safetensors.torch import save_file\n";
  switch (content) {
    case TorchContent::pickle:
      return conversion(path,
                        imports +
                            "  state = torch.load({0}, map_location=\"cpu\", weights_only=True)\n"
                            "  state = state.get(\"state_dict\", state.get(\"model\", state))\n" +
                            save);
    case TorchContent::objects:
      return conversion(path,
                        imports +
                            "  found = torch.load({0}, map_location=\"cpu\", weights_only=False)\n"
                            "  if isinstance(found, dict): found = found.get(\"state_dict\", "
                            "found.get(\"model\", "
                            "found))\n"
                            "  state = found if isinstance(found, dict) else found.state_dict()\n" +
                            save,
                        ", if you trust the file (torch.load then runs code that it holds)");
    case TorchContent::script:
      break;
  }
  return conversion(
      path, imports + "  state = torch.jit.load({0}, map_location=\"cpu\").state_dict()\n" + save);
}

}  // namespace dpt
