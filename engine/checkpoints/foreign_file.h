// Descriptions of files of other programs, and of failed downloads, that are given instead of a
// safetensors file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace dpt {

/// Number of bytes at the beginning of a file that describe_foreign_file examines.
inline constexpr std::size_t kForeignHeadBytes = 4096;

/// Describes a file that is not a safetensors file, and how to convert it to one: "a PyTorch file
/// (torch.save). ..."; empty if its kind is unknown. `head` holds its first bytes, up to
/// kForeignHeadBytes; the name in `path` serves only to distinguish kinds with the same beginning.
std::string describe_foreign_file(const std::string& path, std::string_view head);

/// Returns true for the beginning of a PyTorch zip archive, which may hold TorchScript.
bool is_torch_archive(std::string_view head);

/// Content of a PyTorch file that dpt does not read.
enum class TorchContent : std::uint8_t {
  pickle,   ///< tensors, in the format before the zip archive
  objects,  ///< Python objects, such as a whole model
  script    ///< TorchScript
};

/// Returns instructions for converting such a file, to append to a description of the file: ".
/// Convert the weights in Python:" and the lines.
std::string torch_conversion(const std::string& path, TorchContent content);

}  // namespace dpt
