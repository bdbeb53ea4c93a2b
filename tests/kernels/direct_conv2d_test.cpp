// Our own convolutions on random descriptions against the double-precision reference, and what they
// promise beyond it: equal bits on repetition and for a sample whatever its neighbours.
#include <doctest/doctest.h>

#include <cstring>
#include <limits>

#include "kernels/cpu/direct.h"
#include "kernels/devices.h"
#include "tests/kernels/cases.h"
#include "tests/support/close.h"
#include "tests/support/op_runner.h"
#include "tests/support/reference.h"
#include "tests/support/skip.h"

namespace dpt::testing {
namespace {

struct Data {
  std::vector<float> x, weight, bias, dy;
};

Data random_data(const Conv2dDesc& d, std::uint64_t seed) {
  return {random_values(d.batch * d.in.elements(), seed), random_values(weight_count(d), seed + 1),
          d.bias ? random_values(d.conv_out.c, seed + 2) : std::vector<float>(),
          random_values(d.batch * d.out.elements(), seed + 3)};
}

using Maker = std::unique_ptr<Op> (*)(const Conv2dDesc&, const CpuFeatures&, Prefer);

void check_against_reference(Backend& backend, const Conv2dDesc& d, const Data& data,
                             const CpuFeatures& features = CpuFeatures::detect(),
                             Maker make = make_direct_conv2d) {
  const auto op = make(d, features, Prefer::ours);
  REQUIRE(op);
  INFO(text(d), " by ", op->implementation());
  OpRunner runner(backend, *op, data.x, data.weight, data.bias, d.batch * d.out.elements());
  const auto x = to_double(data.x), weight = to_double(data.weight), bias = to_double(data.bias);
  const auto dy = to_double(data.dy);
  check_close("y", runner.forward(), reference::conv2d(d, x, weight, bias), 1e-5);
  auto want = reference::conv2d_backward(d, x, weight, bias, dy);
  const OpResult got = runner.backward(data.dy);
  check_close("dx", got.dx, want.x, 1e-5);
  check_close("dweight", got.dweight, want.weight, 1e-5);
  check_close("dbias", got.dbias, want.bias, 1e-5);
  const std::vector<float> again = runner.forward();
  CHECK(same_bits(again, got.y));
  const OpResult added = runner.backward(data.dy, GradWrite::add);
  CHECK(same_bits(added.dx, got.dx));
  for (std::size_t i = 0; i < want.weight.size(); ++i) want.weight[i] += want.weight[i];
  for (std::size_t i = 0; i < want.bias.size(); ++i) want.bias[i] += want.bias[i];
  check_close("added dweight", added.dweight, want.weight, 1e-5);
  check_close("added dbias", added.dbias, want.bias, 1e-5);
  const OpResult third = runner.backward(data.dy);
  CHECK(same_bits(third.dweight, got.dweight));
  CHECK(same_bits(third.dbias, got.dbias));
}

/// Random descriptions within what the kernels take: odd sizes, tails, strides, borders.
Conv2dDesc random_desc(std::uint64_t seed) {
  std::uint64_t draw = 0;
  const auto pick = [&](std::int64_t from, std::int64_t to) {
    const auto bits = philox::block(seed, philox::Use::split, draw++, 0).v[0];
    return from + philox::below(bits, static_cast<std::uint32_t>(to - from + 1));
  };
  const Size2 kernel{pick(1, 5), pick(1, 5)};
  const Size2 padding{pick(0, kernel.h - 1), pick(0, kernel.w - 1)};
  const Size2 stride{pick(1, 3), pick(1, 3)};
  const SampleShape in{pick(kernel.h + 1, 14), pick(kernel.w + 1, 20), pick(1, 27)};
  Conv2dDesc d = conv_case(pick(1, 4), in, pick(1, 60), kernel, stride, padding);
  d.bias = pick(0, 3) > 0;
  d.relu = pick(0, 1) > 0;
  if (d.conv_out.h >= 2 && d.conv_out.w >= 2 && pick(0, 1) > 0) {
    d = with_pool(d, pick(0, 1) > 0 ? PoolKind::max : PoolKind::average, {2, 2}, {2, 2});
  }
  return d;
}

}  // namespace

TEST_CASE("Direct convolutions of random shapes equal the reference") {
  if (!CpuFeatures::detect().avx2) {
    testing::skip_test("this processor has no AVX2");
    return;
  }
  const auto backend = make_cpu_backend(1);
  for (std::uint64_t seed = 0; seed < 120; ++seed) {
    const Conv2dDesc d = random_desc(seed);
    check_against_reference(*backend, d, random_data(d, 100 + seed));
  }
  // Depths and widths where the kernel's rows are taken in several visits, or cannot be.
  for (Conv2dDesc d : {conv_case(1, {8, 8, 64}, 40, {3, 3}, {1, 1}, {1, 1}),
                       conv_case(1, {6, 100, 64}, 24, {3, 3}, {1, 1}, {1, 1}),
                       conv_case(2, {13, 13, 20}, 50, {5, 5})}) {
    d.relu = true;
    check_against_reference(*backend, d, random_data(d, 7));
    d = with_pool(d, PoolKind::max, {2, 2}, {2, 2});
    check_against_reference(*backend, d, random_data(d, 8));
  }
}

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
      std::uint64_t draw = 0;
      const auto pick = [&](std::int64_t from, std::int64_t to) {
        const auto bits = philox::block(seed, philox::Use::split, draw++, 1).v[0];
        return from + philox::below(bits, static_cast<std::uint32_t>(to - from + 1));
      };
      const Size2 padding{pick(0, 2), pick(0, 2)};
      // Odd and even sizes; blocks that end in the middle of an image.
      const SampleShape in{pick(3 - padding.h, 13), pick(3 - padding.w, 17), 16 * pick(1, 4)};
      Conv2dDesc d = conv_case(pick(1, 9), in, 16 * pick(1, 5), {3, 3}, {1, 1}, padding);
      d.bias = pick(0, 1) > 0;
      d.relu = pick(0, 1) > 0;
      check_against_reference(*backend, d, random_data(d, 300 + seed), features,
                              make_winograd_conv2d);
    }
  }
}

