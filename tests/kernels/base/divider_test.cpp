// Division by multiplication, on which index arithmetic on GPUs relies.
#include <doctest/doctest.h>

#include <vector>

#include "kernels/base/divide.h"
#include "kernels/base/philox.h"

namespace dpt::testing {
namespace {

TEST_CASE("a Divider divides exactly") {
  constexpr std::uint32_t kMax = 0x7fffffff;
  std::vector<std::uint32_t> divisors = {1, 2, 3, 5, 7, 13, 20, 50, 641, 65535, 65536, 65537};
  for (int bit = 20; bit < 31; ++bit) {
    divisors.push_back((1U << bit) - 1);
    divisors.push_back(1U << bit);
    divisors.push_back((1U << bit) + 1);
  }
  divisors.push_back(kMax);
  for (std::uint32_t i = 0; i < 200; ++i) {
    const philox::Block bits = philox::block(1, philox::Use::init, i, 0);
    divisors.push_back((bits.v[0] >> 1 >> bits.v[1] % 30) + 1);
  }
  std::size_t wrong = 0;
  for (const std::uint32_t d : divisors) {
    const Divider divider(d);
    const auto check = [&](std::uint32_t n) {
      std::uint32_t rest = n;
      if (divider.quotient(n) != n / d || divider.split(rest) != n / d || rest != n % d) ++wrong;
    };
    // A wrong factor shows first at the largest multiples, and just below them.
    const std::uint32_t last = kMax / d * d;
    for (std::uint32_t n : {0U, 1U, d - 1, d, last - 1, last, kMax}) check(n);
    for (std::uint32_t i = 0; i < 500; ++i) {
      const std::uint32_t n = philox::block(2, philox::Use::init, i, d).v[0] >> 1;
      check(n);
      check(n / d * d);
      if (n >= d) check(n / d * d - 1);
    }
  }
  CHECK(wrong == 0);
}

}  // namespace
}  // namespace dpt::testing
