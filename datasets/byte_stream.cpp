#include "datasets/byte_stream.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "kernels/base/error.h"
#include "kernels/base/stop_request.h"

namespace dpt {
namespace {

/// Maximum expansion of deflate: 1032 bytes from one (zlib's technical notes).
constexpr std::uint64_t kDeflateRatio = 1032;
/// Expansion from which a file counts as a decompression bomb: images do not shrink to 1/200.
constexpr std::uint64_t kBombRatio = 200;
constexpr std::uint64_t kBombBytes = std::uint64_t{64} << 20;

constexpr std::size_t kChunk = 65536;

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

}  // namespace

struct ByteStream::Impl {
  std::string name;
  std::unique_ptr<std::FILE, CloseFile> file;  ///< null if the data is in memory
  std::uint64_t stored = 0;                    ///< bytes of the file itself
  std::uint64_t stored_read = 0;               ///< stored bytes fetched so far
  std::uint64_t position = 0;
  bool gzip = false;
  bool gzip_ended = false;  ///< a gzip member has ended and no other has begun
  z_stream inflater{};
  std::array<std::byte, kChunk> chunk;

  ~Impl() {
    if (gzip) inflateEnd(&inflater);
  }

  void begin_gzip() {
    // 15 + 16: the largest window, gzip framing with its checksum.
    if (inflateInit2(&inflater, 15 + 16) != Z_OK) fail(ErrorKind::data, "{}: zlib failed", name);
    gzip = true;
  }

  std::size_t fetch(std::byte* to, std::size_t bytes) {
    const std::size_t count = std::fread(to, 1, bytes, file.get());
    if (count < bytes && std::ferror(file.get())) {
      fail(ErrorKind::data, "{}: reading failed at offset {}: {}", name, stored_read + count,
           std::strerror(errno));
    }
    stored_read += count;
    return count;
  }

  /// Gives the inflater more bytes of the file. Returns false at the file's end.
  bool refill() {
    if (inflater.avail_in > 0) return true;
    if (!file) return false;
    const std::size_t count = fetch(chunk.data(), chunk.size());
    inflater.next_in = reinterpret_cast<Bytef*>(chunk.data());
    inflater.avail_in = static_cast<uInt>(count);
    return count > 0;
  }

  std::uint64_t gzip_offset() const { return stored_read - inflater.avail_in; }

  std::size_t inflate_some(std::byte* to, std::size_t bytes) {
    std::size_t done = 0;
    while (done < bytes) {
      check_stop();
      if (!refill()) {
        if (gzip_ended) break;
        fail(ErrorKind::data,
             "{}: truncated gzip: the file ends at byte {} in the middle of its data", name,
             stored_read);
      }
      if (gzip_ended) {
        // Only another gzip member may follow; expect_end reports anything else.
        if (std::to_integer<int>(*reinterpret_cast<std::byte*>(inflater.next_in)) != 0x1f) break;
        inflateReset(&inflater);
        gzip_ended = false;
      }
      inflater.next_out = reinterpret_cast<Bytef*>(to + done);
      const auto room = static_cast<uInt>(std::min<std::size_t>(bytes - done, 1U << 30));
      inflater.avail_out = room;
      const int result = ::inflate(&inflater, Z_NO_FLUSH);
      done += room - inflater.avail_out;
      if (result == Z_STREAM_END) {
        gzip_ended = true;
      } else if (result != Z_OK && result != Z_BUF_ERROR) {
        fail(ErrorKind::data, "{}: corrupt gzip near byte {} of the file: {}", name, gzip_offset(),
             inflater.msg ? inflater.msg : "zlib gives no reason");
      }
    }
    return done;
  }

  std::size_t read_some(std::byte* to, std::size_t bytes) {
    const std::size_t count = gzip ? inflate_some(to, bytes) : fetch(to, bytes);
    position += count;
    return count;
  }
};

ByteStream::ByteStream(const std::string& path) : impl_(std::make_unique<Impl>()) {
  namespace fs = std::filesystem;
  impl_->name = path;
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (error || !fs::is_regular_file(status)) {
    fail(ErrorKind::data, "{}: {}", path,
         fs::exists(status) ? "not a regular file"
         : error            ? error.message()
                            : std::string("no such file"));
  }
  impl_->stored = fs::file_size(path, error);
  impl_->file.reset(std::fopen(path.c_str(), "rbe"));
  if (!impl_->file || error) {
    fail(ErrorKind::data, "{}: cannot be opened: {}", path,
         error ? error.message() : std::strerror(errno));
  }
  if (path.ends_with(".gz")) impl_->begin_gzip();
}

ByteStream::ByteStream(std::span<const std::byte> gzip, const std::string& name)
    : impl_(std::make_unique<Impl>()) {
  impl_->name = name;
  impl_->stored = impl_->stored_read = gzip.size();
  impl_->begin_gzip();
  // zlib's interface predates const; it does not write to its input.
  impl_->inflater.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(gzip.data()));
  impl_->inflater.avail_in = static_cast<uInt>(gzip.size());
}

ByteStream::~ByteStream() = default;
ByteStream::ByteStream(ByteStream&&) noexcept = default;

const std::string& ByteStream::name() const {
  return impl_->name;
}
std::uint64_t ByteStream::position() const {
  return impl_->position;
}

void ByteStream::read(std::span<std::byte> to, const std::string& what) {
  const std::uint64_t from = impl_->position;
  const std::size_t count = impl_->read_some(to.data(), to.size());
  if (count == to.size()) return;
  fail(ErrorKind::data, "{}: expected {} for {} from offset {}, but the data ends at offset {}",
       impl_->name, counted(to.size(), "byte"), what, from, impl_->position);
}

void ByteStream::expect(std::uint64_t bytes, const std::string& what) const {
  const Impl& me = *impl_;
  if (!me.gzip) {
    const std::uint64_t rest = me.stored - std::min(me.stored, me.position);
    if (bytes == rest) return;
    fail(ErrorKind::data, "{}: expected {} for {} from offset {}, but {}", me.name,
         counted(bytes, "byte"), what, me.position,
         rest == 1 ? std::string("1 byte remains") : fmt::format("{} bytes remain", rest));
  }
  if (bytes / kDeflateRatio > me.stored) {
    fail(ErrorKind::data, "{}: expected {} for {}, more than a gzip file of {} can hold", me.name,
         counted(bytes, "byte"), what, counted(me.stored, "byte"));
  }
  if (bytes > kBombBytes && bytes / kBombRatio > me.stored) {
    fail(ErrorKind::data,
         "{}: expected {} for {} in a gzip file of {}: refused as a decompression bomb (if it is "
         "not one, decompress it by hand)",
         me.name, counted(bytes, "byte"), what, counted(me.stored, "byte"));
  }
}

void ByteStream::expect_end() {
  Impl& me = *impl_;
  const std::uint64_t end = me.position;
  std::byte more{};
  if (me.read_some(&more, 1) > 0) {
    fail(ErrorKind::data, "{}: the data should end at offset {}, but more follows", me.name, end);
  }
  if (me.gzip && me.inflater.avail_in > 0) {
    fail(ErrorKind::data, "{}: other bytes follow the gzip data, from byte {} of the file", me.name,
         me.gzip_offset());
  }
}

}  // namespace dpt
