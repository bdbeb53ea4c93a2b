#include "engine/checkpoints/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cstring>
#include <memory>
#include <new>
#include <set>
#include <span>

#include "engine/checkpoints/foreign_file.h"
#include "engine/checkpoints/safetensors_header.h"
#include "engine/checkpoints/verified_files.h"
#include "kernels/base/error.h"
#include "kernels/base/file_handle.h"
#include "kernels/base/file_io.h"
#include "kernels/base/xxhash.h"

namespace dpt {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

constexpr std::uint64_t kLengthBytes = 8;
constexpr std::size_t kBlockBytes = std::size_t{1} << 20;
using Digest = std::array<std::byte, 16>;

/// Computes the XXH3-128 of a stream of bytes, in its canonical (big-endian) form.
class Hasher {
 public:
  Hasher() : state_(XXH3_createState(), &XXH3_freeState) {
    if (!state_) throw std::bad_alloc();
    XXH3_128bits_reset(state_.get());
  }
  void add(std::span<const std::byte> bytes) {
    XXH3_128bits_update(state_.get(), bytes.data(), bytes.size());
  }
  Digest digest() const {
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state_.get()));
    Digest bytes;
    static_assert(sizeof canonical == sizeof bytes);
    std::memcpy(bytes.data(), &canonical, sizeof bytes);
    return bytes;
  }

 private:
  std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state_;
};

std::string text_of(const Digest& digest) {
  std::string text;
  for (const std::byte byte : digest) text += fmt::format("{:02x}", std::to_integer<int>(byte));
  return text;
}

/// Receiver that wants no tensors.
class NoReceiver : public TensorReceiver {
 public:
  std::span<std::byte> place_for(const TensorEntry&) override { return {}; }
  void received(const TensorEntry&) override {}
};

/// Reads a file sequentially from its beginning and hashes its bytes.
class HashingReader {
 public:
  HashingReader(const FileHandle& file, const std::string& path) : file_(file), path_(path) {}

  /// Reads the next bytes until `place` is full.
  void read(std::span<std::byte> place) {
    while (!place.empty()) {
      // Read in blocks that are still in the processor's cache when they are hashed.
      const std::span<std::byte> part = place.first(std::min(place.size(), kBlockBytes));
      read_exactly(file_, path_, at_, part);
      hasher_.add(part);
      at_ += part.size();
      place = place.subspan(part.size());
    }
  }
  void skip_to(std::uint64_t end) {
    block_.resize(kBlockBytes);
    while (at_ < end) {
      read(std::span(block_).first(std::min<std::uint64_t>(block_.size(), end - at_)));
    }
  }
  Digest digest() const { return hasher_.digest(); }

 private:
  const FileHandle& file_;
  const std::string& path_;
  Hasher hasher_;
  std::vector<std::byte> block_;
  std::uint64_t at_ = 0;
};

/// Checks, before any memory is allocated, that this is a safetensors file whose header fits into
/// it. `head` holds its first bytes. Returns the length of the header.
std::uint64_t check_head(const std::string& path, const std::string& head, std::uint64_t size) {
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, head.data(), sizeof header_bytes);
  const bool is_object = head.size() > kLengthBytes && head[kLengthBytes] == '{';
  if (header_bytes <= kMaxHeaderBytes && is_object) {
    if (header_bytes <= size - kLengthBytes) return header_bytes;
    fail(ErrorKind::data,
         "{}: byte 0: expected a header that fits into the file (at most {} bytes), found one of "
         "{} bytes: the file is truncated",
         path, size - kLengthBytes, header_bytes);
  }
  const std::string kind = describe_foreign_file(path, head);
  if (!kind.empty()) fail(ErrorKind::data, "{}: expected a safetensors file, found {}", path, kind);
  if (header_bytes > kMaxHeaderBytes) {
    fail(ErrorKind::data, "{}: byte 0: expected a header of at most {} bytes, found {}", path,
         kMaxHeaderBytes, header_bytes);
  }
  if (header_bytes > size - kLengthBytes) {
    fail(ErrorKind::data,
         "{}: byte 0: expected a header that fits into the file (at most {} bytes), found one of "
         "{} bytes",
         path, size - kLengthBytes, header_bytes);
  }
  return header_bytes;
}

}  // namespace

