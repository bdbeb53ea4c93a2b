// Writes zip archives, as numpy.savez and numpy.savez_compressed do.
#pragma once

#include <zlib.h>

#include <cstdint>
#include <string>
#include <vector>

namespace dpt::testing {

/// Options for writing a member.
struct ZipStyle {
  bool deflated = false;
  bool zip64 = false;  ///< sizes in the zip64 field of both headers, as for files above 4 GiB
  int method = -1, flags = 0;  ///< values in the headers; -1: the true method
  bool has_crc = true;         ///< false: writes 0, as torch.save may do
};

inline std::string little_endian(std::uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i, value >>= 8) text += static_cast<char>(value & 0xFF);
  return text;
}

/// Returns the bytes as a raw deflate stream without a header, as in a zip member.
inline std::string deflated(const std::string& content) {
  z_stream stream{};
  deflateInit2(&stream, 6, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&stream, content.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(content.data()));
  stream.avail_in = static_cast<uInt>(content.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

/// Returns an archive of pairs of name and content.
inline std::string zip(const std::vector<std::pair<std::string, std::string>>& members,
                       const ZipStyle& style = {}, const std::string& comment = "") {
  std::string file, list;
  for (const auto& [name, content] : members) {
    const std::string packed = style.deflated ? deflated(content) : content;
    const auto crc = style.has_crc ? crc32(0, reinterpret_cast<const Bytef*>(content.data()),
                                           static_cast<uInt>(content.size()))
                                   : 0;
    const int method = style.method >= 0 ? style.method : style.deflated ? 8 : 0;
    const std::string sizes =
        style.zip64 ? std::string(8, '\xff')
                    : little_endian(packed.size(), 4) + little_endian(content.size(), 4);
    const std::string long_sizes =
        little_endian(content.size(), 8) + little_endian(packed.size(), 8);
    const std::string local =
        style.zip64 ? little_endian(1, 2) + little_endian(16, 2) + long_sizes : "";
    const std::string extra = style.zip64 ? little_endian(1, 2) + little_endian(24, 2) +
                                                long_sizes + little_endian(file.size(), 8)
                                          : "";
    const std::string common =
        little_endian(45, 2) + little_endian(static_cast<unsigned>(style.flags), 2) +
        little_endian(static_cast<unsigned>(method), 2) + little_endian(0, 4) +
        little_endian(crc, 4) + sizes + little_endian(name.size(), 2);
    list += "PK\x01\x02" + little_endian(45, 2) + common + little_endian(extra.size(), 2) +
            little_endian(0, 10) +
            (style.zip64 ? std::string(4, '\xff') : little_endian(file.size(), 4)) + name + extra;
    file += "PK\x03\x04" + common + little_endian(local.size(), 2) + name + local + packed;
  }
  const std::uint64_t at = file.size(), end = at + list.size(), count = members.size();
  file += list;
  if (style.zip64) {
    file += "PK\x06\x06" + little_endian(44, 8) + little_endian(45, 2) + little_endian(45, 2) +
            little_endian(0, 8) + little_endian(count, 8) + little_endian(count, 8) +
            little_endian(list.size(), 8) + little_endian(at, 8);
    file += "PK\x06\x07" + little_endian(0, 4) + little_endian(end, 8) + little_endian(1, 4);
  }
  const std::string shown = style.zip64 ? std::string(12, '\xff')
                                        : little_endian(count, 2) + little_endian(count, 2) +
                                              little_endian(list.size(), 4) + little_endian(at, 4);
  file += "PK\x05\x06" + little_endian(0, 4) + shown + little_endian(comment.size(), 2) + comment;
  return file;
}

}  // namespace dpt::testing
