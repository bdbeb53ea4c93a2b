// Direct convolutions on random descriptions, fused pooling, and the descriptions left to the
// library.
#include "kernels/cpu/direct_conv2d.h"

#include <limits>

#include "tests/kernels/cpu/own_conv2d_checks.h"
#include "tests/support/skip.h"

namespace dpt::testing {
TEST_CASE("Direct convolutions of random shapes equal the reference") {
  if (!CpuFeatures::detect().avx2) {
    testing::skip_test("this processor has no AVX2");
    return;
  }
  const auto backend = make_cpu_backend(1);
  for (std::uint64_t seed = 0; seed < 120; ++seed) {
    const Conv2dDesc d = random_direct_conv(seed);
    for (const int threads : {1, 3}) {
      check_against_reference(*backend, d, random_conv_data(d, 100 + seed), make_direct_conv2d,
                              CpuFeatures::detect(), threads);
    }
  }
  for (Conv2dDesc d : long_direct_convs()) {
    d.relu = true;
    check_against_reference(*backend, d, random_conv_data(d, 7), make_direct_conv2d);
    d = with_pool(d, PoolKind::max, {2, 2}, {2, 2});
    check_against_reference(*backend, d, random_conv_data(d, 8), make_direct_conv2d);
  }
}

TEST_CASE("Direct convolutions give a sample the same bits in any batch") {
  if (!CpuFeatures::detect().avx2) return;
  Conv2dDesc d = conv_case(3, {13, 13, 20}, 50, {5, 5});
  d.relu = true;
  check_bits_in_any_batch(with_pool(d, PoolKind::average, {2, 2}, {2, 2}), make_direct_conv2d);
}

TEST_CASE("Fused pooling is the convolution and then the pool, to the bit") {
  if (!CpuFeatures::detect().avx2) return;
  const auto backend = make_cpu_backend(1);
  for (const PoolKind kind : {PoolKind::max, PoolKind::average}) {
    Conv2dDesc plain = conv_case(2, {9, 10, 3}, 21, {3, 3});
    plain.relu = true;
    const Conv2dDesc fused = with_pool(plain, kind, {2, 2}, {2, 2});
    const ConvData data = random_conv_data(fused, 3);
    const auto one = make_direct_conv2d(plain, CpuTarget{1, CpuFeatures::detect()}, Prefer::ours);
    const auto both = make_direct_conv2d(fused, CpuTarget{1, CpuFeatures::detect()});
    OpRunner first(*backend, *one, data.x, data.weight, data.bias,
                   plain.batch * plain.out.elements());
    OpRunner second(*backend, *both, data.x, data.weight, data.bias,
                    fused.batch * fused.out.elements());
    const std::vector<float> z = first.forward();
    check_close("y", second.forward(), reference::pool(*fused.pool, to_double(z)), 1e-7);
  }
}

TEST_CASE("A NaN goes through convolution, ReLU and pooling") {
  if (!CpuFeatures::detect().avx2) return;
  const auto backend = make_cpu_backend(1);
  for (const PoolKind kind : {PoolKind::max, PoolKind::average}) {
    for (const bool relu : {false, true}) {
      Conv2dDesc d = conv_case(1, {5, 5, 2}, 9, {2, 2});
      d.relu = relu;
      d = with_pool(d, kind, {2, 2}, {2, 2});
      for (std::size_t at : {0U, 12U, 24U}) {
        ConvData data = random_conv_data(d, 5);
        data.x[at] = std::numeric_limits<float>::quiet_NaN();
        check_against_reference(*backend, d, data, make_direct_conv2d);
      }
    }
  }
}

TEST_CASE("Descriptions that the direct convolutions leave to the library") {
  const CpuTarget target{1, CpuFeatures::detect()};
  const Conv2dDesc fine = conv_case(1, {8, 8, 4}, 8, {3, 3});
  CHECK(!make_direct_conv2d(fine, CpuTarget{}));
  CHECK(!make_direct_conv2d(conv_case(1, {8, 8, 4}, 8, {3, 3}, {1, 1}, {0, 0}, {1, 1}, 2), target));
  CHECK(!make_direct_conv2d(conv_case(1, {8, 8, 4}, 8, {3, 3}, {1, 1}, {0, 0}, {2, 2}), target));
  CHECK(!make_direct_conv2d(with_pool(fine, PoolKind::max, {3, 3}, {2, 2}), target));
  Conv2dDesc half = fine;
  half.type = DType::bf16;
  CpuTarget other = target;
  other.features.amx = false;
  CHECK((make_direct_conv2d(half, other) != nullptr) == target.features.avx512_bf16);
  other.features.amx = true;
  CHECK(!make_direct_conv2d(half, other));
  if (!target.features.avx2) return;

  // Each thread needs samples of its own.
  Conv2dDesc four = fine;
  four.batch = 4;
  CHECK(make_direct_conv2d(four, CpuTarget{2, target.features}));
  CHECK(!make_direct_conv2d(four, CpuTarget{3, target.features}));

  // Padding as wide as the kernel is refused.
  const auto with = [&](Size2 kernel, Size2 padding) {
    return make_direct_conv2d(conv_case(1, {8, 8, 4}, 8, kernel, {1, 1}, padding), target) !=
           nullptr;
  };
  CHECK(with({3, 3}, {2, 2}));
  CHECK(!with({3, 3}, {3, 2}));
  CHECK(!with({3, 3}, {2, 3}));
  CHECK(!with({1, 1}, {1, 1}));

  // Channels that fill whole vectors are left to the library, unless a pool is fused or the caller
  // insists.
  const auto channels = [&](std::int64_t in, std::int64_t out) {
    return make_direct_conv2d(conv_case(1, {8, 8, in}, out, {3, 3}), target) != nullptr;
  };
  CHECK(channels(4, 8));
  CHECK(channels(8, 4));
  CHECK(channels(9, 9));
  CHECK(!channels(8, 8));
  CHECK(!channels(16, 32));
  const Conv2dDesc whole = conv_case(1, {8, 8, 8}, 8, {3, 3});
  CHECK(make_direct_conv2d(whole, target, Prefer::ours));
  CHECK(make_direct_conv2d(with_pool(whole, PoolKind::max, {2, 2}, {2, 2}), target));

  // Pools other than 2x2 with stride 2 over complete windows are refused.
  for (const PoolKind kind : {PoolKind::max, PoolKind::average}) {
    const Conv2dDesc pooled = with_pool(fine, kind, {2, 2}, {2, 2});
    CHECK(make_direct_conv2d(pooled, target));
    CHECK(!make_direct_conv2d(with_pool(fine, kind, {2, 3}, {2, 2}), target));
    CHECK(!make_direct_conv2d(with_pool(fine, kind, {2, 2}, {2, 1}), target));
    CHECK(!make_direct_conv2d(with_pool(fine, kind, {2, 2}, {2, 2}, {0, 1}), target));
    Conv2dDesc odd = pooled;
    odd.pool->dilation = {1, 2};
    CHECK(!make_direct_conv2d(odd, target));
    // ceil_mode makes the last windows extend beyond the input.
    odd = with_pool(conv_case(1, {9, 9, 4}, 8, {3, 3}), kind, {2, 2}, {2, 2});
    REQUIRE(odd.out.h == 3);
    CHECK(make_direct_conv2d(odd, target));
    odd.out.h = odd.pool->out.h = 4;
    CHECK(!make_direct_conv2d(odd, target));
    odd.out.h = odd.pool->out.h = 3;
    odd.out.w = odd.pool->out.w = 4;
    CHECK(!make_direct_conv2d(odd, target));
  }
  Conv2dDesc divided = with_pool(fine, PoolKind::average, {2, 2}, {2, 2});
  divided.pool->divisor_override = 4;
  CHECK(make_direct_conv2d(divided, target));
  divided.pool->divisor_override = 5;
  CHECK(!make_direct_conv2d(divided, target));
}

}  // namespace dpt::testing
