// The direct and Winograd kernels are templates over a vector type. Here they run with sixteen
// plain floats instead of a wide register, and with sixteen pairs of bf16 numbers. This tests the
// algorithms of the widest instruction sets on every processor: their tails, masks and tile sizes.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/cpu/own_conv2d.h"
#include "kernels/cpu/simd/direct_conv_backward.h"
#include "kernels/cpu/simd/direct_linear_kernels.h"
#include "kernels/cpu/simd/winograd4_forward.h"
#include "kernels/cpu/simd/winograd_kernels.h"
#include "kernels/reference/reference.h"
#include "tests/kernels/bf16_values.h"
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
  using Value = float;
  static constexpr int kTerms = 1;
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
  static Lanes operand(const float* from) { return load(from); }
  static Lanes operand(const float* from, Mask mask) { return load(from, mask); }
  static Mask first_values(std::int64_t count) { return first(count); }
  static Lanes values(const float* from, Mask mask) { return load(from, mask); }
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
  [[gnu::noinline]] friend Lanes operator-(const Lanes& a, const Lanes& b) {
    return each([&](int i) { return a.v[i] - b.v[i]; });
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

/// The interface of vec_avx512bf16.h in plain C++. As an operand, lane i holds the bits of pair i.
struct PairLanes : Lanes {
  using Floats = Lanes;
  using Value = Bf16;
  static constexpr int kTerms = 2;

  PairLanes() = default;
  PairLanes(const Lanes& lanes) : Lanes(lanes) {}

  using Lanes::load;
  using Lanes::store;
  static Lanes load(const Bf16* from) { return load(from, 0xFFFF); }
  [[gnu::noinline]] static Lanes load(const Bf16* from, Mask mask) {
    return each([&](int i) { return (mask >> i & 1) != 0 ? to_float(from[i]) : 0.0F; });
  }
  void store(Bf16* to) const { store(to, 0xFFFF); }
  [[gnu::noinline]] void store(Bf16* to, Mask mask) const {
    for (int i = 0; i < kLanes; ++i) {
      if ((mask >> i & 1) != 0) to[i] = to_bf16(v[i]);
    }
  }
  static float pair(Bf16 low, Bf16 high) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(high.bits) << 16 | low.bits);
  }
  static PairLanes operand(const Bf16* from) { return operand(from, 0xFFFF); }
  [[gnu::noinline]] static PairLanes operand(const Bf16* from, Mask mask) {
    return each(
        [&](int i) { return (mask >> i & 1) != 0 ? pair(from[2 * i], from[2 * i + 1]) : 0.0F; });
  }
  void store_operand(Bf16* to) const { store_operand(to, 0xFFFF); }
  [[gnu::noinline]] void store_operand(Bf16* to, Mask mask) const {
    for (int i = 0; i < kLanes; ++i) {
      if ((mask >> i & 1) != 0) std::memcpy(static_cast<void*>(to + 2 * i), &v[i], sizeof v[i]);
    }
  }
  static std::uint32_t first_values(std::int64_t count) {
    return static_cast<std::uint32_t>((std::uint64_t{1} << count) - 1);
  }
  [[gnu::noinline]] static PairLanes values(const Bf16* from, std::uint32_t mask) {
    const auto value = [&](int i) { return (mask >> i & 1) != 0 ? from[i] : Bf16{}; };
    return each([&](int i) { return pair(value(2 * i), value(2 * i + 1)); });
  }
  [[gnu::noinline]] static PairLanes broadcast(const Bf16* from) {
    return each([&](int) { return pair(from[0], from[1]); });
  }
  [[gnu::noinline]] static PairLanes paired(const Bf16* first, const Bf16* second, Mask mask) {
    return each([&](int i) {
      return (mask >> i & 1) != 0 ? pair(first[i], second ? second[i] : Bf16{}) : 0.0F;
    });
  }
  [[gnu::noinline]] static PairLanes paired(const Bf16* first, const PairLanes& second) {
    return each([&](int i) { return pair(first[i], to_bf16(second.v[i])); });
  }
  [[gnu::noinline]] static Lanes fma(const PairLanes& a, const PairLanes& b, const Lanes& c) {
    return each([&](int i) {
      const auto x = std::bit_cast<std::uint32_t>(a.v[i]), y = std::bit_cast<std::uint32_t>(b.v[i]);
      const auto low = [](std::uint32_t bits) { return std::bit_cast<float>(bits << 16); };
      const auto high = [](std::uint32_t bits) { return std::bit_cast<float>(bits & 0xFFFF0000U); };
      return c.v[i] + high(x) * high(y) + low(x) * low(y);
    });
  }
  static void transpose8(const Bf16* from, std::int64_t from_step, std::int64_t rows, Bf16* to,
                         std::int64_t to_step) {
    for (std::int64_t r = 0; r < 8; ++r) {
      for (std::int64_t i = 0; i < 16; ++i) {
        to[(i / 2 * to_step + r) * 2 + i % 2] = r < rows ? from[r * from_step + i] : Bf16{};
      }
    }
  }
};

std::vector<float> values_of(const std::vector<float>& values, float) {
  return values;
}
std::vector<Bf16> values_of(const std::vector<float>& values, Bf16) {
  return rounded(values);
}
std::vector<float> floats(const std::vector<float>& values) {
  return values;
}
std::vector<float> floats(const std::vector<Bf16>& values) {
  return widened(values);
}

using ValueMaker = std::vector<float> (*)(std::int64_t count, std::uint64_t seed);

