// The one table of image formats: their names, extensions, signatures and decoders.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "kernels/image/decode_options.h"
#include "kernels/image/image.h"

namespace dpt {

struct ImageFormat {
  const char* name;                     ///< "WebP"
  const char* with_article;             ///< "a WebP image"
  const char* plural;                   ///< "WebP images"
  std::vector<const char*> extensions;  ///< extensions of its files, in lower case: ".webp"
  bool (*matches)(std::span<const std::byte> file);
  /// Decodes a part as decode_part does; null for a format that dpt does not read.
  Image (*decode)(std::span<const std::byte> file, const std::string& name, std::int64_t channels,
                  const ChoosePart& choose, const DecodeOptions& options);
  /// Converts a file of a format that dpt does not read: "avifdec IN.avif OUT.png".
  const char* converter;
  /// Returns the orientation in the metadata of a file, 1 to 8; null if no program reads it from
  /// this format.
  int (*orientation)(std::span<const std::byte> file) = nullptr;
  bool turns_itself = false;  ///< `decode` returns upright images, as Pillow does for the format
  /// Returns the number of bits that the values of a 16-bit image need; null if the format has no
  /// such images.
  int (*used_bits)(std::span<const std::byte> file, const std::string& name) = nullptr;
};

std::span<const ImageFormat> image_formats();

/// Returns the format that the content of a file has; null if it is none of the table.
const ImageFormat* format_of_content(std::span<const std::byte> file);
/// Returns the format whose extension a file name has, in any case; null if there is none.
const ImageFormat* format_of_name(const std::string& name);

/// Returns whether a file of that name is taken for an image: it has an extension of a format that
/// dpt reads, in any case.
bool is_image_name(const std::string& name);

/// "JPEG, PNG or WebP": the names of the formats that dpt reads.
std::string readable_formats();
/// ".jpg", ".jpeg", ...: the extensions of the formats that dpt reads.
std::vector<std::string> readable_extensions();

}  // namespace dpt
