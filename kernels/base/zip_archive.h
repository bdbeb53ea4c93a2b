// Zip archives as written by numpy.savez and torch.save: stored or deflated members, with or
// without zip64 sizes, without encryption, in a single file. Source: PKWARE's APPNOTE.TXT, sections
// 4.3 and 4.4.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace dpt {

struct ZipMember {
  std::string name;
  int flags = 0, method = 0;  ///< general-purpose flags, compression method
  std::uint32_t crc = 0;
  std::uint64_t packed = 0, size = 0;  ///< bytes in the archive; bytes of the content
  std::uint64_t header = 0;            ///< offset of its local header
};

/// Treatment of the checksums. Some writers omit them.
enum class ZipChecksum : std::uint8_t { compare, ignore };

/// Reads the members of an archive in memory. The bytes of the archive must outlive this object.
/// Messages contain `path` and `remedy`, which says how to write an archive that can be read.
/// Throws ErrorKind::data naming the path and the member.
class ZipArchive {
 public:
  ZipArchive(std::span<const std::byte> file, std::string path, std::string remedy);

  const std::vector<ZipMember>& members() const { return members_; }
  /// Returns the content of a member after checking its checksum. The result is a view of the file,
  /// or of `inflated`.
  std::span<const std::byte> content(const ZipMember& member, std::vector<std::byte>& inflated,
                                     ZipChecksum checksum = ZipChecksum::compare) const;

 private:
  std::span<const std::byte> file_;
  std::string path_, remedy_;
  std::vector<ZipMember> members_;
};

}  // namespace dpt
