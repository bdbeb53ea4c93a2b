#include "engine/checkpoints/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <memory>
#include <new>
#include <set>
#include <span>

#include "engine/checkpoints/file_io.h"
#include "engine/checkpoints/safetensors_header.h"
#include "kernels/error.h"
#include "kernels/xxhash.h"

namespace dpt {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

constexpr std::uint64_t kLengthBytes = 8;
constexpr std::size_t kBlockBytes = std::size_t{1} << 20;
using Digest = std::array<std::byte, 16>;

/// XXH3-128 of a stream of bytes, in its canonical (big-endian) form.
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

float from_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

float from_f16(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000U) << 16;
  const std::uint32_t magnitude = bits & 0x7FFFU;
  if (magnitude >= 0x7C00U) {  // infinity or NaN
    return std::bit_cast<float>(sign | 0x7F800000U | (magnitude & 0x3FFU) << 13);
  }
  // As a float, the bits read 2^-112 times the value; the product is exact, subnormals included.
  const float value = std::bit_cast<float>(magnitude << 13) * 0x1p112F;
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(value));
}

template <class T, class Convert>
std::vector<float> convert(const std::vector<std::byte>& bytes, Convert to_float) {
  std::vector<float> floats(bytes.size() / sizeof(T));
  for (std::size_t i = 0; i < floats.size(); ++i) {
    T value;
    std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
    floats[i] = to_float(value);
  }
  return floats;
}

}  // namespace

SafetensorsFile SafetensorsFile::open(const HeldPath& place) {
  const std::string& path = place.text();
  SafetensorsFile file;
  file.path_ = path;
  file.file_ = std::make_shared<FileHandle>(open_regular_file(place, file.file_size_));
  if (file.file_size_ < kLengthBytes) {
    fail(ErrorKind::data, "{}: expected a safetensors file, of at least 8 bytes, found {}", path,
         file.file_size_);
  }
  std::uint64_t header_bytes = 0;
  read_exactly(*file.file_, path, 0, std::as_writable_bytes(std::span(&header_bytes, 1)));
  // Checked against the file before any memory is asked for.
  if (header_bytes > kMostHeaderBytes) {
    fail(ErrorKind::data, "{}: byte 0: expected a header of at most {} bytes, found {}", path,
         kMostHeaderBytes, header_bytes);
  }
  if (header_bytes > file.file_size_ - kLengthBytes) {
    fail(ErrorKind::data,
         "{}: byte 0: expected a header that fits into the file ({} bytes), found {}", path,
         file.file_size_ - kLengthBytes, header_bytes);
  }
  std::string json(header_bytes, '\0');
  read_exactly(*file.file_, path, kLengthBytes, std::as_writable_bytes(std::span(json)));
  file.data_start_ = kLengthBytes + header_bytes;
  SafetensorsHeader header =
      parse_safetensors_header(path, json, file.file_size_ - file.data_start_);
  file.metadata_ = std::move(header.metadata);
  file.tensors_ = std::move(header.tensors);
  return file;
}

const TensorEntry* SafetensorsFile::find(const std::string& name) const {
  for (const TensorEntry& tensor : tensors_) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

Integrity SafetensorsFile::check_integrity() const {
  const TensorEntry* entry = find(kIntegrityName);
  if (!entry) return Integrity::absent;
  Hasher hasher;
  std::vector<std::byte> block(kBlockBytes);
  const std::uint64_t end = data_start_ + entry->begin;
  for (std::uint64_t at = 0; at < end;) {
    const std::size_t n = std::min<std::uint64_t>(block.size(), end - at);
    read_exactly(*file_, path_, at, std::span(block).first(n));
    hasher.add(std::span(block).first(n));
    at += n;
  }
  Digest stored;
  read_exactly(*file_, path_, end, stored);
  return stored == hasher.digest() ? Integrity::good : Integrity::mismatch;
}

std::string SafetensorsFile::stored_checksum() const {
  const TensorEntry* entry = find(kIntegrityName);
  if (!entry) return {};
  Digest stored;
  read_exactly(*file_, path_, data_start_ + entry->begin, stored);
  return text_of(stored);
}

std::vector<std::byte> SafetensorsFile::read(const TensorEntry& entry) const {
  std::vector<std::byte> bytes(entry.bytes());
  read_exactly(*file_, path_, data_start_ + entry.begin, bytes);
  return bytes;
}

std::vector<float> SafetensorsFile::read_floats(const TensorEntry& entry) const {
  if (entry.dtype == "F32") {
    std::vector<float> floats(entry.bytes() / sizeof(float));
    read_exactly(*file_, path_, data_start_ + entry.begin,
                 std::as_writable_bytes(std::span(floats)));
    return floats;
  }
  if (entry.dtype == "F16") return convert<std::uint16_t>(read(entry), from_f16);
  if (entry.dtype == "BF16") return convert<std::uint16_t>(read(entry), from_bf16);
  if (entry.dtype == "F64") {
    return convert<double>(read(entry), [](double value) { return static_cast<float>(value); });
  }
  fail(ErrorKind::data, "{}: tensor '{}': expected F32, F16, BF16 or F64, found {}", path_,
       entry.name, entry.dtype);
}

std::vector<std::int64_t> SafetensorsFile::read_integers(const TensorEntry& entry) const {
  if (entry.dtype != "I64") {
    fail(ErrorKind::data, "{}: tensor '{}': expected I64, found {}", path_, entry.name,
         entry.dtype);
  }
  std::vector<std::int64_t> integers(entry.bytes() / sizeof(std::int64_t));
  read_exactly(*file_, path_, data_start_ + entry.begin,
               std::as_writable_bytes(std::span(integers)));
  return integers;
}

std::string write_safetensors(const HeldPath& place, const Metadata& metadata,
                              const std::vector<TensorView>& tensors, const TensorValues& values,
                              Checksum checksum) {
  const std::string& path = place.text();
  std::set<std::string> names;
  for (const TensorView& tensor : tensors) {
    if (tensor.name == kIntegrityName || tensor.name == "__metadata__" ||
        !names.insert(tensor.name).second) {
      fail(ErrorKind::data, "{}: cannot write tensor '{}': a tensor of that name exists already",
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
