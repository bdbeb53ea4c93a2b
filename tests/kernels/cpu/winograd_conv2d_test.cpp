// Winograd convolutions on random descriptions, and the choice of descriptions that use them.
#include "kernels/cpu/winograd_conv2d.h"

#include "tests/kernels/cpu/own_conv2d_checks.h"
#include "tests/support/skip.h"

namespace dpt::testing {

TEST_CASE("Winograd's convolutions of random shapes equal the reference") {
  const CpuFeatures detected = CpuFeatures::detect();
  if (!detected.avx2) {
    testing::skip_test("this processor has no AVX2");
    return;
  }
  const auto backend = make_cpu_backend(1);
  CpuFeatures avx2;
  avx2.avx2 = true;
  for (const CpuFeatures& features : {detected, avx2}) {
    for (std::uint64_t seed = 0; seed < 40; ++seed) {
      const Conv2dDesc d = random_winograd_conv(seed);
      for (const int threads : {1, 3}) {
        check_against_reference(*backend, d, random_conv_data(d, 300 + seed), make_winograd_conv2d,
                                features, threads);
      }
    }
  }
}

TEST_CASE("Winograd's convolutions give a sample the same bits in any batch") {
  if (!CpuFeatures::detect().avx2) return;
  Conv2dDesc d = conv_case(3, {13, 13, 32}, 48, {3, 3}, {1, 1}, {1, 1});
  d.relu = true;
  check_bits_in_any_batch(d, make_winograd_conv2d);
}

TEST_CASE("Descriptions that Winograd's convolution takes") {
  CpuFeatures features = CpuFeatures::detect();
  if (!features.avx2) return;
  features.amd = false;
  const auto takes = [&](const Conv2dDesc& d) {
    return make_winograd_conv2d(d, CpuTarget{1, features}) != nullptr;
  };
  const Conv2dDesc fine = conv_case(8, {8, 8, 64}, 64, {3, 3}, {1, 1}, {1, 1});
  CHECK(takes(fine));
  CHECK(!make_winograd_conv2d(fine, CpuTarget{}));
  // Too few channels or tiles.
  CHECK(!takes(conv_case(8, {8, 8, 16}, 64, {3, 3}, {1, 1}, {1, 1})));
  CHECK(!takes(conv_case(8, {8, 8, 64}, 16, {3, 3}, {1, 1}, {1, 1})));
  CHECK(!takes(conv_case(1, {8, 8, 64}, 64, {3, 3}, {1, 1}, {1, 1})));
  CHECK(!takes(conv_case(31, {2, 2, 64}, 64, {3, 3}, {1, 1}, {1, 1})));
  CHECK(takes(conv_case(32, {2, 2, 64}, 64, {3, 3}, {1, 1}, {1, 1})));
  CHECK(!takes(conv_case(31, {4, 4, 512}, 512, {3, 3}, {1, 1}, {1, 1})));
  CHECK(takes(conv_case(32, {4, 4, 512}, 512, {3, 3}, {1, 1}, {1, 1})));
  // Each thread needs samples of its own.
  CHECK(make_winograd_conv2d(fine, CpuTarget{4, features}));
  CHECK(!make_winograd_conv2d(fine, CpuTarget{5, features}));
  // Sixteen channels are worthwhile only on AMD processors with AVX-512.
  const Conv2dDesc narrow = conv_case(8, {32, 32, 16}, 16, {3, 3}, {1, 1}, {1, 1});
  CHECK(!takes(narrow));
  CpuFeatures amd = features;
  amd.amd = true;
  CHECK((make_winograd_conv2d(narrow, CpuTarget{1, amd}) != nullptr) == amd.avx512);
  // Other kinds of convolutions.
  CHECK(!takes(conv_case(8, {8, 8, 40}, 64, {3, 3}, {1, 1}, {1, 1})) == features.avx512);
  CHECK(!takes(conv_case(8, {8, 8, 64}, 64, {3, 3}, {2, 2}, {1, 1})));
  CHECK(!takes(conv_case(8, {8, 8, 64}, 64, {3, 1}, {1, 1}, {1, 0})));
  CHECK(!takes(conv_case(8, {8, 8, 64}, 64, {3, 3}, {1, 1}, {1, 1}, {2, 2})));
  CHECK(!takes(conv_case(8, {8, 8, 64}, 64, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 2)));
  CHECK(!takes(with_pool(fine, PoolKind::max, {2, 2}, {2, 2})));
  // In bf16, only where oneDNN has no AMX.
  Conv2dDesc half = fine;
  half.type = DType::bf16;
  features.amx = false;
  CHECK(takes(half) == features.avx512_bf16);
  features.amx = true;
  CHECK(!takes(half));
}

}  // namespace dpt::testing