void check_bits_in_any_batch(Conv2dDesc d, Maker make) {
  const auto backend = make_cpu_backend(1);
  const Data data = random_data(d, 1);
  const auto three = make(d, CpuFeatures::detect(), Prefer::ours);
  OpRunner all(*backend, *three, data.x, data.weight, data.bias, d.batch * d.out.elements());
  all.forward();
  const OpResult want = all.backward(data.dy);
  d.batch = 1;
  if (d.pool) d.pool->batch = 1;
  const auto single = make(d, CpuFeatures::detect(), Prefer::ours);
  const std::int64_t in = d.in.elements(), out = d.out.elements();
  for (std::int64_t n = 0; n < 3; ++n) {
    OpRunner one(*backend, *single, {data.x.begin() + n * in, data.x.begin() + (n + 1) * in},
                 data.weight, data.bias, out);
    const std::vector<float> y = one.forward();
    const OpResult got = one.backward({data.dy.begin() + n * out, data.dy.begin() + (n + 1) * out});
    CHECK(std::memcmp(y.data(), want.y.data() + n * out, y.size() * 4) == 0);
    CHECK(std::memcmp(got.dx.data(), want.dx.data() + n * in, got.dx.size() * 4) == 0);
  }
}

TEST_CASE("Our convolutions give a sample the same bits in any batch") {
  if (!CpuFeatures::detect().avx2) return;
  Conv2dDesc d = conv_case(3, {13, 13, 20}, 50, {5, 5});
  d.relu = true;
  check_bits_in_any_batch(with_pool(d, PoolKind::average, {2, 2}, {2, 2}), make_direct_conv2d);
  d = conv_case(3, {13, 13, 32}, 48, {3, 3}, {1, 1}, {1, 1});
  d.relu = true;
  check_bits_in_any_batch(d, make_winograd_conv2d);
}

