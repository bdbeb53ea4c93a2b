#include "datasets/image.h"

#include <algorithm>
#include <cstring>

#include "kernels/error.h"

namespace dpt {

void check_image_size(const std::string& name, std::int64_t width, std::int64_t height,
                      std::int64_t channels, std::size_t file_bytes, std::int64_t ratio) {
  if (width < 1 || height < 1 || width > kMostSide || height > kMostSide ||
      width * height * channels > kMostImageBytes) {
    fail(ErrorKind::data,
         "{}: {}x{} pixels (width x height): dimensions out of range; expected at most {} per side "
         "and {} MiB decoded",
         name, width, height, kMostSide, kMostImageBytes >> 20);
  }
  if (width * height / ratio > static_cast<std::int64_t>(file_bytes)) {
    fail(ErrorKind::data,
         "{}: claims {}x{} pixels (width x height), more than a file of {} bytes can hold", name,
         width, height, file_bytes);
  }
}

Image decode_image(std::span<const std::byte> file, const std::string& name,
                   std::int64_t channels) {
  const auto begins_with = [&](const char* magic, std::size_t length) {
    return file.size() >= length && std::memcmp(file.data(), magic, length) == 0;
  };
  if (begins_with("\xff\xd8\xff", 3)) return decode_jpeg(file, name, channels);
  if (begins_with("\x89PNG\r\n\x1a\n", 8)) return decode_png(file, name, channels);
  if (file.empty()) fail(ErrorKind::data, "{}: the file is empty", name);
  std::string found;
  for (const std::byte b : file.first(std::min<std::size_t>(file.size(), 8))) {
    found += fmt::format(" {:02x}", std::to_integer<int>(b));
  }
  fail(ErrorKind::data, "{}: neither a JPEG nor a PNG: the file begins with{}", name, found);
}

Image decode_part(std::span<const std::byte> file, const std::string& name, std::int64_t channels,
                  const ChoosePart& choose) {
  const Image image = decode_image(file, name, channels);
  return part_of(image, choose(image.height, image.width));
}

}  // namespace dpt
