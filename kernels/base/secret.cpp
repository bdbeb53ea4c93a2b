#include "kernels/base/secret.h"

#include <fmt/ranges.h>
#include <sys/random.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/base/error.h"
#include "kernels/base/sha256.h"

namespace dpt {
namespace {

constexpr std::size_t kHashBlock = 64;  // bytes

}  // namespace

std::string random_text(std::size_t bytes) {
  std::vector<unsigned char> data(bytes);
  if (getrandom(data.data(), bytes, 0) != static_cast<ssize_t>(bytes)) {
    fail(ErrorKind::unexpected, "getrandom failed: {}", std::strerror(errno));
  }
  return fmt::format("{:02x}", fmt::join(data, ""));
}

std::string hexadecimal(std::string_view bytes) {
  return fmt::format("{:02x}",
                     fmt::join(std::vector<unsigned char>(bytes.begin(), bytes.end()), ""));
}

bool same_secret(std::string_view a, std::string_view b) {
  unsigned difference = a.size() == b.size() ? 0 : 1;
  // The number of iterations is the length of `a`, the received text. Its sender knows it anyway.
  for (std::size_t i = 0; i < a.size(); ++i) {
    const char other = b.empty() ? '\0' : b[i % b.size()];
    difference |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(other);
  }
  return difference == 0;
}

std::string hmac_sha256(std::string_view key, std::string_view message) {
  std::string block = key.size() > kHashBlock ? sha256(key) : std::string(key);
  block.resize(kHashBlock, '\0');
  std::string inner = block, outer = block;
  for (char& c : inner) c = static_cast<char>(c ^ 0x36);
  for (char& c : outer) c = static_cast<char>(c ^ 0x5c);
  return sha256(outer + sha256(inner.append(message)));
}

std::string connection_proof(std::string_view key, std::string_view purpose, ProofRole role,
                             const ProofEnd& from, const ProofEnd& to) {
  return hmac_sha256(
      key, fmt::format("{}: rank {} {} {} to rank {} {}", purpose, from.rank, from.nonce,
                       role == ProofRole::connects ? "connects" : "accepts", to.rank, to.nonce));
}

}  // namespace dpt
