// Image files: JPEG and PNG.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/data/image.h"

namespace dpt {

/// Limits of the sides and of the decoded bytes, above which an image is refused.
inline constexpr std::int64_t kMostSide = 16384;
inline constexpr std::int64_t kMostImageBytes = std::int64_t{256} << 20;

/// Decodes a JPEG or PNG file, told apart by content, to 1 channel (grey) or 3 (RGB); transparency
/// is dropped, 16 bits become 8, orientation tags are ignored (all as torchvision's ImageFolder
/// does). `name` is used in messages. Throws ErrorKind::data.
Image decode_image(std::span<const std::byte> file, const std::string& name, std::int64_t channels);

/// The part of such a file that `choose` asks for, with the same rules and errors.
Image decode_part(std::span<const std::byte> file, const std::string& name, std::int64_t channels,
                  const ChoosePart& choose);

// The two decoders of decode_image; each lets the library convert to `channels`.
Image decode_jpeg(std::span<const std::byte> file, const std::string& name, std::int64_t channels);
Image decode_png(std::span<const std::byte> file, const std::string& name, std::int64_t channels);

/// A PNG file of an image with 1 or 3 channels.
std::vector<std::byte> encode_png(const Image& image);

/// Fails for an image whose dimensions are out of range, or whose pixels are more than `ratio`
/// times its file's bytes: more than its format can compress.
void check_image_size(const std::string& name, std::int64_t width, std::int64_t height,
                      std::int64_t channels, std::size_t file_bytes, std::int64_t ratio);

}  // namespace dpt
