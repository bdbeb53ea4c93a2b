// The decoders, one source file per format (bmp.cpp, jpeg/jpeg.cpp, ...). The table of
// image_formats.cpp lists them. They have the parameters and errors of decode_image.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "kernels/image/decode_options.h"
#include "kernels/image/image.h"

namespace dpt {

/// Returns the part of a decoded image that `choose` requests. `orientation` is
/// DecodeOptions::stored_orientation.
Image part_of_whole(Image image, const ChoosePart& choose, int orientation);

/// Throws if an image's dimensions are out of range, or if it has more pixels per byte of its file
/// than its format can have (`ratio`).
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

// These return the number of bits that the largest value of a 16-bit image needs, 0 to 16, or 0 for
// any other image. They ignore transparency, and throw like the decoders.
int png_used_bits(std::span<const std::byte> file, const std::string& name);
int tiff_used_bits(std::span<const std::byte> file, const std::string& name);
int pnm_used_bits(std::span<const std::byte> file, const std::string& name);

/// Returns the smallest M such that the part can be computed from the JPEG decoded at M/8 of its
/// size; 8 if the part is exact.
int jpeg_eighths(const ImagePart& part);

}  // namespace dpt
