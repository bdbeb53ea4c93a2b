// Image files, and the pixels in them.
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

/// Returns whether a file of that name is taken for an image: it has an extension of a format that
/// dpt reads (datasets/image_formats.h), in any case.
bool is_image_name(const std::string& name);

/// The bytes of a picture's file. Throws ErrorKind::data.
std::vector<std::byte> read_image_file(const std::string& path);

struct DecodeOptions {
  /// A damaged or truncated JPEG is kept, with what libjpeg makes of it: after a tear the pixels
  /// are grey, or for a progressive one those of the scans before it. Without it, it is an error.
  /// What stands before the pixels must be whole, and so must a PNG.
  bool salvage = false;
  /// No JPEG is decoded without libjpeg (datasets/baseline_jpeg.h); for tests.
  bool only_libjpeg = false;
  /// True to turn images upright by their metadata (datasets/metadata_orientation.h), like Pillow's
  /// ImageOps.exif_transpose: sizes, parts and pixels are those of the upright image.
  bool applies_orientation = false;
  /// Orientation of the stored pixels that contain the part; decode_part sets it.
  int stored_orientation = 1;
};

/// Decodes an image file, whose format follows from its content, to 1 channel (grey) or 3 (RGB).
/// The pixels are those of Pillow's convert("L") and convert("RGB"), as torchvision's ImageFolder
/// has them: transparency is dropped, an animation gives its first frame, of 16 bits the upper 8
/// are kept, orientation tags are ignored except in TIFF, unless the options apply them. (Pillow
/// clips grey images of 16 bits without transparency at 255, which makes most of them white.)
/// `name` is used in messages. Throws ErrorKind::data.
Image decode_image(std::span<const std::byte> file, const std::string& name, std::int64_t channels,
                   const DecodeOptions& options = {});

/// The part of such a file that `choose` asks for, with the same rules and errors. Of a JPEG hardly
/// more is decoded than the part needs; damage below it is not seen, but that the file is
/// truncated. Where the part need not be exact, grey is a JPEG's own luma: that of its RGB pixels
/// differs where these were clipped, and by rounding.
Image decode_part(std::span<const std::byte> file, const std::string& name, std::int64_t channels,
                  const ChoosePart& choose, const DecodeOptions& options = {});

/// Examines a file that decode_image reads with `applies_orientation`. Throws ErrorKind::data.
FileFacts facts_of_file(std::span<const std::byte> file, const std::string& name,
                        bool applies_orientation);

/// Returns the part of a decoded image that `choose` asks for. `orientation` is as
/// DecodeOptions::stored_orientation.
Image part_of_whole(Image image, const ChoosePart& choose, int orientation);

// The decoders, one per format (datasets/image_formats.h).
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
int jpeg_eighths(const PicturePart& part);

/// A PNG file of an image with 1 or 3 channels.
std::vector<std::byte> encode_png(const Image& image);

/// Fails for an image whose dimensions are out of range, or whose pixels are more than `ratio`
/// times its file's bytes: more than its format can compress.
void check_image_size(const std::string& name, std::int64_t width, std::int64_t height,
                      std::int64_t channels, std::size_t file_bytes, std::int64_t ratio);

}  // namespace dpt
