// Checks dpt's own convolutions: against the double-precision reference, and for equal bits on
// repetition and for a sample in any batch.
#pragma once

#include <doctest/doctest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "kernels/base/cpu_features.h"
#include "kernels/cpu/own_conv2d.h"
#include "kernels/devices.h"
#include "kernels/reference/reference.h"
#include "tests/kernels/cases.h"
#include "tests/support/close.h"
#include "tests/support/op_runner.h"

namespace dpt::testing {

struct ConvData {
  std::vector<float> x, weight, bias, dy;
};

inline ConvData random_conv_data(const Conv2dDesc& d, std::uint64_t seed) {
  return {random_values(d.batch * d.in.elements(), seed), random_values(weight_count(d), seed + 1),
          d.bias ? random_values(d.conv_out.c, seed + 2) : std::vector<float>(),
          random_values(d.batch * d.out.elements(), seed + 3)};
}

/// Draws random numbers of a test case. Another `stream` has other numbers.
class Draws {
 public:
  Draws(std::uint64_t seed, std::uint64_t stream) : seed_(seed), stream_(stream) {}

  /// Returns a number from `from` to `to`.
  std::int64_t operator()(std::int64_t from, std::int64_t to) {
    const auto bits = philox::block(seed_, philox::Use::split, draw_++, stream_).v[0];
    return from + philox::below(bits, static_cast<std::uint32_t>(to - from + 1));
  }

 private:
  std::uint64_t seed_, stream_, draw_ = 0;
};

/// Returns a random description that the direct kernels accept: odd sizes, tails, strides, borders.
inline Conv2dDesc random_direct_conv(std::uint64_t seed) {
  Draws pick(seed, 0);
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

/// Returns a random description that Winograd's kernels accept: odd and even sizes, and blocks of
/// tiles that end in the middle of an image.
inline Conv2dDesc random_winograd_conv(std::uint64_t seed) {
  Draws pick(seed, 1);
  const Size2 padding{pick(0, 2), pick(0, 2)};
  const SampleShape in{pick(3 - padding.h, 13), pick(3 - padding.w, 17), 16 * pick(1, 4)};
  Conv2dDesc d = conv_case(pick(1, 9), in, 16 * pick(1, 5), {3, 3}, {1, 1}, padding);
  d.bias = pick(0, 1) > 0;
  d.relu = pick(0, 1) > 0;
  return d;
}

/// Returns convolutions whose weights exceed the first-level cache, among them a wide one.
inline std::vector<Conv2dDesc> long_direct_convs() {
  return {conv_case(1, {8, 8, 64}, 40, {3, 3}, {1, 1}, {1, 1}),
          conv_case(1, {6, 100, 64}, 24, {3, 3}, {1, 1}, {1, 1}),
          conv_case(2, {13, 13, 20}, 50, {5, 5})};
}

using ConvMaker = std::unique_ptr<Op> (*)(const Conv2dDesc&, const CpuTarget&, Prefer);

inline void check_against_reference(Backend& backend, const Conv2dDesc& d, const ConvData& data,
                                    ConvMaker make,
                                    const CpuFeatures& features = CpuFeatures::detect(),
                                    int threads = 1) {
  const auto op = make(d, CpuTarget{threads, features}, Prefer::ours);
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

inline void check_bits_in_any_batch(Conv2dDesc d, ConvMaker make) {
  const auto backend = make_cpu_backend(1);
  const ConvData data = random_conv_data(d, 1);
  const auto three = make(d, CpuTarget{1, CpuFeatures::detect()}, Prefer::ours);
  OpRunner all(*backend, *three, data.x, data.weight, data.bias, d.batch * d.out.elements());
  all.forward();
  const OpResult want = all.backward(data.dy);
  d.batch = 1;
  if (d.pool) d.pool->batch = 1;
  const auto single = make(d, CpuTarget{1, CpuFeatures::detect()}, Prefer::ours);
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

}  // namespace dpt::testing
