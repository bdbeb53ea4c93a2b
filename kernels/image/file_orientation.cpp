// Finds the metadata with the orientation in JPEG, PNG and WebP files. Looks in the same places as
// Pillow.
#include "kernels/image/file_orientation.h"

#include <webp/demux.h>
#include <zlib.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/image/file_content.h"
#include "kernels/image/metadata_orientation.h"

namespace dpt {
namespace {

using FileBytes = std::span<const std::byte>;
using namespace std::string_view_literals;

unsigned byte_at(FileBytes file, std::size_t at) {
  return std::to_integer<unsigned>(file[at]);
}

/// Removes the text before the first `end`, and that `end`, from the front of `bytes`. Returns the
/// text. If there is no `end`, removes and returns all bytes.
FileBytes take_until(FileBytes& bytes, std::byte end) {
  std::size_t length = 0;
  while (length < bytes.size() && bytes[length] != end) ++length;
  const FileBytes text = bytes.first(length);
  bytes = bytes.subspan(std::min(length + 1, bytes.size()));
  return text;
}

bool equals_text(FileBytes bytes, std::string_view text) {
  return bytes.size() == text.size() && has_text(bytes, text);
}

// ---- JPEG --------------------------------------------------------------------------------------

/// Exif data of a JPEG: one segment, or several that are joined.
class ExifSegments {
 public:
  void add(FileBytes segment) {
    if (data_.empty()) {
      data_ = segment;
      return;
    }
    if (joined_.empty()) joined_.assign(data_.begin(), data_.end());
    const FileBytes rest = segment.subspan(6);
    joined_.insert(joined_.end(), rest.begin(), rest.end());
    data_ = joined_;
  }
  FileBytes data() const { return data_; }

 private:
  FileBytes data_;
  std::vector<std::byte> joined_;
};

// ---- PNG ---------------------------------------------------------------------------------------

/// Returns the inflated text. Empty if it is damaged or, as in Pillow, longer than 1 MiB.
std::vector<std::byte> inflated(FileBytes bytes) {
  std::vector<std::byte> text(std::size_t{1} << 20);
  z_stream stream = {};
  if (inflateInit(&stream) != Z_OK) return {};
  stream.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(text.data());
  stream.avail_out = static_cast<uInt>(text.size());
  const int result = inflate(&stream, Z_FINISH);
  const bool is_whole = result == Z_STREAM_END || (result == Z_BUF_ERROR && stream.avail_in == 0);
  const std::size_t length = is_whole ? text.size() - stream.avail_out : 0;
  text.erase(text.begin() + static_cast<std::ptrdiff_t>(length), text.end());
  inflateEnd(&stream);
  return text;
}

/// Returns the bytes encoded in a text that ImageMagick writes: an empty line, the name, the
/// length, then hexadecimal digits. Empty if there are other characters among the digits.
std::vector<std::byte> raw_profile(FileBytes text) {
  for (int line = 0; line < 3; ++line) take_until(text, std::byte{'\n'});
  std::vector<std::byte> bytes;
  unsigned value = 0, digits = 0;
  for (const std::byte each : text) {
    const char c = static_cast<char>(each);
    if (" \t\n\r\f\v"sv.find(c) != std::string_view::npos) continue;
    const std::size_t digit = "0123456789abcdefABCDEF"sv.find(c);
    if (digit == std::string_view::npos) return {};
    value = value << 4 | static_cast<unsigned>(digit < 16 ? digit : digit - 6);
    if (++digits % 2 == 0) bytes.push_back(static_cast<std::byte>(value & 0xff));
  }
  return bytes;
}

/// Metadata of the chunks of a PNG. The last chunk of each kind counts.
class PngMetadata {
 public:
  void add(std::string_view type, FileBytes data) {
    if (type == "eXIf") {
      exif_ = data;
      has_exif_ = true;
      return;
    }
    if (type != "tEXt" && type != "zTXt" && type != "iTXt") return;
    const FileBytes key = take_until(data, std::byte{0});
    const bool is_xmp = equals_text(key, "XML:com.adobe.xmp");
    const bool is_profile = equals_text(key, "Raw profile type exif");
    if (type == "tEXt" && equals_text(key, "exif")) {
      exif_ = data;
      has_exif_ = true;
    } else if (is_xmp) {
      xmp_ = text_of_chunk(type, data);
    } else if (is_profile) {
      profile_ = text_of_chunk(type, data);
    }
  }

