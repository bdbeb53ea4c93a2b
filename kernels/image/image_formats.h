// The table of image formats: their names, extensions, signatures and decoders.
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
  std::vector<const char*> extensions;  ///< file name extensions, in lower case: ".webp"
  bool (*matches)(std::span<const std::byte> file);
  /// Decodes a part in the way of decode_part; null for a format that dpt cannot read.
  Image (*decode)(std::span<const std::byte> file, const std::string& name, std::int64_t channels,
                  const ChoosePart& choose, const DecodeOptions& options);
  /// Command that converts a file of this format, if dpt cannot read it: "avifdec IN.avif OUT.png".
  const char* converter;
  /// Returns the orientation in a file's metadata, 1 to 8. Null if no program reads an orientation
  /// from this format.
  int (*orientation)(std::span<const std::byte> file) = nullptr;
  bool turns_itself = false;  ///< true if `decode` returns upright images, as Pillow does
  /// Returns the number of bits that the largest value of a 16-bit image needs. Null if the format
  /// has no 16-bit images.
  int (*used_bits)(std::span<const std::byte> file, const std::string& name) = nullptr;
};

std::span<const ImageFormat> image_formats();

/// Returns the format of a file, judging by its content; null if the table does not list it.
const ImageFormat* format_of_content(std::span<const std::byte> file);
/// Returns the format to which the extension of a file name belongs, ignoring case; null if the
/// table does not list it.
const ImageFormat* format_of_name(const std::string& name);

/// Returns true if a file name has the extension of a format that dpt reads, ignoring case.
bool is_image_name(const std::string& name);

/// Returns the names of the formats that dpt reads: "JPEG, PNG or WebP".
std::string readable_formats();
/// Returns the extensions of the formats that dpt reads: ".jpg", ".jpeg", ...
std::vector<std::string> readable_extensions();

}  // namespace dpt
