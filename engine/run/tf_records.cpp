#include "engine/run/tf_records.h"

#include <array>
#include <bit>

namespace dpt {
namespace {

constexpr std::array<std::uint32_t, 256> kCrcTable = [] {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78U : 0);
    table[i] = crc;
  }
  return table;
}();

template <class T>
std::string little_endian(T value) {
  std::string bytes;
  for (std::size_t i = 0; i < sizeof value; ++i) {
    bytes += static_cast<char>(static_cast<unsigned char>(value >> (8 * i)));
  }
  return bytes;
}

template <class T>
T number_of(std::string_view bytes) {
  T value = 0;
  for (std::size_t i = sizeof value; i-- > 0;) {
    value = static_cast<T>(value << 8) | static_cast<unsigned char>(bytes[i]);
  }
  return value;
}

constexpr std::size_t kLengthBytes = 8, kCrcBytes = 4;

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t crc = 0xFFFFFFFFU;
  for (const char c : bytes) {
    crc = (crc >> 8) ^ kCrcTable[(crc ^ static_cast<unsigned char>(c)) & 0xFF];
  }
  return ~crc;
}

std::uint32_t masked_crc32c(std::string_view bytes) {
  return std::rotr(crc32c(bytes), 15) + 0xA282EAD8U;
}

std::string tf_record(std::string_view payload) {
  const std::string length = little_endian(std::uint64_t{payload.size()});
  std::string record = length + little_endian(masked_crc32c(length));
  record += payload;
  return record + little_endian(masked_crc32c(payload));
}

bool next_tf_record(std::string_view& rest, std::string_view& payload) {
  constexpr std::size_t kHead = kLengthBytes + kCrcBytes;
  if (rest.size() < kHead + kCrcBytes) return false;
  const std::string_view length = rest.substr(0, kLengthBytes);
  if (number_of<std::uint32_t>(rest.substr(kLengthBytes)) != masked_crc32c(length)) return false;
  const auto bytes = number_of<std::uint64_t>(length);
  if (bytes > rest.size() - kHead - kCrcBytes) return false;
  const std::string_view found = rest.substr(kHead, bytes);
  if (number_of<std::uint32_t>(rest.substr(kHead + bytes)) != masked_crc32c(found)) return false;
  payload = found;
  rest.remove_prefix(kHead + bytes + kCrcBytes);
  return true;
}

}  // namespace dpt