SafetensorsFile SafetensorsFile::open(const HeldPath& place) {
  const std::string& path = place.text();
  SafetensorsFile file(path);
  file.file_ = std::make_shared<FileHandle>(open_regular_file(place, file.file_size_));
  if (file.file_size_ < kLengthBytes) {
    fail(ErrorKind::data, "{}: expected a safetensors file of at least 8 bytes, found {} bytes",
         path, file.file_size_);
  }
  std::string head(std::min<std::uint64_t>(file.file_size_, kForeignHeadBytes), '\0');
  read_exactly(*file.file_, path, 0, std::as_writable_bytes(std::span(head)));
  const std::uint64_t header_bytes = check_head(path, head, file.file_size_);
  std::string json(header_bytes, '\0');
  read_exactly(*file.file_, path, kLengthBytes, std::as_writable_bytes(std::span(json)));
  file.data_start_ = kLengthBytes + header_bytes;
  SafetensorsHeader header =
      parse_safetensors_header(path, json, file.file_size_ - file.data_start_);
  file.set_contents(std::move(header.metadata), std::move(header.tensors));
  return file;
}

Integrity SafetensorsFile::check_integrity() const {
  if (find(kIntegrityName) && verified_files().contains(file_->fd())) return Integrity::good;
  NoReceiver nothing;
  return check_integrity(nothing);
}

Integrity SafetensorsFile::check_integrity(TensorReceiver& receiver) const {
  const TensorEntry* entry = find(kIntegrityName);
  if (!entry) return Integrity::absent;
  const auto stamp = VerifiedFiles::stamp_before_reading(file_->fd());
  HashingReader reader(*file_, path());
  for (const TensorEntry& tensor : tensors()) {
    if (&tensor == entry) break;  // the checksum is the last tensor
    const std::span<std::byte> place = receiver.place_for(tensor);
    if (place.empty()) continue;
    assert(place.size() == tensor.bytes());
    reader.skip_to(data_start_ + tensor.begin);
    reader.read(place);
    receiver.received(tensor);
  }
  const std::uint64_t end = data_start_ + entry->begin;
  reader.skip_to(end);
  Digest stored;
  read_exactly(*file_, path(), end, stored);
  if (stored != reader.digest()) return Integrity::mismatch;
  if (stamp) verified_files().add(file_->fd(), *stamp);
  return Integrity::good;
}

std::string SafetensorsFile::stored_checksum() const {
  const TensorEntry* entry = find(kIntegrityName);
  if (!entry) return {};
  Digest stored;
  read_exactly(*file_, path(), data_start_ + entry->begin, stored);
  return text_of(stored);
}

void SafetensorsFile::read_to(const TensorEntry& entry, std::span<std::byte> to) const {
  read_exactly(*file_, path(), data_start_ + entry.begin, to);
}

std::string write_safetensors(const HeldPath& place, const Metadata& metadata,
                              const std::vector<TensorView>& tensors, const TensorValues& values,
                              Checksum checksum) {
  const std::string& path = place.text();
  std::set<std::string> names;
  for (const TensorView& tensor : tensors) {
    if (tensor.name == kIntegrityName || tensor.name == "__metadata__" ||
        !names.insert(tensor.name).second) {
      fail(ErrorKind::data, "{}: cannot write tensor '{}': a tensor with that name already exists",
           path, tensor.name);
    }
  }
  Digest digest;
  std::vector<TensorView> all = tensors;
  const bool has_checksum = checksum == Checksum::append;
  if (has_checksum) all.push_back({kIntegrityName, "U8", {16}, digest.data()});
  const std::string header = format_safetensors_header(path, metadata, all);
  const std::uint64_t header_bytes = header.size();

  AtomicFile file(place);
  Hasher hasher;
  const auto put = [&](std::span<const std::byte> bytes) {
    hasher.add(bytes);
    file.write(bytes);
  };
  put(std::as_bytes(std::span(&header_bytes, 1)));
  put(std::as_bytes(std::span(header)));
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const TensorView& tensor = tensors[i];
    std::uint64_t bytes = 0;
    tensor_bytes(tensor.dtype, tensor.shape, bytes);
    put({static_cast<const std::byte*>(values ? values(i) : tensor.data), bytes});
  }
  digest = hasher.digest();
  if (has_checksum) file.write(digest);
  file.commit();
  return has_checksum ? text_of(digest) : std::string();
}

}  // namespace dpt
