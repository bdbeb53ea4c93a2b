#include "kernels/image/file_content.h"

#include <algorithm>
#include <cctype>
#include <vector>

namespace dpt {
namespace {

using namespace std::string_view_literals;

constexpr std::size_t kSeenBytes = 1024;

/// Returns the first bytes of a file as text, without a byte order mark.
std::string_view beginning_of(std::span<const std::byte> file) {
  const std::size_t mark = has_text(file, "\xef\xbb\xbf") ? 3 : 0;
  const std::size_t end = std::min(file.size(), kSeenBytes);
  return {reinterpret_cast<const char*>(file.data()) + mark, end - mark};
}

bool is_text(std::span<const std::byte> file) {
  const std::string_view text = beginning_of(file);
  return std::all_of(text.begin(), text.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return (byte >= 0x20 && byte != 0x7f) || c == '\n' || c == '\r' || c == '\t' || c == '\f';
  });
}

struct Signature {
  std::string_view bytes;
  std::size_t at;
  const char* what;
  const char* remedy;
};

constexpr const char* kUnpack = "unpack it";
constexpr const char* kFrames = "extract its frames with ffmpeg -i IN OUT-%05d.png";
constexpr const char* kLeaveOut = "remove it";

const std::vector<Signature>& signatures() {
  static const std::vector<Signature> all = {
      {"version https://git-lfs.github.com/spec/"sv, 0, "a Git LFS pointer in place of the image",
       "fetch the images with git lfs pull"},
      {"%PDF-"sv, 0, "a PDF document", "convert its pages with pdftoppm -png IN.pdf OUT"},
      {"PK\x03\x04"sv, 0, "a zip archive", kUnpack},
      {"\x1f\x8b"sv, 0, "a gzip file", kUnpack},
      {"7z\xbc\xaf\x27\x1c"sv, 0, "a 7z archive", kUnpack},
      {"Rar!"sv, 0, "a RAR archive", kUnpack},
      {"ustar"sv, 257, "a tar archive", kUnpack},
      {"ftyp"sv, 4, "a video (MP4 or QuickTime)", kFrames},
      {"\x1a\x45\xdf\xa3"sv, 0, "a video (Matroska or WebM)", kFrames},
      {"\x89HDF"sv, 0, "an HDF5 file", "save its arrays as NPY, for dataset: npy"},
      {"\x93NUMPY"sv, 0, "a NumPy array", "read it with dataset: npy"},
      {"DICM"sv, 128, "a DICOM file", "convert it with dcmj2pnm +on IN OUT.png"},
      {"\0\x05\x16\x07"sv, 0, "a macOS metadata file (AppleDouble)", kLeaveOut},
      {"\0\0\x01\0"sv, 0, "an icon (ICO)", "convert it with icotool -x IN.ico"},
  };
  return all;
}

}  // namespace

bool has_text(std::span<const std::byte> file, std::string_view text, std::size_t at) {
  if (file.size() < at || file.size() - at < text.size()) return false;
  return std::equal(text.begin(), text.end(), file.begin() + static_cast<std::ptrdiff_t>(at),
                    [](char a, std::byte b) { return static_cast<std::byte>(a) == b; });
}

std::uint32_t big_endian_32(std::span<const std::byte> file) {
  if (file.size() < 4) return 0;
  std::uint32_t value = 0;
  for (const std::byte byte : file.first(4))
    value = value << 8 | std::to_integer<std::uint32_t>(byte);
  return value;
}

std::string root_element(std::span<const std::byte> file) {
  std::string_view text = beginning_of(file);
  for (;;) {
    const std::size_t begin = text.find_first_not_of(" \t\r\n\f");
    if (begin == std::string_view::npos || text[begin] != '<') return {};
    text.remove_prefix(begin + 1);
    const bool is_comment = text.starts_with("!--");
    if (!is_comment && !text.starts_with("!") && !text.starts_with("?")) break;
    // Skip a comment, a declaration or an instruction.
    const std::string_view close = is_comment ? "-->"sv : ">"sv;
    const std::size_t end = text.find(close);
    if (end == std::string_view::npos) return {};
    text.remove_prefix(end + close.size());
  }
  std::string name;
  for (const char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) break;
    name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return name;
}

FileContent content_of(std::span<const std::byte> file) {
  for (const Signature& signature : signatures()) {
    if (has_text(file, signature.bytes, signature.at)) return {signature.what, signature.remedy};
  }
  if (std::all_of(file.begin(), file.end(), [](std::byte b) { return b == std::byte{0}; })) {
    return {"only zero bytes", "restore the file: writing it was not completed"};
  }
  if (is_text(file)) {
    const std::string root = root_element(file);
    if (root == "html" || root == "head" || root == "body") {
      return {"an HTML page", "download the image itself"};
    }
    if (!root.empty()) return {"an XML document", "download the image itself"};
    return {"text", "remove it, or download the image again"};
  }
  return {"a file of an unknown format", "remove or convert it"};
}

}  // namespace dpt
