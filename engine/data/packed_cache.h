// A file of decoded images that reads like the data set from which it was made, for runs whose
// speed is limited by decoding. Written once, mapped into memory, shared by ranks, processes and
// runs.
//
// The file: "dptpack1"; the images' bytes, one after another, (height, width, channels); the
// index, an entry of 24 bytes for each sample (offset u64, height u32, width u32, label i32, the
// low half of the pixels' XXH3 u32); a header as JSON (fingerprint of the data, shorter side,
// salvage, exif_orientation, channels, samples); its length u64; the XXH3 of index and header u64;
// "dptpack1". Numbers are little-endian. An unreadable sample has height 0; reading it throws the
// error of its own file.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "engine/data/source.h"

namespace dpt {

struct PackedCacheOptions {
  std::string path;
  /// Images whose shorter side is longer than this are resized to it; 0 = images keep their size.
  std::int64_t shorter_side = 0;
  bool applies_orientation =
      false;             ///< true if `source` turns images as their EXIF orientation says
  bool salvage = false;  ///< true if damaged images are used as far as they can be decoded
  int threads = 1;       ///< number of decoder threads that make the file
  /// Receives progress lines while this or another process makes the file.
  std::function<void(const std::string&)> info = {};
};

/// Returns a data set that reads `source` from the cache. If the cache is missing, makes it first:
/// completely, or not at all. Throws ErrorKind::data if it cannot be written, is damaged, or was
/// made from other data or with another shorter side (the error states both). REQUIRES:
/// source->type() is u8.
std::shared_ptr<const DataSource> with_packed_cache(std::shared_ptr<const DataSource> source,
                                                    const PackedCacheOptions& options);

}  // namespace dpt
