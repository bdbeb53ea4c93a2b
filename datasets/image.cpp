#include "datasets/image.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "datasets/file_content.h"
#include "datasets/image_formats.h"
#include "datasets/pixels.h"
#include "datasets/turned_image.h"
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

Image converted(Image image, std::int64_t channels) {
  if (image.channels == channels) return image;
  const auto pixels = static_cast<std::size_t>(image.width * image.height);
  Image result{image.height, image.width, channels, {}};
  result.pixels.resize(pixels * static_cast<std::size_t>(channels));
  if (channels == 1) {
    rgb_to_grey(image.pixels.data(), pixels, result.pixels.data());
  } else {
    for (std::size_t p = 0; p < pixels; ++p) std::memset(&result.pixels[3 * p], image.pixels[p], 3);
  }
  return result;
}

Image decode_image(std::span<const std::byte> file, const std::string& name, std::int64_t channels,
                   const DecodeOptions& options) {
  const auto all = [](std::int64_t height, std::int64_t width) {
    return whole_picture(height, width, height, width);
  };
  return decode_part(file, name, channels, all, options);
}

Image part_of_whole(Image image, const ChoosePart& choose, int orientation) {
  const PicturePart part = choose(image.height, image.width);
  const PixelBox all{0, 0, image.height, image.width};
  const bool is_whole = part.box == all && part.window == all && part.height == image.height &&
                        part.width == image.width;
  return is_whole ? std::move(image) : part_of_stored(image, part, stored_turn(orientation));
}

namespace {

/// Decodes a part of the upright image of a file with another stored orientation.
Image decode_turned(const ImageFormat& format, int orientation, std::span<const std::byte> file,
                    const std::string& name, std::int64_t channels, const ChoosePart& choose,
                    DecodeOptions options) {
  options.stored_orientation = orientation;
  const ChoosePart choose_stored = [&](std::int64_t height, std::int64_t width) {
    if (exchanges_sides(orientation)) std::swap(height, width);
    return stored_part(choose(height, width), orientation, height, width);
  };
  return turned_upright(format.decode(file, name, channels, choose_stored, options), orientation);
}

/// Returns the orientation of a file if its decoder does not apply it, else 1.
int orientation_to_apply(const ImageFormat& format, std::span<const std::byte> file) {
  return format.orientation && !format.turns_itself ? format.orientation(file) : 1;
}

}  // namespace

FileFacts facts_of_file(std::span<const std::byte> file, const std::string& name,
                        bool applies_orientation) {
  FileFacts facts;
  const ImageFormat* format = format_of_content(file);
  if (!format) return facts;
  if (format->orientation) facts.orientation = format->orientation(file);
  facts.is_turned = facts.orientation != 1 && (applies_orientation || format->turns_itself);
  if (format->used_bits) facts.used_bits = format->used_bits(file, name);
  return facts;
}

Image decode_part(std::span<const std::byte> file, const std::string& name, std::int64_t channels,
                  const ChoosePart& choose, const DecodeOptions& options) {
  if (file.empty()) fail(ErrorKind::data, "{}: the file is empty", name);
  const ImageFormat* format = format_of_content(file);
  if (!format) {
    const FileContent found = content_of(file);
    fail(ErrorKind::data, "{}: expected an image ({}), found {}: {}", name, readable_formats(),
         found.what, found.remedy);
  }
  if (!format->decode) {
    fail(ErrorKind::data, "{}: {}, which dpt does not read: convert it with {}", name,
         format->with_article, format->converter);
  }
  const int orientation = options.applies_orientation ? orientation_to_apply(*format, file) : 1;
  if (orientation != 1) {
    return decode_turned(*format, orientation, file, name, channels, choose, options);
  }
  return format->decode(file, name, channels, choose, options);
}

}  // namespace dpt
