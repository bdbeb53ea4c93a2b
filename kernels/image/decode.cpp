#include "kernels/image/decode.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/base/error.h"
#include "kernels/image/file_content.h"
#include "kernels/image/image_formats.h"
#include "kernels/image/pixels.h"
#include "kernels/image/resize.h"
#include "kernels/image/turned_image.h"

namespace dpt {

Image decode_image(std::span<const std::byte> file, const std::string& name, std::int64_t channels,
                   const DecodeOptions& options) {
  const auto all = [](std::int64_t height, std::int64_t width) {
    return whole_image(height, width, height, width);
  };
  return decode_part(file, name, channels, all, options);
}

namespace {

/// Decodes a part of the upright image from a file whose stored image is not upright.
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

/// Returns the orientation of a file, or 1 if its decoder applies the orientation itself.
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
