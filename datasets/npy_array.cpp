#include "datasets/npy_array.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <filesystem>
#include <limits>
#include <optional>
#include <string_view>

#include <fmt/ranges.h>

#include "engine/config/paths.h"
#include "kernels/base/error.h"
#include "kernels/base/mapped_file.h"
#include "kernels/base/zip_archive.h"

namespace dpt {
namespace {

static_assert(std::endian::native == std::endian::little);

/// Parsed header of a .npy file.
struct Header {
  std::string descr;  ///< empty for a type with fields, whose descr is not a string
  bool fortran_order = false;
  std::vector<std::int64_t> shape;
};

/// Parses the Python dictionary of a header, in the form that numpy writes.
class HeaderParser {
 public:
  HeaderParser(const std::string& path, std::string_view text) : path_(path), rest_(text) {}

  Header parse() {
    Header header;
    bool has_type = false, has_order = false, has_shape = false;
    expect('{');
    while (!take('}')) {
      const std::string key = text();
      expect(':');
      if (key == "descr") {
        has_type = true;
        if (peek() == '[') return header;
        header.descr = text();
      } else if (key == "fortran_order") {
        has_order = true;
        header.fortran_order = boolean();
      } else if (key == "shape") {
        has_shape = true;
        header.shape = tuple();
      } else {
        refuse();
      }
      if (peek() != '}') expect(',');
    }
    if (peek() != '\0' || !has_type || !has_order || !has_shape) refuse();
    return header;
  }

 private:
  [[noreturn]] void refuse() const {
    fail(ErrorKind::data,
         "{}: the header is not that of a .npy file: expected a dictionary with 'descr', "
         "'fortran_order' and 'shape'",
         path_);
  }
  char peek() {
    const std::size_t skip = std::min(rest_.find_first_not_of(" \n\t"), rest_.size());
    rest_.remove_prefix(skip);
    return rest_.empty() ? '\0' : rest_.front();
  }
  bool take(char c) {
    if (peek() != c) return false;
    rest_.remove_prefix(1);
    return true;
  }
  void expect(char c) {
    if (!take(c)) refuse();
  }
  std::string text() {
    const char quote = peek();
    if (quote != '\'' && quote != '"') refuse();
    rest_.remove_prefix(1);
    const std::size_t end = rest_.find(quote);
    if (end == std::string_view::npos) refuse();
    std::string found(rest_.substr(0, end));
    rest_.remove_prefix(end + 1);
    return found;
  }
  bool boolean() {
    peek();
    for (const std::string_view word : {"True", "False"}) {
      if (!rest_.starts_with(word)) continue;
      rest_.remove_prefix(word.size());
      return word == "True";
    }
    refuse();
  }
  std::vector<std::int64_t> tuple() {
    std::vector<std::int64_t> numbers;
    expect('(');
    while (!take(')')) {
      constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max() / 16;
      if (peek() < '0' || peek() > '9') refuse();
      std::int64_t number = 0;
      for (; !rest_.empty() && rest_.front() >= '0' && rest_.front() <= '9';
           rest_.remove_prefix(1)) {
        if (number > kMax) refuse();
        number = number * 10 + (rest_.front() - '0');
      }
      numbers.push_back(number);
      if (peek() != ')') expect(',');
    }
    return numbers;
  }

