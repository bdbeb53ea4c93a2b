#include "engine/checkpoints/tensor_file.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>

#include "kernels/base/error.h"

namespace dpt {
namespace {

float from_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

float from_f16(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000U) << 16;
  const std::uint32_t magnitude = bits & 0x7FFFU;
  if (magnitude >= 0x7C00U) {  // infinity or NaN
    return std::bit_cast<float>(sign | 0x7F800000U | (magnitude & 0x3FFU) << 13);
  }
  // The bits, read as a float, are 2^-112 times the value. The product is exact, including for
  // subnormals.
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

void TensorFile::set_contents(Metadata metadata, std::vector<TensorEntry> tensors) {
  metadata_ = std::move(metadata);
  tensors_ = std::move(tensors);
  by_name_.resize(tensors_.size());
  std::iota(by_name_.begin(), by_name_.end(), std::size_t{0});
  std::sort(by_name_.begin(), by_name_.end(),
            [&](std::size_t a, std::size_t b) { return tensors_[a].name < tensors_[b].name; });
}

const TensorEntry* TensorFile::find(std::string_view name) const {
  const auto found = std::lower_bound(
      by_name_.begin(), by_name_.end(), name,
      [&](std::size_t index, std::string_view wanted) { return tensors_[index].name < wanted; });
  return found != by_name_.end() && tensors_[*found].name == name ? &tensors_[*found] : nullptr;
}

std::vector<std::byte> TensorFile::read(const TensorEntry& entry) const {
  std::vector<std::byte> bytes(entry.bytes());
  read_to(entry, bytes);
  return bytes;
}

std::vector<float> TensorFile::read_floats(const TensorEntry& entry) const {
  if (entry.dtype == "F32") {
    std::vector<float> floats(entry.bytes() / sizeof(float));
    read_to(entry, std::as_writable_bytes(std::span(floats)));
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

std::vector<std::int64_t> TensorFile::read_integers(const TensorEntry& entry) const {
  if (entry.dtype == "F16" || entry.dtype == "BF16" || entry.dtype == "F32") {
    // Accept floats, because a program that casts a whole state_dict casts the counters too.
    std::vector<std::int64_t> counts;
    for (const float value : read_floats(entry)) {
      if (!(value >= 0 && value < 1e15F)) {
        fail(ErrorKind::data, "{}: tensor '{}': expected a count, found {}", path_, entry.name,
             value);
      }
      counts.push_back(static_cast<std::int64_t>(value));
    }
    return counts;
  }
  if (entry.dtype != "I64") {
    fail(ErrorKind::data, "{}: tensor '{}': expected I64, found {}", path_, entry.name,
         entry.dtype);
  }
  std::vector<std::int64_t> integers(entry.bytes() / sizeof(std::int64_t));
  read_to(entry, std::as_writable_bytes(std::span(integers)));
  return integers;
}

}  // namespace dpt
