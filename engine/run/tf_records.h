// The framing of TensorBoard's files (TFRecord): length, checksum of the length, bytes, checksum of
// the bytes; numbers are little-endian.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace dpt {

/// CRC-32C (Castagnoli), as in RFC 3720.
std::uint32_t crc32c(std::string_view bytes);

/// The checksum as records hold it: rotated, plus a constant, so that a checksum of bytes that hold
/// checksums is a good one.
std::uint32_t masked_crc32c(std::string_view bytes);

/// `payload` as a record.
std::string tf_record(std::string_view payload);

/// Takes the first record off `rest`. False at the end, and where the next record is cut off or
/// damaged: a reader can go no further.
bool next_tf_record(std::string_view& rest, std::string_view& payload);

}  // namespace dpt
