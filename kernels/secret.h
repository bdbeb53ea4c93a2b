// Secrets that processes share: drawing them, comparing them, and proving knowledge of one without
// revealing it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace dpt {

/// Returns `bytes` random bytes of the system in hexadecimal digits. Throws ErrorKind::unexpected
/// if the system has none.
std::string random_text(std::size_t bytes);

/// Returns true if the two are equal, in a time that does not depend on where they differ.
bool same_secret(std::string_view a, std::string_view b);

/// Returns the 32 bytes of HMAC-SHA-256 (RFC 2104, FIPS 180-4): only a holder of `key` can compute
/// them for a message that was not seen before. Any thread may call it.
std::string hmac_sha256(std::string_view key, std::string_view message);

}  // namespace dpt