  const std::string& path_;
  std::string_view rest_;
};

/// Supported element type.
struct ItemType {
  const char* code;  ///< without the byte order
  const char* name;
  NpyArray::Kind kind;
  std::size_t bytes;
};
constexpr auto kItemTypes = std::to_array<ItemType>({
    {"f4", "float32", NpyArray::Kind::floating, 4},
    {"f8", "float64", NpyArray::Kind::floating, 8},
    {"i1", "int8", NpyArray::Kind::integer, 1},
    {"i2", "int16", NpyArray::Kind::integer, 2},
    {"i4", "int32", NpyArray::Kind::integer, 4},
    {"i8", "int64", NpyArray::Kind::integer, 8},
    {"u1", "uint8", NpyArray::Kind::natural, 1},
    {"u2", "uint16", NpyArray::Kind::natural, 2},
    {"u4", "uint32", NpyArray::Kind::natural, 4},
    {"u8", "uint64", NpyArray::Kind::natural, 8},
    {"b1", "bool", NpyArray::Kind::boolean, 1},
});

const ItemType& item_type(const std::string& path, const std::string& descr) {
  const std::string code = descr.empty() ? descr : descr.substr(1);
  const auto found = std::find_if(kItemTypes.begin(), kItemTypes.end(),
                                  [&](const ItemType& each) { return code == each.code; });
  if (found == kItemTypes.end()) {
    std::vector<std::string> names;
    for (const ItemType& type : kItemTypes) names.emplace_back(type.name);
    fail(ErrorKind::data,
         "{}: expected an array of numbers ({}), found elements of the type {}; numpy.save(file, "
         "array.astype(numpy.float32)) converts them to numbers; numpy.unique(array, "
         "return_inverse=True)[1] turns names of classes into numbers",
         path, fmt::join(names, ", "),
         descr.empty() ? "with fields (a structured array)"
         : code == "O" ? "'" + descr + "' (Python objects)"
                       : "'" + descr + "'");
  }
  if (descr[0] == '>' && found->bytes > 1) {
    fail(ErrorKind::data,
         "{}: expected little-endian elements, found big-endian ones ('{}'): numpy.save(file, "
         "array.astype(numpy.{})) makes them little-endian",
         path, descr, found->name);
  }
  return *found;
}

/// Position of the header's text in the file.
struct HeaderPlace {
  std::size_t begin = 0, end = 0;
};

HeaderPlace find_header(const std::string& path, std::span<const std::byte> file) {
  const auto byte = [&](std::size_t i) { return std::to_integer<std::size_t>(file[i]); };
  const std::string_view magic = "\x93NUMPY";
  const std::string_view start(reinterpret_cast<const char*>(file.data()),
                               std::min(file.size(), magic.size()));
  if (start != magic) {
    const bool is_zip = start.starts_with("PK");
    fail(ErrorKind::data, "{}: not a .npy file: it does not begin with \\x93NUMPY{}", path,
         is_zip ? " (it is a zip archive: rename it to *.npz, and name its array as FILE.npz:NAME)"
                : "");
  }
  const auto need = [&](std::size_t bytes) {
    if (file.size() >= bytes) return;
    fail(ErrorKind::data,
         "{}: the file ends within its header: expected at least {} bytes, found {}", path, bytes,
         file.size());
  };
  need(10);
  const std::size_t version = byte(6);
  if (version < 1 || version > 3) {
    fail(ErrorKind::data, "{}: expected version 1, 2 or 3 of the .npy format, found {}.{}", path,
         version, byte(7));
  }
  std::size_t length = byte(8) | byte(9) << 8;
  std::size_t begin = 10;
  if (version > 1) {
    need(12);
    length |= byte(10) << 16 | byte(11) << 24;
    begin = 12;
  }
  need(begin + length);
  return {begin, begin + length};
}

/// Place of an array: FILE.npz:NAME, or FILE.npz if it contains a single array.
struct ArrayPlace {
  explicit ArrayPlace(const std::string& path) : file(path) {
    const std::size_t at = path.rfind(".npz:");
    is_member = path.ends_with(".npz") || at != std::string::npos;
    if (at == std::string::npos) return;
    file = path.substr(0, at + 4);
    member = path.substr(at + 5);
  }
  std::string file, member;
  bool is_member = false;
};

/// Returns `path`. Throws if the file does not exist because a variable in its path is not set.
const std::string& existing(const std::string& path) {
  std::error_code error;
  const std::string hint = hint_of_default(path);
  if (!hint.empty() && !std::filesystem::exists(path, error)) {
    fail(ErrorKind::data, "{}: no such file{}", path, hint);
  }
  return path;
}

std::span<const std::byte> content_of(const ArrayPlace& place, const MappedFile& file,
                                      std::vector<std::byte>& inflated) {
  const ZipArchive archive(file.bytes(), place.file,
                           "write it with numpy.savez or numpy.savez_compressed");
  const std::vector<ZipMember>& members = archive.members();
  const auto found = std::find_if(members.begin(), members.end(), [&](const ZipMember& member) {
    return member.name == place.member || member.name == place.member + ".npy";
  });
  if (found != members.end()) return archive.content(*found, inflated);
  if (place.member.empty() && members.size() == 1) return archive.content(members[0], inflated);
  constexpr std::size_t kNamesShown = 20;
  std::vector<std::string> names;
  for (const ZipMember& member : members) {
    const bool is_array = member.name.ends_with(".npy");
    names.push_back(member.name.substr(0, member.name.size() - (is_array ? 4 : 0)));
    if (names.size() == kNamesShown) break;
  }
  if (names.empty()) fail(ErrorKind::data, "{}: the archive has no arrays", place.file);
  const std::string list =
      fmt::format("{}{}", fmt::join(names, ", "), members.size() > names.size() ? ", ..." : "");
  if (place.member.empty()) {
    fail(ErrorKind::data, "{0}: the archive has several arrays ({1}): choose one with {0}:NAME",
         place.file, list);
  }
  fail(ErrorKind::data, "{}: expected an array '{}', found {}", place.file, place.member, list);
}

}  // namespace

struct NpyArray::Impl {
  explicit Impl(const std::string& a_path) : path(a_path), file(existing(ArrayPlace(a_path).file)) {
    const ArrayPlace array(path);
    const std::span<const std::byte> bytes =
        array.is_member ? content_of(array, file, inflated) : file.bytes();
    const HeaderPlace place = find_header(path, bytes);
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + place.begin,
                                place.end - place.begin);
    const Header header = HeaderParser(path, text).parse();
    type = item_type(path, header.descr);
    if (header.fortran_order && header.shape.size() > 1) {
      fail(ErrorKind::data,
           "{}: expected elements in C order, found Fortran order: numpy.save(file, "
           "numpy.ascontiguousarray(array)) converts it",
           path);
    }
    shape = header.shape;
    check_size(bytes.size() - place.end);
    elements = bytes.subspan(place.end);
    // numpy writes aligned files, but the format does not require it.
    if (reinterpret_cast<std::uintptr_t>(elements.data()) % type.bytes != 0) {
      copy.assign(elements.begin(), elements.end());
      elements = copy;
    }
  }

