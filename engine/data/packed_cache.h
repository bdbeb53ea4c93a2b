// A file of decoded images, which reads like the data set it was made of: for runs whose speed is
// that of decoding. Made once, mapped into memory, shared by ranks, processes and runs.
//
// The file: "dptpack1"; the images' bytes, one after another, (height, width, channels); the
// index, an entry of 24 bytes for each sample (offset u64, height u32, width u32, label i32, the
// low half of the pixels' XXH3 u32); a header as JSON (fingerprint of the data, shorter side,
// salvage, exif_orientation, channels, samples); its length u64; the XXH3 of index and header u64;
// "dptpack1". Numbers are little-endian. An unreadable sample has height 0; reading it gives the
// error of its file.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "engine/data/source.h"

namespace dpt {

struct PackedCacheOptions {
  std::string path;
  /// Images whose shorter side is longer are resized to it; 0 = they are kept as they are.
  std::int64_t shorter_side = 0;
  bool applies_orientation =
      false;             ///< `source` turns images as the orientation in their file says
  bool salvage = false;  ///< true if damaged images are used as far as they can be decoded
  int threads = 1;       ///< that decode, where the file is made
  /// Gets a line now and then while the file is made or another process makes it.
  std::function<void(const std::string&)> info = {};
};

/// `source` out of the cache, which is made first where it is missing: completely, or not at all.
/// Throws ErrorKind::data for a file that is damaged or was made of other data or another shorter
/// side, naming both, and where it cannot be written. REQUIRES: source->type() is u8.
std::shared_ptr<const DataSource> with_packed_cache(std::shared_ptr<const DataSource> source,
                                                    const PackedCacheOptions& options);

}  // namespace dpt
