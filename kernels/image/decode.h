// Image files, and the pixels in them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/image/decode_options.h"
#include "kernels/image/image.h"

namespace dpt {

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

}  // namespace dpt