  void check_size(std::size_t found) const {
    // The product cannot overflow, because it is bounded by the file's size.
    std::size_t expected = type.bytes;
    bool is_too_large = false;
    for (const std::int64_t n : shape) {
      const auto count = static_cast<std::size_t>(n);
      is_too_large = is_too_large || (count > 0 && expected > found / count);
      expected = is_too_large ? expected : expected * count;
    }
    if (std::find(shape.begin(), shape.end(), 0) != shape.end()) {
      expected = 0;
      is_too_large = false;
    }
    if (!is_too_large && expected == found) return;
    const bool is_truncated = is_too_large || expected > found;
    fail(ErrorKind::data, "{}: the header says {}, but {} bytes of elements follow{}", path, text(),
         found, is_truncated ? ": the file is truncated" : fmt::format(", not {}", expected));
  }

  std::string text() const {
    return fmt::format("an array ({}{}) of {}", fmt::join(shape, ", "),
                       shape.size() == 1 ? "," : "", type.name);
  }

  template <class T>
  T at(std::size_t index) const {
    T value;
    std::memcpy(&value, elements.data() + index * sizeof(T), sizeof(T));
    return value;
  }

  std::string path;
  MappedFile file;
  std::vector<std::byte> inflated;  ///< content of a deflated member of an archive
  ItemType type{};
  std::vector<std::int64_t> shape;
  std::span<const std::byte> elements;
  std::vector<std::byte> copy;  ///< copy of elements that are not aligned in the file
};

NpyArray::NpyArray(const std::string& path) : impl_(std::make_unique<Impl>(path)) {}
NpyArray::~NpyArray() = default;
NpyArray::NpyArray(NpyArray&&) noexcept = default;

const std::string& NpyArray::path() const {
  return impl_->path;
}
const std::vector<std::int64_t>& NpyArray::shape() const {
  return impl_->shape;
}
NpyArray::Kind NpyArray::kind() const {
  return impl_->type.kind;
}
std::size_t NpyArray::item_bytes() const {
  return impl_->type.bytes;
}
std::string NpyArray::text() const {
  return impl_->text();
}
std::span<const std::byte> NpyArray::elements() const {
  return impl_->elements;
}

double NpyArray::number(std::size_t index) const {
  if (kind() != Kind::floating) return static_cast<double>(integer(index));
  return item_bytes() == 4 ? static_cast<double>(impl_->at<float>(index))
                           : impl_->at<double>(index);
}

std::int64_t NpyArray::integer(std::size_t index) const {
  const bool is_signed = kind() == Kind::integer;
  switch (item_bytes()) {
    case 1:
      return is_signed ? std::int64_t{impl_->at<std::int8_t>(index)}
                       : std::int64_t{impl_->at<std::uint8_t>(index)};
    case 2:
      return is_signed ? std::int64_t{impl_->at<std::int16_t>(index)}
                       : std::int64_t{impl_->at<std::uint16_t>(index)};
    case 4:
      return is_signed ? std::int64_t{impl_->at<std::int32_t>(index)}
                       : std::int64_t{impl_->at<std::uint32_t>(index)};
    default:
      break;
  }
  if (is_signed) return impl_->at<std::int64_t>(index);
  constexpr std::uint64_t kMax = std::numeric_limits<std::int64_t>::max();
  return static_cast<std::int64_t>(std::min(impl_->at<std::uint64_t>(index), kMax));
}

}  // namespace dpt
