// Record format of TensorBoard's files (TFRecord): length, checksum of the length, bytes, checksum
// of the bytes. Numbers are little-endian.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace dpt {

/// Returns the CRC-32C (Castagnoli), as in RFC 3720.
std::uint32_t crc32c(std::string_view bytes);

/// Returns the checksum as stored in records: rotated, plus a constant, so that checksums of data
/// that contains checksums remain effective.
std::uint32_t masked_crc32c(std::string_view bytes);

/// Returns `payload` as a record.
std::string tf_record(std::string_view payload);

/// Removes the first record from `rest`. Returns false at the end, and if the next record is
/// truncated or damaged, so that reading cannot continue.
bool next_tf_record(std::string_view& rest, std::string_view& payload);

}  // namespace dpt
