// Handshake in which the two ends of a connection of the control channel prove to each other that
// they know the token of the run. The token itself is never sent:
//
//     process -> rank 0   greeting   a random number
//     rank 0 -> process   challenge  another random number
//     process -> rank 0   hello      its identity, and its proof
//     rank 0 -> process   welcome    or a refusal with a reason, and rank 0's proof
//
// Rank 0 evaluates nothing in a hello before its proof. A process trusts an answer only with rank
// 0's proof; without one, the answer may come from any program that listens there. Both numbers are
// part of both proofs, so that neither proof can be replayed. Without a token (World::token) the
// proofs do not exclude anyone who speaks dpt's protocol deliberately.
#pragma once

#include <cstdint>
#include <string>

#include <nlohmann/json.hpp>

#include "kernels/base/secret.h"

namespace dpt::control {

/// Returns a new random number for a connection.
std::string new_nonce();

/// Returns true if the text has the form of new_nonce(): nothing else may be part of a proof.
bool is_nonce(const std::string& text);

/// Handshake of one connection, as each end sees it once it has both numbers.
struct Handshake {
  std::string token;
  std::string nonce_of_process, nonce_of_rank_0;

  /// Returns the proof of process `rank` (ProofRole::connects), or that of rank 0 for this process
  /// (ProofRole::accepts).
  std::string proof(ProofRole role, std::int64_t rank) const;
  /// Returns true if `head` contains this proof.
  bool is_proven(const nlohmann::json& head, ProofRole role, std::int64_t rank) const;
};

}  // namespace dpt::control
