// The decoders, one source per format (bmp.cpp, jpeg/jpeg.cpp, ...), which the table in
// image_formats.cpp lists. They have decode_image's parameters and errors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "kernels/image/decode_options.h"
#include "kernels/image/image.h"

namespace dpt {

/// Returns the part of a decoded image that `choose` asks for. `orientation` is as
/// DecodeOptions::stored_orientation.
Image part_of_whole(Image image, const ChoosePart& choose, int orientation);

/// Fails for an image whose dimensions are out of range, or whose pixels are more than `ratio`
/// times its file's bytes: more than its format can compress.
void check_image_size(const std::string& name, std::int64_t width, std::int64_t height,
                      std::int64_t channels, std::size_t file_bytes, std::int64_t ratio);

Image decode_jpeg(std::span<const std::byte> file, const std::string& name, std::int64_t channels,
                  const ChoosePart& choose, const DecodeOptions& options);
Image decode_png(std::span<const std::byte> file, const std::string& name, std::int64_t channels);
Image decode_webp(std::span<const std::byte> file, const std::string& name, std::int64_t channels);
Image decode_bmp(std::span<const std::byte> file, const std::string& name, std::int64_t channels);
Image decode_gif(std::span<const std::byte> file, const std::string& name, std::int64_t channels);
Image decode_tiff(std::span<const std::byte> file, const std::string& name, std::int64_t channels);
Image decode_pnm(std::span<const std::byte> file, const std::string& name, std::int64_t channels);

// Number of bits that the largest value of a 16-bit image needs, 0 to 16, for formats that have
// such images; 0 for any other image. Transparency does not count. Throw like the decoders.
int png_used_bits(std::span<const std::byte> file, const std::string& name);
int tiff_used_bits(std::span<const std::byte> file, const std::string& name);
int pnm_used_bits(std::span<const std::byte> file, const std::string& name);

/// The least M of the sizes M/8 that a JPEG is decoded at for the part, 8 if it is exact.
int jpeg_eighths(const ImagePart& part);

}  // namespace dpt