  int orientation() const {
    if (has_exif_ || profile_.empty()) return ImageMetadata{exif_, xmp_}.orientation();
    const std::vector<std::byte> profile = raw_profile(profile_);
    // Pillow ignores XMP if the profile is not hexadecimal, so do the same.
    return profile.empty() ? 1 : ImageMetadata{profile, xmp_}.orientation();
  }

 private:
  /// Returns the text after the key in a chunk.
  static std::vector<std::byte> text_of_chunk(std::string_view type, FileBytes data) {
    bool is_deflated = type == "zTXt";
    if (type == "iTXt") {
      if (data.size() < 2) return {};
      is_deflated = data[0] != std::byte{0};
      if (is_deflated && data[1] != std::byte{0}) return {};
      data = data.subspan(2);
      take_until(data, std::byte{0});
      take_until(data, std::byte{0});
    } else if (is_deflated) {
      if (data.empty() || data[0] != std::byte{0}) return {};
      data = data.subspan(1);
    }
    return is_deflated ? inflated(data) : std::vector<std::byte>(data.begin(), data.end());
  }

  FileBytes exif_;
  bool has_exif_ = false;
  std::vector<std::byte> xmp_, profile_;
};

}  // namespace

int jpeg_orientation(std::span<const std::byte> file) {
  constexpr unsigned kApp1 = 0xe1, kStartOfScan = 0xda;
  ExifSegments exif;
  FileBytes xmp;
  for (std::size_t at = 2; at + 4 <= file.size();) {
    const unsigned marker = byte_at(file, at + 1);
    if (byte_at(file, at) != 0xff || marker == 0 || marker == 0xff) {
      ++at;
      continue;
    }
    if (marker == kStartOfScan) break;
    if (marker == 0x01 || (0xd0 <= marker && marker <= 0xd9)) {  // markers without a length
      at += 2;
      continue;
    }
    const std::size_t length = byte_at(file, at + 2) << 8 | byte_at(file, at + 3);
    if (length < 2 || length > file.size() - at - 2) break;
    FileBytes segment = file.subspan(at + 4, length - 2);
    at += 2 + length;
    if (marker != kApp1) continue;
    if (has_text(segment, "Exif\0\0"sv)) exif.add(segment);
    if (has_text(segment, "http://ns.adobe.com/xap/1.0/\0"sv)) {
      take_until(segment, std::byte{0});
      xmp = segment;
    }
  }
  return ImageMetadata{exif.data(), xmp}.orientation();
}

int png_orientation(std::span<const std::byte> file) {
  constexpr std::size_t kSignature = 8, kAround = 12;  // length, type and checksum of a chunk
  PngMetadata metadata;
  for (std::size_t at = kSignature; at + kAround <= file.size();) {
    const FileBytes chunk = file.subspan(at);
    const std::size_t length = big_endian_32(chunk);
    if (length > chunk.size() - kAround || has_text(chunk, "IEND", 4)) break;
    const std::string_view type(reinterpret_cast<const char*>(chunk.data()) + 4, 4);
    metadata.add(type, chunk.subspan(8, length));
    at += kAround + length;
  }
  return metadata.orientation();
}

int webp_orientation(std::span<const std::byte> file) {
  constexpr unsigned kHasExif = 8, kHasXmp = 4;
  if (file.size() < 21 || !has_text(file, "VP8X", 12)) return 1;
  if ((byte_at(file, 20) & (kHasExif | kHasXmp)) == 0) return 1;
  const WebPData data{reinterpret_cast<const std::uint8_t*>(file.data()), file.size()};
  const std::unique_ptr<WebPDemuxer, decltype(&WebPDemuxDelete)> demuxer(WebPDemux(&data),
                                                                         WebPDemuxDelete);
  if (!demuxer) return 1;
  const auto chunk = [&](const char* name) -> FileBytes {
    WebPChunkIterator found = {};
    if (!WebPDemuxGetChunk(demuxer.get(), name, 1, &found)) return {};
    // `bytes` stays valid, because it refers to the file and not to the iterator.
    const FileBytes bytes(reinterpret_cast<const std::byte*>(found.chunk.bytes), found.chunk.size);
    WebPDemuxReleaseChunkIterator(&found);
    return bytes;
  };
  return ImageMetadata{chunk("EXIF"), chunk("XMP ")}.orientation();
}

}  // namespace dpt
