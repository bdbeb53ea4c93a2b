// SHA-256: the examples of FIPS 180-4, added in arbitrary parts.
#include "kernels/base/sha256.h"

#include <doctest/doctest.h>

#include "kernels/base/secret.h"

using namespace dpt;

TEST_CASE("sha256 gives the values of FIPS 180-4") {
  CHECK(hexadecimal(sha256("")) ==
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(hexadecimal(sha256("abc")) ==
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(hexadecimal(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")) ==
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  CHECK(hexadecimal(sha256(std::string(1'000'000, 'a'))) ==
        "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST_CASE("sha256 does not depend on the parts in which bytes are added") {
  const std::string text(300, 'x');
  for (const std::size_t part : {1, 7, 55, 63, 64, 65, 128, 299}) {
    Sha256 hash;
    for (std::size_t at = 0; at < text.size(); at += part) hash.add(text.substr(at, part));
    CHECK(hash.finish() == sha256(text));
  }
}
