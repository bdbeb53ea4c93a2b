// Decoding of image files into pixels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/image/decode_options.h"
#include "kernels/image/image.h"

namespace dpt {

/// Decodes an image file to 1 channel (grey) or 3 (RGB). Detects the format from the file's
/// content. The pixels equal those of Pillow's convert("L") and convert("RGB"), as in torchvision's
/// ImageFolder. Transparency is dropped, an animation gives its first frame, and 16-bit values keep
/// their upper 8 bits. Orientation tags are ignored except in TIFF, unless the options apply them.
/// (For grey images of 16 bits without transparency, Pillow clips at 255 instead, which makes most
/// of them white.) `name` is used in messages. Throws ErrorKind::data.
Image decode_image(std::span<const std::byte> file, const std::string& name, std::int64_t channels,
                   const DecodeOptions& options = {});

/// Decodes the part of an image file that `choose` requests, with the rules and errors of
/// decode_image. Decodes little more of a JPEG than the part needs, so that damage below the part
/// is only detected if the file is truncated. If the part need not be exact, grey is a JPEG's own
/// luma. It differs from the luma of the RGB pixels by rounding, and where these were clipped.
Image decode_part(std::span<const std::byte> file, const std::string& name, std::int64_t channels,
                  const ChoosePart& choose, const DecodeOptions& options = {});

/// Returns the facts of a file for decode_image with this `applies_orientation`. Throws
/// ErrorKind::data.
FileFacts facts_of_file(std::span<const std::byte> file, const std::string& name,
                        bool applies_orientation);

}  // namespace dpt
