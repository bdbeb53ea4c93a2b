// Secrets shared by processes: generating them, comparing them, and proving that one knows a secret
// without revealing it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace dpt {

/// Returns `bytes` of the system's random bytes as hexadecimal digits. Throws ErrorKind::unexpected
/// if the system has no source of random bytes.
std::string random_text(std::size_t bytes);

/// Returns true if `a` and `b` are equal. Takes a time that does not depend on the position of a
/// difference. `a` is the received text.
bool same_secret(std::string_view a, std::string_view b);

/// Returns the 32 bytes of HMAC-SHA-256 (RFC 2104, FIPS 180-4). Only a holder of `key` can compute
/// them for a new message. Any thread may call it.
std::string hmac_sha256(std::string_view key, std::string_view message);

/// One end of a connection: the rank of its process, and a random number (random_text) that makes
/// proofs valid for this connection only.
struct ProofEnd {
  int rank = 0;
  std::string_view nonce;
};

/// Role of the end that gives a proof. The proofs of the two ends differ, so that neither can echo
/// the proof that it received.
enum class ProofRole { connects, accepts };

/// Returns 32 bytes that prove that one end of a connection knows `key`. The end `from` opened the
/// connection to the end `to`; `role` says which of them gives the proof. `purpose` separates
/// proofs of different kinds of connections. No part may contain a space.
std::string connection_proof(std::string_view key, std::string_view purpose, ProofRole role,
                             const ProofEnd& from, const ProofEnd& to);

/// Returns the bytes as lower-case hexadecimal digits.
std::string hexadecimal(std::string_view bytes);

}  // namespace dpt