/// Memory of one call of a convolution's kernels over V. Scratch starts as NaN.
template <class V>
struct LanesCall {
  using Value = typename V::Value;
  std::vector<Value> x, weight, dy, y, dx;
  std::vector<float> bias, dweight, dbias, scratch;
  std::vector<std::uint8_t> saved;

  LanesCall(const Conv2dDesc& d, std::size_t scratch_bytes, ValueMaker make)
      : x(values_of(make(d.batch * d.in.elements(), 1), Value{})),
        weight(values_of(make(weight_count(d), 2), Value{})),
        dy(values_of(make(d.batch * d.out.elements(), 4), Value{})),
        y(dy.size()),
        dx(x.size()),
        bias(make(d.out.c, 3)),
        dweight(weight.size()),
        dbias(bias.size()),
        scratch(scratch_bytes / sizeof(float), std::numeric_limits<float>::quiet_NaN()),
        saved(direct::conv_saved_bytes<V>(conv_of(d)) + 1) {}

  direct::ConvCall<Value> args() {
    return {x.data(),       weight.data(), bias.data(),  y.data(),       dy.data(), dx.data(),
            dweight.data(), dbias.data(),  saved.data(), scratch.data(), false};
  }
  std::vector<double> wanted_y(const Conv2dDesc& d) const {
    return reference::conv2d(d, to_double(floats(x)), to_double(floats(weight)), to_double(bias));
  }
  reference::Gradients wanted_gradients(const Conv2dDesc& d) const {
    return reference::conv2d_backward(d, to_double(floats(x)), to_double(floats(weight)),
                                      to_double(bias), to_double(floats(dy)));
  }
};

/// Compares the kernels over V with the reference. `rounding` is the allowed relative error of an
/// activation.
template <class V>
void check_lanes(const Conv2dDesc& d, double rounding) {
  INFO(text(d));
  const direct::Conv c = conv_of(d);
  LanesCall<V> call(d, direct::conv_scratch_bytes<V>(c), random_values);
  const reference::Gradients want = call.wanted_gradients(d);
  direct::conv_forward<V>(c, call.args());
  direct::conv_backward<V>(c, call.args());
  check_close("y", floats(call.y), call.wanted_y(d), rounding);
  check_close("dx", floats(call.dx), want.x, rounding);
  check_close("dweight", call.dweight, want.weight, 1e-5);
  check_close("dbias", call.dbias, want.bias, 1e-5);
}
void check_lanes(const Conv2dDesc& d) {
  check_lanes<Lanes>(d, 1e-5);
  check_lanes<PairLanes>(d, 0x1p-8 + 1e-5);
}

/// Compares the gradients of Winograd's kernels over V with the reference, to the bit.
template <class V>
void check_winograd_lanes(const Conv2dDesc& d) {
  INFO(text(d));
  const direct::Conv c = conv_of(d);
  LanesCall<V> call(d, winograd::scratch_bytes<V>(c), whole_values);
  const reference::Gradients want = call.wanted_gradients(d);
  winograd::backward<V>(c, call.args());
  const bool rounds = V::kTerms > 1;
  check_close("dx", floats(call.dx), rounds ? rounded_to_bf16(want.x) : want.x, 0);
  check_close("dweight", call.dweight, want.weight, 0);
  check_close("dbias", call.dbias, want.bias, 0);
}

}  // namespace

TEST_CASE("Gradients by Winograd's filtering with sixteen lanes equal the reference") {
  // One tile; odd numbers of tiles, rows and columns; blocks that end within an image.
  for (const Conv2dDesc& d : {conv_case(1, {1, 2, 16}, 16, {3, 3}, {1, 1}, {1, 1}),
                              conv_case(3, {5, 9, 16}, 48, {3, 3}, {1, 1}, {1, 1}),
                              conv_case(3, {9, 10, 32}, 16, {3, 3}, {1, 1}, {0, 2})}) {
    check_winograd_lanes<Lanes>(d);
    check_winograd_lanes<PairLanes>(d);
  }
}

TEST_CASE("Winograd's forward pass with tiles of 4x4 equals the reference") {
  // Less than one tile; a block that ends within an image; padding up to 2.
  for (Conv2dDesc d : {conv_case(1, {1, 2, 16}, 16, {3, 3}, {1, 1}, {1, 1}),
                       conv_case(3, {13, 18, 16}, 48, {3, 3}, {1, 1}, {1, 1}),
                       conv_case(30, {8, 8, 32}, 16, {3, 3}, {1, 1}, {0, 2})}) {
    for (const bool bias : {false, true}) {
      d.bias = bias;
      d.relu = bias;
      INFO(text(d));
      const direct::Conv c = conv_of(d);
      LanesCall<PairLanes> call(d, winograd4::scratch_bytes<PairLanes>(c), random_values);
      winograd4::forward<PairLanes>(c, call.args());
      check_close("y", widened(call.y), call.wanted_y(d), 0x1p-8 + 1e-5);
    }
  }
}

TEST_CASE("Direct convolutions with sixteen lanes equal the reference") {
  for (Conv2dDesc d :
       {conv_case(2, {13, 13, 20}, 50, {5, 5}), conv_case(2, {12, 11, 1}, 20, {3, 3}),
        conv_case(1, {9, 20, 3}, 33, {3, 3}, {1, 1}, {1, 1}),
        conv_case(1, {9, 9, 40}, 64, {3, 3}, {2, 2}, {1, 1}),
        conv_case(3, {5, 6, 17}, 16, {2, 4}, {1, 2}),
        conv_case(2, {7, 7, 40}, 19, {1, 1}, {2, 2})}) {
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
