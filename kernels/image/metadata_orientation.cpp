#include "kernels/image/metadata_orientation.h"

#include <cstdint>
#include <cstring>
#include <string_view>

namespace dpt {
namespace {

constexpr std::string_view kExifPrefix("Exif\0\0", 6);

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Reader of the numbers in a TIFF structure, in the structure's byte order. REQUIRES: the offsets
/// lie within the data.
class TiffNumbers {
 public:
  TiffNumbers(std::string_view data, bool is_big_endian)
      : data_(data), is_big_endian_(is_big_endian) {}

  std::uint64_t number(std::size_t at, std::size_t bytes) const {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < bytes; ++i) {
      const std::size_t place = at + (is_big_endian_ ? i : bytes - 1 - i);
      value = value << 8 | static_cast<std::uint8_t>(data_[place]);
    }
    return value;
  }
  std::size_t size() const { return data_.size(); }
  bool has(std::uint64_t at, std::uint64_t bytes) const {
    return at <= size() && bytes <= size() - at;
  }

 private:
  std::string_view data_;
  bool is_big_endian_;
};

/// Returns the size of a TIFF type in bytes; 0 for a type that is not read.
std::uint64_t bytes_of_type(std::uint64_t type) {
  constexpr std::uint8_t kBytes[] = {0, 1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8, 4, 0, 0, 8};
  return type < sizeof kBytes ? kBytes[type] : 0;
}

/// Returns `value` if it is exactly one of 2 to 8, otherwise 1.
template <class T>
int valid_orientation(T value) {
  for (int orientation = 2; orientation <= 8; ++orientation) {
    if (value == static_cast<T>(orientation)) return orientation;
  }
  return 1;
}

/// Returns the orientation in a value of any numeric type; 1 for text and bytes.
int orientation_of_value(const TiffNumbers& numbers, std::size_t at, std::uint64_t type) {
  const auto number = [&](std::size_t offset, std::size_t bytes) {
    return numbers.number(at + offset, bytes);
  };
  switch (type) {
    case 3:  // SHORT, as it should be
    case 8:
      return valid_orientation(number(0, 2));
    case 4:
    case 9:
    case 13:
      return valid_orientation(number(0, 4));
    case 6:
      return valid_orientation(number(0, 1));
    case 16:
      return valid_orientation(number(0, 8));
    case 5:
    case 10: {
      const std::uint64_t above = number(0, 4), below = number(4, 4);
      const auto whole = [&](auto a, auto b) { return b != 0 && a % b == 0 ? a / b : 0; };
      if (type == 5) return valid_orientation(whole(above, below));
      return valid_orientation(whole(std::int64_t{static_cast<std::int32_t>(above)},
                                     std::int64_t{static_cast<std::int32_t>(below)}));
    }
    case 11: {
      const auto bits = static_cast<std::uint32_t>(number(0, 4));
      float value = 0;
      std::memcpy(&value, &bits, sizeof value);
      return valid_orientation(value);
    }
    case 12: {
      const std::uint64_t bits = number(0, 8);
      double value = 0;
      std::memcpy(&value, &bits, sizeof value);
      return valid_orientation(value);
    }
    default:
      return 1;
  }
}

/// Reads the tags of a directory until it finds the orientation or damage.
std::optional<int> orientation_in_directory(const TiffNumbers& numbers, std::uint64_t at) {
  constexpr std::uint64_t kOrientation = 274, kEntryBytes = 12;
  if (!numbers.has(at, 2)) return std::nullopt;
  const std::uint64_t entries = numbers.number(at, 2);
  at += 2;
  // All tags together cannot have more data than the file does.
  std::uint64_t claimed = 0;
  for (std::uint64_t i = 0; i < entries; ++i, at += kEntryBytes) {
    if (!numbers.has(at, kEntryBytes)) return std::nullopt;
    const std::uint64_t tag = numbers.number(at, 2), type = numbers.number(at + 2, 2);
    const std::uint64_t bytes = numbers.number(at + 4, 4) * bytes_of_type(type);
    if (bytes == 0) continue;
    std::uint64_t value = at + 8;
    if (bytes > 4) {
      claimed += bytes;
      if (claimed > numbers.size()) continue;
      value = numbers.number(at + 8, 4);
      if (!numbers.has(value, bytes)) return std::nullopt;
    }
    if (tag == kOrientation) return orientation_of_value(numbers, value, type);
  }
  return std::nullopt;
}

}  // namespace

std::optional<int> orientation_in_exif(std::span<const std::byte> exif) {
  std::string_view data = text_of(exif);
  for (int times = 0; times < 2 && data.starts_with(kExifPrefix); ++times) {
    data.remove_prefix(kExifPrefix.size());
  }
  if (data.empty()) return std::nullopt;
  using namespace std::string_view_literals;
  const bool is_big_endian =
      data.starts_with("MM\0*"sv) || data.starts_with("MM*\0"sv) || data.starts_with("MM\0+"sv);
  const bool is_little_endian = data.starts_with("II*\0"sv) || data.starts_with("II\0*"sv);
  if (data.size() < 8 || (!is_big_endian && !is_little_endian)) return 1;
  const TiffNumbers numbers(data, is_big_endian);
  return orientation_in_directory(numbers, numbers.number(4, 4));
}

int orientation_in_xmp(std::span<const std::byte> xmp) {
  constexpr std::string_view kName = "tiff:Orientation";
  const std::string_view text = text_of(xmp);
  for (std::size_t at = text.find(kName); at != std::string_view::npos;
       at = text.find(kName, at + 1)) {
    std::string_view rest = text.substr(at + kName.size());
    if (rest.starts_with("=\"")) {
      rest.remove_prefix(2);
    } else if (rest.starts_with(">")) {
      rest.remove_prefix(1);
    } else {
      continue;
    }
    if (!rest.empty() && '0' <= rest[0] && rest[0] <= '9') return valid_orientation(rest[0] - '0');
  }
  return 1;
}

}  // namespace dpt