TEST_CASE("Fused pooling is the convolution and then the pool, to the bit") {
  if (!CpuFeatures::detect().avx2) return;
  const auto backend = make_cpu_backend(1);
  for (const PoolKind kind : {PoolKind::max, PoolKind::average}) {
    Conv2dDesc plain = conv_case(2, {9, 10, 3}, 21, {3, 3});
    plain.relu = true;
    const Conv2dDesc fused = with_pool(plain, kind, {2, 2}, {2, 2});
    const Data data = random_data(fused, 3);
    const auto one = make_direct_conv2d(plain, CpuFeatures::detect(), Prefer::ours);
    const auto both = make_direct_conv2d(fused, CpuFeatures::detect());
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
        Data data = random_data(d, 5);
        data.x[at] = std::numeric_limits<float>::quiet_NaN();
        check_against_reference(*backend, d, data);
      }
    }
  }
}

TEST_CASE("Descriptions that Winograd's convolution takes") {
  CpuFeatures features = CpuFeatures::detect();
  if (!features.avx2) return;
  features.amd = false;
  const auto takes = [&](const Conv2dDesc& d) {
    return make_winograd_conv2d(d, features) != nullptr;
  };
  const Conv2dDesc fine = conv_case(8, {8, 8, 64}, 64, {3, 3}, {1, 1}, {1, 1});
  CHECK(takes(fine));
  CHECK(!make_winograd_conv2d(fine, CpuFeatures{}));
  // Too few channels or tiles.
  CHECK(!takes(conv_case(8, {8, 8, 16}, 64, {3, 3}, {1, 1}, {1, 1})));
  CHECK(!takes(conv_case(8, {8, 8, 64}, 16, {3, 3}, {1, 1}, {1, 1})));
  CHECK(!takes(conv_case(1, {8, 8, 64}, 64, {3, 3}, {1, 1}, {1, 1})));
  CHECK(!takes(conv_case(31, {2, 2, 64}, 64, {3, 3}, {1, 1}, {1, 1})));
  CHECK(takes(conv_case(32, {2, 2, 64}, 64, {3, 3}, {1, 1}, {1, 1})));
  CHECK(!takes(conv_case(31, {4, 4, 512}, 512, {3, 3}, {1, 1}, {1, 1})));
  CHECK(takes(conv_case(32, {4, 4, 512}, 512, {3, 3}, {1, 1}, {1, 1})));
  // Sixteen channels pay on one kind of processor.
  const Conv2dDesc narrow = conv_case(8, {32, 32, 16}, 16, {3, 3}, {1, 1}, {1, 1});
  CHECK(!takes(narrow));
  CpuFeatures amd = features;
  amd.amd = true;
  CHECK((make_winograd_conv2d(narrow, amd) != nullptr) == amd.avx512);
  // Another convolution.
  CHECK(!takes(conv_case(8, {8, 8, 40}, 64, {3, 3}, {1, 1}, {1, 1})) == features.avx512);
  CHECK(!takes(conv_case(8, {8, 8, 64}, 64, {3, 3}, {2, 2}, {1, 1})));
  CHECK(!takes(conv_case(8, {8, 8, 64}, 64, {3, 1}, {1, 1}, {1, 0})));
  CHECK(!takes(conv_case(8, {8, 8, 64}, 64, {3, 3}, {1, 1}, {1, 1}, {2, 2})));
  CHECK(!takes(conv_case(8, {8, 8, 64}, 64, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 2)));
  CHECK(!takes(with_pool(fine, PoolKind::max, {2, 2}, {2, 2})));
  Conv2dDesc half = fine;
  half.type = DType::bf16;
  CHECK(!takes(half));
}

