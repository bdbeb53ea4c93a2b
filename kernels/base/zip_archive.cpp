#include "kernels/base/zip_archive.h"

#include <zlib.h>

#include <algorithm>
#include <limits>
#include <set>

#include "kernels/base/error.h"

namespace dpt {
namespace {

constexpr std::uint32_t kEndMark = 0x06054b50, kEnd64Mark = 0x06064b50;
constexpr std::uint32_t kLocatorMark = 0x07064b50, kEntryMark = 0x02014b50;
constexpr std::uint32_t kLocalMark = 0x04034b50;
constexpr std::uint64_t kEndBytes = 22, kEnd64Bytes = 56, kLocatorBytes = 20;
constexpr std::uint64_t kEntryBytes = 46, kLocalBytes = 30;
constexpr std::uint64_t kLong = 0xffffffff;  ///< placeholder of a number that is in the zip64 field
constexpr int kStored = 0, kDeflated = 8;

/// Reads the little-endian numbers of an archive.
class ZipBytes {
 public:
  ZipBytes(std::span<const std::byte> bytes, const std::string& path)
      : bytes_(bytes), path_(path) {}

  std::uint64_t size() const { return bytes_.size(); }
  /// Fails unless at least `count` bytes follow the offset. `what` names these bytes.
  void need(std::uint64_t at, std::uint64_t count, const std::string& what) const {
    if (at <= size() && count <= size() - at) return;
    fail(ErrorKind::data,
         "{}: expected {} at offset {}, found the end of the file ({} bytes): "
         "it is truncated or damaged",
         path_, what, at, size());
  }
  /// Reads a number of up to 8 bytes. REQUIRES: the bytes exist.
  std::uint64_t number(std::uint64_t at, int count) const {
    std::uint64_t value = 0;
    for (int i = 0; i < count; ++i) {
      value |= std::to_integer<std::uint64_t>(bytes_[at + static_cast<std::uint64_t>(i)])
               << (8 * i);
    }
    return value;
  }
  bool has_mark(std::uint64_t at, std::uint32_t mark) const {
    return at <= size() && size() - at >= 4 && number(at, 4) == mark;
  }
  void need_mark(std::uint64_t at, std::uint64_t count, std::uint32_t mark,
                 const std::string& what) const {
    need(at, count, what);
    if (has_mark(at, mark)) return;
    fail(ErrorKind::data, "{}: expected {} at offset {}, found other bytes: it is damaged", path_,
         what, at);
  }
  std::string text(std::uint64_t at, std::uint64_t count) const {
    return {reinterpret_cast<const char*>(bytes_.data()) + at, count};
  }

 private:
  std::span<const std::byte> bytes_;
  const std::string& path_;
};

/// Returns the position of the end record. It comes after the members and may end with a comment of
/// up to 64 KiB.
std::uint64_t find_end(const ZipBytes& bytes, const std::string& path) {
  constexpr std::uint64_t kMaxComment = 0xffff;
  const std::uint64_t size = bytes.size();
  for (std::uint64_t back = kEndBytes; back <= std::min(size, kEndBytes + kMaxComment); ++back) {
    const std::uint64_t at = size - back;
    if (bytes.has_mark(at, kEndMark) && bytes.number(at + 20, 2) == back - kEndBytes) return at;
  }
  fail(ErrorKind::data,
       "{}: not a zip archive, or a truncated one: expected the list of its members at its end",
       path);
}

/// Reads the sizes and offsets that do not fit into their own fields. They are in the zip64 field,
/// which lies between `at` and `end`.
void read_zip64(const ZipBytes& bytes, std::uint64_t at, std::uint64_t end, ZipMember& member) {
  for (; at + 4 <= end;) {
    const std::uint64_t id = bytes.number(at, 2), length = bytes.number(at + 2, 2);
    at += 4;
    if (length > end - at) return;
    if (id == 1) {
      std::uint64_t from = at;
      for (std::uint64_t* value : {&member.size, &member.packed, &member.header}) {
        if (*value != kLong || from + 8 > at + length) continue;
        *value = bytes.number(from, 8);
        from += 8;
      }
    }
    at += length;
  }
}

std::uint32_t crc32_of(std::span<const std::byte> content) {
  return static_cast<std::uint32_t>(
      crc32_z(0, reinterpret_cast<const Bytef*>(content.data()), content.size()));
}

/// Returns true if `packed` inflates to exactly the bytes of `to`.
bool inflate_all(std::span<const std::byte> packed, std::span<std::byte> to) {
  z_stream stream{};
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) return false;
  constexpr std::size_t kMax = std::numeric_limits<uInt>::max();
  std::size_t from = 0, at = 0;
  int result = Z_OK;
  while (result == Z_OK) {
    const std::size_t in = std::min(packed.size() - from, kMax);
    const std::size_t out = std::min(to.size() - at, kMax);
    stream.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(packed.data() + from));
    stream.avail_in = static_cast<uInt>(in);
    stream.next_out = reinterpret_cast<Bytef*>(to.data() + at);
    stream.avail_out = static_cast<uInt>(out);
    result = inflate(&stream, Z_NO_FLUSH);
    from += in - stream.avail_in;
    at += out - stream.avail_out;
  }
  inflateEnd(&stream);
  return result == Z_STREAM_END && from == packed.size() && at == to.size();
}

}  // namespace

