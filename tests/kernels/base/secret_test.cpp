// Secrets of processes: RFC 4231's examples of HMAC-SHA-256.
#include "kernels/base/secret.h"

#include <doctest/doctest.h>
#include <fmt/ranges.h>

#include <vector>

namespace dpt {
namespace {

std::string hex(const std::string& bytes) {
  return fmt::format("{:02x}",
                     fmt::join(std::vector<unsigned char>(bytes.begin(), bytes.end()), ""));
}

TEST_CASE("HMAC-SHA-256 gives the values of RFC 4231") {
  CHECK(hex(hmac_sha256(std::string(20, '\x0b'), "Hi There")) ==
        "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  CHECK(hex(hmac_sha256("Jefe", "what do ya want for nothing?")) ==
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  CHECK(hex(hmac_sha256(std::string(20, '\xaa'), std::string(50, '\xdd'))) ==
        "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
  // A key longer than a block is hashed first.
  CHECK(hex(hmac_sha256(std::string(131, '\xaa'),
                        "Test Using Larger Than Block-Size Key - Hash Key First")) ==
        "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
  CHECK(hex(hmac_sha256(std::string(131, '\xaa'),
                        "This is a test using a larger than block-size key and a larger than "
                        "block-size data. The key needs to be hashed before being used by the "
                        "HMAC algorithm.")) ==
        "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2");
  // Padding that just fits into a block, and padding that just does not (Python's hmac).
  CHECK(hex(hmac_sha256("", std::string(55, 'x'))) ==
        "9f1c3c9a24122d4c2b05ca8e592d7062631f20915bd3a2742a46870efe738731");
  CHECK(hex(hmac_sha256("", std::string(56, 'x'))) ==
        "c5d1f92f84cfc270242e57f5eb58b7926b6f13a6a9df97113ae679829e3d6602");
  CHECK(hex(hmac_sha256("", "")) ==
        "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad");
}

TEST_CASE("Secrets are equal only if every byte is") {
  CHECK(same_secret("", ""));
  CHECK(same_secret("abc", "abc"));
  for (const char* other : {"", "ab", "abcd", "abd", "bbc", "abcabc"}) {
    CHECK_FALSE(same_secret("abc", other));
    CHECK_FALSE(same_secret(other, "abc"));
  }
}

TEST_CASE("Random texts have as many digits as asked for, and differ") {
  const std::string one = random_text(16), other = random_text(16);
  CHECK(one.size() == 32);
  CHECK(one.find_first_not_of("0123456789abcdef") == std::string::npos);
  CHECK(one != other);
}

}  // namespace
}  // namespace dpt
