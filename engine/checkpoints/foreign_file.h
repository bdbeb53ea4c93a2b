// Files of other programs, and failed downloads, that are given instead of a safetensors file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace dpt {

/// Number of bytes at the beginning of a file that describe_foreign_file looks at.
inline constexpr std::size_t kForeignHeadBytes = 4096;

/// Describes a file that is not a safetensors file, and how to get one from it: "a PyTorch file
/// (torch.save). ..."; empty if its kind is unknown. `head` holds its first bytes, up to
/// kForeignHeadBytes; the name in `path` decides only between kinds that begin alike.
std::string describe_foreign_file(const std::string& path, std::string_view head);

/// Returns true for the beginning of a zip archive of PyTorch, which may be TorchScript's.
bool is_torch_archive(std::string_view head);

/// Content of a file of PyTorch that dpt does not read.
enum class TorchContent : std::uint8_t {
  pickle,   ///< tensors, in the format before the zip archive
  objects,  ///< Python objects, such as a whole model
  script    ///< TorchScript
};

/// Returns how to convert such a file, to follow what was found: ". Convert the weights in Python:"
/// and the lines.
std::string torch_conversion(const std::string& path, TorchContent content);

}  // namespace dpt
