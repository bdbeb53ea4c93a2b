// SHA-256 (FIPS 180-4).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace dpt {

/// Computes the SHA-256 of bytes that arrive in parts.
class Sha256 {
 public:
  void add(std::string_view bytes);
  /// Returns the 32 bytes of the hash. Nothing may be added afterwards.
  std::string finish();

 private:
  void add_block(const char* block);

  std::array<std::uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                         0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::uint64_t size_ = 0;
  std::string rest_;  ///< bytes that do not fill a block yet
};

/// Returns the 32 bytes of the hash of a text.
std::string sha256(std::string_view text);

}  // namespace dpt
