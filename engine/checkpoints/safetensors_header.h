// Strict reader and writer of the JSON header of a safetensors file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/checkpoints/tensor_file.h"
#include "engine/checkpoints/tensor_view.h"

namespace dpt {

/// Limit of the format.
inline constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;
inline constexpr const char* kIntegrityName = "dpt.integrity";

struct SafetensorsHeader {
  Metadata metadata;
  std::vector<TensorEntry> tensors;  ///< in the order of the data section
};

/// Parses a header and checks it completely: syntax, duplicate keys, names, dtypes, shapes, and
/// that the tensors fill the `data_bytes` after the header without holes or overlaps. Throws
/// ErrorKind::data; `path` is for the message.
SafetensorsHeader parse_safetensors_header(const std::string& path, std::string_view json,
                                           std::uint64_t data_bytes);

/// Returns the header of `tensors`, which follow each other in this order. It is padded with spaces
/// so that the data begins at a multiple of 8. Throws ErrorKind::data for names or metadata that
/// are not UTF-8, and for an unknown dtype or a bad name.
std::string format_safetensors_header(const std::string& path, const Metadata& metadata,
                                      const std::vector<TensorView>& tensors);

/// Returns the defect of a tensor's name, or an empty string.
std::string name_defect(const std::string& name);

/// Returns the number of bytes of one element, or 0 for an unknown dtype.
std::uint64_t dtype_bytes(std::string_view dtype);

/// Computes the number of bytes of a tensor. Returns false if it overflows.
bool tensor_bytes(std::string_view dtype, const std::vector<std::int64_t>& shape,
                  std::uint64_t& bytes);

}  // namespace dpt