TEST_CASE("Descriptions that the direct convolutions leave to the library") {
  const CpuFeatures features = CpuFeatures::detect();
  const Conv2dDesc fine = conv_case(1, {8, 8, 4}, 8, {3, 3});
  CHECK(!make_direct_conv2d(fine, CpuFeatures{}));
  CHECK(
      !make_direct_conv2d(conv_case(1, {8, 8, 4}, 8, {3, 3}, {1, 1}, {0, 0}, {1, 1}, 2), features));
  CHECK(!make_direct_conv2d(conv_case(1, {8, 8, 4}, 8, {3, 3}, {1, 1}, {0, 0}, {2, 2}), features));
  CHECK(!make_direct_conv2d(with_pool(fine, PoolKind::max, {3, 3}, {2, 2}), features));
  Conv2dDesc half = fine;
  half.type = DType::bf16;
  CHECK(!make_direct_conv2d(half, features));
  if (!features.avx2) return;

  // Whole borders of padding.
  const auto with = [&](Size2 kernel, Size2 padding) {
    return make_direct_conv2d(conv_case(1, {8, 8, 4}, 8, kernel, {1, 1}, padding), features) !=
           nullptr;
  };
  CHECK(with({3, 3}, {2, 2}));
  CHECK(!with({3, 3}, {3, 2}));
  CHECK(!with({3, 3}, {2, 3}));
  CHECK(!with({1, 1}, {1, 1}));

  // Whole vectors of channels, unless a pool is fused or the caller insists.
  const auto channels = [&](std::int64_t in, std::int64_t out) {
    return make_direct_conv2d(conv_case(1, {8, 8, in}, out, {3, 3}), features) != nullptr;
  };
  CHECK(channels(4, 8));
  CHECK(channels(8, 4));
  CHECK(channels(9, 9));
  CHECK(!channels(8, 8));
  CHECK(!channels(16, 32));
  const Conv2dDesc whole = conv_case(1, {8, 8, 8}, 8, {3, 3});
  CHECK(make_direct_conv2d(whole, features, Prefer::ours));
  CHECK(make_direct_conv2d(with_pool(whole, PoolKind::max, {2, 2}, {2, 2}), features));

  // Pools other than 2x2 with stride 2 over whole windows of pixels.
  for (const PoolKind kind : {PoolKind::max, PoolKind::average}) {
    const Conv2dDesc pooled = with_pool(fine, kind, {2, 2}, {2, 2});
    CHECK(make_direct_conv2d(pooled, features));
    CHECK(!make_direct_conv2d(with_pool(fine, kind, {2, 3}, {2, 2}), features));
    CHECK(!make_direct_conv2d(with_pool(fine, kind, {2, 2}, {2, 1}), features));
    CHECK(!make_direct_conv2d(with_pool(fine, kind, {2, 2}, {2, 2}, {0, 1}), features));
    Conv2dDesc odd = pooled;
    odd.pool->dilation = {1, 2};
    CHECK(!make_direct_conv2d(odd, features));
    // ceil_mode: the last windows hang over.
    odd = with_pool(conv_case(1, {9, 9, 4}, 8, {3, 3}), kind, {2, 2}, {2, 2});
    REQUIRE(odd.out.h == 3);
    CHECK(make_direct_conv2d(odd, features));
    odd.out.h = odd.pool->out.h = 4;
    CHECK(!make_direct_conv2d(odd, features));
    odd.out.h = odd.pool->out.h = 3;
    odd.out.w = odd.pool->out.w = 4;
    CHECK(!make_direct_conv2d(odd, features));
  }
  Conv2dDesc divided = with_pool(fine, PoolKind::average, {2, 2}, {2, 2});
  divided.pool->divisor_override = 4;
  CHECK(make_direct_conv2d(divided, features));
  divided.pool->divisor_override = 5;
  CHECK(!make_direct_conv2d(divided, features));
}

}  // namespace dpt::testing
