#include "engine/processes/control_handshake.h"

namespace dpt::control {
namespace {

constexpr std::size_t kNonceBytes = 16;

}  // namespace

std::string new_nonce() {
  return random_text(kNonceBytes);
}

bool is_nonce(const std::string& text) {
  return text.size() == 2 * kNonceBytes &&
         text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

std::string Handshake::proof(ProofRole role, std::int64_t rank) const {
  return hexadecimal(connection_proof(token, "dpt control", role,
                                      {static_cast<int>(rank), nonce_of_process},
                                      {0, nonce_of_rank_0}));
}

bool Handshake::is_proven(const nlohmann::json& head, ProofRole role, std::int64_t rank) const {
  const auto at = head.find("proof");
  return at != head.end() && at->is_string() &&
         same_secret(at->get<std::string>(), proof(role, rank));
}

}  // namespace dpt::control
