// Decoded images and their processing on the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace dpt {

/// 8-bit pixels, (height, width, channels), channels fastest.
struct Image {
  std::int64_t height = 0, width = 0, channels = 0;
  std::vector<std::uint8_t> pixels;
};

/// Limits of the sides and of the decoded bytes, above which an image is refused.
inline constexpr std::int64_t kMostSide = 16384;
inline constexpr std::int64_t kMostImageBytes = std::int64_t{256} << 20;

/// Decodes a JPEG or PNG file, told apart by content, to 1 channel (grey) or 3 (RGB); transparency
/// is dropped, 16 bits become 8, orientation tags are ignored (all as torchvision's ImageFolder
/// does). `name` is used in messages. Throws ErrorKind::data.
Image decode_image(std::span<const std::byte> file, const std::string& name, std::int64_t channels);

// The two decoders of decode_image; each lets the library convert to `channels`.
Image decode_jpeg(std::span<const std::byte> file, const std::string& name, std::int64_t channels);
Image decode_png(std::span<const std::byte> file, const std::string& name, std::int64_t channels);

/// A PNG file of an image with 1 or 3 channels.
std::vector<std::byte> encode_png(const Image& image);

/// Fails for an image whose dimensions are out of range, or whose pixels are more than `ratio`
/// times its file's bytes: more than its format can compress.
void check_image_size(const std::string& name, std::int64_t width, std::int64_t height,
                      std::int64_t channels, std::size_t file_bytes, std::int64_t ratio);

/// Resizes to (height, width) as Pillow's BILINEAR does (torchvision's antialias=True): a triangle
/// filter as wide as the reduction, first along rows, then along columns, each rounded to 8 bits.
/// `to` takes height * width * image.channels bytes.
void resize_bilinear(const Image& image, std::int64_t height, std::int64_t width,
                     std::span<std::byte> to);

}  // namespace dpt
