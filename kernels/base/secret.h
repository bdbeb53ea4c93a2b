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

/// End of a connection: the rank of its process, and a random number (random_text) that makes
/// proofs valid for this connection only.
struct ProofEnd {
  int rank = 0;
  std::string_view nonce;
};

/// Role of the end that gives a proof. The two proofs of a connection differ, so that neither end
/// can return the one it was given.
enum class ProofRole { connects, accepts };

/// Returns the proof, 32 bytes, that an end of a connection from `from` to `to` knows `key`.
/// `purpose` keeps proofs of other kinds of connections apart; no part may contain a space.
std::string connection_proof(std::string_view key, std::string_view purpose, ProofRole role,
                             const ProofEnd& from, const ProofEnd& to);

/// Returns the bytes in hexadecimal digits, in lower case.
std::string hexadecimal(std::string_view bytes);

}  // namespace dpt