ZipArchive::ZipArchive(std::span<const std::byte> file, std::string path, std::string remedy)
    : file_(file), path_(std::move(path)), remedy_(std::move(remedy)) {
  const ZipBytes bytes(file_, path_);
  const std::uint64_t end = find_end(bytes, path_);
  std::uint64_t count = bytes.number(end + 10, 2), at = bytes.number(end + 16, 4);
  if (end >= kLocatorBytes && bytes.has_mark(end - kLocatorBytes, kLocatorMark)) {
    const std::uint64_t end64 = bytes.number(end - kLocatorBytes + 8, 8);
    bytes.need_mark(end64, kEnd64Bytes, kEnd64Mark, "the zip64 record of the archive's end");
    count = bytes.number(end64 + 32, 8);
    at = bytes.number(end64 + 48, 8);
  }
  std::set<std::string> names;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::string what = fmt::format("entry {} of {} in the list of members", i + 1, count);
    bytes.need_mark(at, kEntryBytes, kEntryMark, what);
    const std::uint64_t name = bytes.number(at + 28, 2), extra = bytes.number(at + 30, 2);
    const std::uint64_t length = kEntryBytes + name + extra + bytes.number(at + 32, 2);
    bytes.need(at, length, what);
    ZipMember member;
    member.flags = static_cast<int>(bytes.number(at + 8, 2));
    member.method = static_cast<int>(bytes.number(at + 10, 2));
    member.crc = static_cast<std::uint32_t>(bytes.number(at + 16, 4));
    member.packed = bytes.number(at + 20, 4);
    member.size = bytes.number(at + 24, 4);
    member.header = bytes.number(at + 42, 4);
    member.name = bytes.text(at + kEntryBytes, name);
    read_zip64(bytes, at + kEntryBytes + name, at + kEntryBytes + name + extra, member);
    if (!names.insert(member.name).second) {
      fail(ErrorKind::data, "{}: two members are called {}", path_, member.name);
    }
    members_.push_back(std::move(member));
    at += length;
  }
}

std::span<const std::byte> ZipArchive::content(const ZipMember& member,
                                               std::vector<std::byte>& inflated,
                                               ZipChecksum checksum) const {
  const std::string name = fmt::format("{}, member {}", path_, member.name);
  if ((member.flags & 1) != 0) fail(ErrorKind::data, "{}: encrypted, which is not supported", name);
  if (member.method != kStored && member.method != kDeflated) {
    fail(ErrorKind::data,
         "{}: expected a member that is stored or deflated, found the compression method {}: "
         "{}",
         name, member.method, remedy_);
  }
  const ZipBytes bytes(file_, name);
  bytes.need_mark(member.header, kLocalBytes, kLocalMark, "a local header");
  const std::uint64_t begin = member.header + kLocalBytes + bytes.number(member.header + 26, 2) +
                              bytes.number(member.header + 28, 2);
  bytes.need(begin, member.packed, fmt::format("{} bytes of content", member.packed));
  std::span<const std::byte> content = file_.subspan(begin, member.packed);
  // Deflate expands data by a factor of at most 1032.
  constexpr std::uint64_t kMaxRatio = 1032;
  const bool is_stored = member.method == kStored;
  if (is_stored ? member.size != member.packed : member.size / kMaxRatio > member.packed) {
    fail(ErrorKind::data,
         "{}: damaged: it takes {} bytes in the archive, which does not match its size of {} bytes",
         name, member.packed, member.size);
  }
  if (!is_stored) {
    inflated.resize(member.size);
    if (!inflate_all(content, inflated)) {
      fail(ErrorKind::data, "{}: damaged: expected deflated data of {} bytes, found other data",
           name, member.size);
    }
    content = inflated;
  }
  if (checksum == ZipChecksum::ignore) return content;
  const std::uint32_t found = crc32_of(content);
  if (found == member.crc) return content;
  fail(ErrorKind::data, "{}: damaged: expected the checksum (CRC-32) {:08x}, found {:08x}", name,
       member.crc, found);
}

}  // namespace dpt
