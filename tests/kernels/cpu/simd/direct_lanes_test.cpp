// The direct kernels are templates over a vector type. Here they run with sixteen plain floats
// instead of a wide register. This tests the algorithm of the widest instruction set on every
// processor: its tails, masks and tile sizes.
#include <doctest/doctest.h>

#include <cmath>

#include "kernels/cpu/simd/direct_conv_backward.h"
#include "kernels/cpu/simd/direct_linear_kernels.h"
#include "kernels/reference/reference.h"
#include "tests/kernels/cases.h"
#include "tests/support/close.h"
#include "tests/support/op_runner.h"

namespace dpt::testing {
namespace {

/// The interface of vec_*.h in plain C++, with the sizes of the widest type. Nothing in the inner
/// loops is inlined: a register tile of 24 of these values would unroll into minutes of compiling.
struct Lanes {
  static constexpr int kLanes = 16;
  static constexpr int kAccumulators = 24;
  using Mask = std::uint32_t;

  float v[kLanes];

  template <class F>
  static Lanes each(F&& f) {
    Lanes out;
    for (int i = 0; i < kLanes; ++i) out.v[i] = f(i);
    return out;
  }
  template <class F>
  static std::uint32_t bits(F&& f) {
    std::uint32_t out = 0;
    for (int i = 0; i < kLanes; ++i) out |= f(i) ? 1U << i : 0U;
    return out;
  }
  [[gnu::noinline]] static Lanes zero() { return filled(0); }
  [[gnu::noinline]] static Lanes filled(float x) {
    return each([&](int) { return x; });
  }
  [[gnu::noinline]] static Lanes broadcast(const float* from) { return filled(*from); }
  [[gnu::noinline]] static Lanes load(const float* from) {
    return each([&](int i) { return from[i]; });
  }
  static Mask first(std::int64_t count) { return (1U << count) - 1; }
  [[gnu::noinline]] static Lanes load(const float* from, Mask mask) {
    return each([&](int i) { return (mask >> i & 1) != 0 ? from[i] : 0.0F; });
  }
  void store(float* to) const { store(to, 0xFFFF); }
  [[gnu::noinline]] void store(float* to, Mask mask) const {
    for (int i = 0; i < kLanes; ++i) {
      if ((mask >> i & 1) != 0) to[i] = v[i];
    }
  }
  [[gnu::noinline]] static Lanes fma(const Lanes& a, const Lanes& b, const Lanes& c) {
    return each([&](int i) { return a.v[i] * b.v[i] + c.v[i]; });
  }
  [[gnu::noinline]] friend Lanes operator+(const Lanes& a, const Lanes& b) {
    return each([&](int i) { return a.v[i] + b.v[i]; });
  }
  [[gnu::noinline]] friend Lanes operator*(const Lanes& a, const Lanes& b) {
    return each([&](int i) { return a.v[i] * b.v[i]; });
  }
  Lanes relu() const {
    return each([&](int i) { return v[i] <= 0 ? 0 : v[i]; });
  }
  std::uint32_t positive_bits() const {
    return bits([&](int i) { return !(v[i] <= 0); });
  }
  static std::uint32_t winning_bits(const Lanes& a, const Lanes& b) {
    return bits([&](int i) { return a.v[i] > b.v[i] || std::isnan(a.v[i]); });
  }
  static Lanes winner(const Lanes& a, const Lanes& b) {
    return each([&](int i) { return a.v[i] > b.v[i] || std::isnan(a.v[i]) ? a.v[i] : b.v[i]; });
  }
  Lanes keep(std::uint32_t set) const {
    return each([&](int i) { return (set >> i & 1) != 0 ? v[i] : 0.0F; });
  }
  Lanes keep_positive(const Lanes& y) const { return keep(y.positive_bits()); }
  float sum() const {
    float total = 0;
    for (const float x : v) total += x;
    return total;
  }
  static void transpose8(const float* from, std::int64_t from_step, std::int64_t rows, float* to,
                         std::int64_t to_step) {
    for (std::int64_t r = 0; r < 8; ++r) {
      for (std::int64_t i = 0; i < 8; ++i) {
        to[i * to_step + r] = r < rows ? from[r * from_step + i] : 0.0F;
      }
    }
  }
};

direct::Conv numbers(const Conv2dDesc& d) {
  direct::Conv c;
  c.batch = d.batch;
  c.in_h = d.in.h, c.in_w = d.in.w, c.in_c = d.in.c;
  c.kernel_h = d.kernel.h, c.kernel_w = d.kernel.w;
  c.stride_h = d.stride.h, c.stride_w = d.stride.w;
  c.pad_h = d.padding.h, c.pad_w = d.padding.w;
  c.out_h = d.out.h, c.out_w = d.out.w, c.out_c = d.out.c;
  c.conv_h = d.pool ? 2 * d.out.h : d.out.h;
  c.conv_w = d.pool ? 2 * d.out.w : d.out.w;
  c.bias = d.bias;
  c.relu = d.relu;
  if (d.pool) {
    c.pool = d.pool->kind == PoolKind::max ? direct::FusedPool::max : direct::FusedPool::average;
  }
  return c;
}

void check_lanes(const Conv2dDesc& d) {
  INFO(text(d));
  const direct::Conv c = numbers(d);
  const auto x = random_values(d.batch * d.in.elements(), 1);
  const auto weight = random_values(weight_count(d), 2), bias = random_values(d.out.c, 3);
  auto dy = random_values(d.batch * d.out.elements(), 4);
  std::vector<float> y(dy.size()), dx(x.size()), dweight(weight.size()), dbias(bias.size());
  std::vector<float> scratch(direct::conv_scratch_bytes<Lanes>(c) / sizeof(float));
  std::vector<std::uint8_t> saved(direct::conv_saved_bytes<Lanes>(c) + 1);
  const direct::ConvArgs args{x.data(),     weight.data(),  bias.data(),    y.data(),
                              dy.data(),    dx.data(),      dweight.data(), dbias.data(),
                              saved.data(), scratch.data(), false};
  direct::conv_forward<Lanes>(c, args);
  direct::conv_backward<Lanes>(c, args);
  const auto xd = to_double(x), wd = to_double(weight), bd = to_double(bias);
  check_close("y", y, reference::conv2d(d, xd, wd, bd), 1e-5);
  const auto want = reference::conv2d_backward(d, xd, wd, bd, to_double(dy));
  check_close("dx", dx, want.x, 1e-5);
  check_close("dweight", dweight, want.weight, 1e-5);
  check_close("dbias", dbias, want.bias, 1e-5);
}

}  // namespace

TEST_CASE("Direct convolutions with sixteen lanes equal the reference") {
  for (Conv2dDesc d :
       {conv_case(2, {13, 13, 20}, 50, {5, 5}), conv_case(2, {12, 11, 1}, 20, {3, 3}),
        conv_case(1, {9, 20, 3}, 33, {3, 3}, {1, 1}, {1, 1}),
        conv_case(1, {9, 9, 40}, 64, {3, 3}, {2, 2}, {1, 1}),
        conv_case(3, {5, 6, 17}, 16, {2, 4}, {1, 2})}) {
    d.relu = true;
    check_lanes(d);
    check_lanes(with_pool(d, PoolKind::max, {2, 2}, {2, 2}));
    check_lanes(with_pool(d, PoolKind::average, {2, 2}, {2, 2}));
  }
}

TEST_CASE("Direct linear layers with sixteen lanes equal the reference") {
  for (const std::int64_t batch : {1, 3, 19}) {
    for (const std::int64_t in : {5, 16, 131, 300}) {
      for (const std::int64_t out : {1, 10, 34}) {
        LinearDesc d;
        d.batch = batch, d.in = in, d.out = out;
        d.relu = in != 16;
        INFO("linear ", in, " -> ", out, ", batch ", batch);
        const auto x = random_values(batch * in, 1), weight = random_values(in * out, 2);
        const auto bias = random_values(out, 3);
        auto dy = random_values(batch * out, 4);
        const auto dyd = to_double(dy);
        std::vector<float> y(dy.size()), dx(x.size()), dweight(weight.size()), dbias(bias.size());
        const direct::Linear l{batch, in, out, true, d.relu, true};
        const direct::LinearArgs args{x.data(),  weight.data(),  bias.data(),  y.data(), dy.data(),
                                      dx.data(), dweight.data(), dbias.data(), false};
        direct::linear_forward<Lanes>(l, args);
        direct::linear_backward<Lanes>(l, args);
        const auto xd = to_double(x), wd = to_double(weight), bd = to_double(bias);
        check_close("y", y, reference::linear(d, xd, wd, bd), 1e-5);
        const auto want = reference::linear_backward(d, xd, wd, bd, dyd);
        check_close("dx", dx, want.x, 1e-5);
        check_close("dweight", dweight, want.weight, 1e-5);
        check_close("dbias", dbias, want.bias, 1e-5);
      }
    }
  }
}

}  // namespace dpt::testing
