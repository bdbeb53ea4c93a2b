// The flat kernels on every backend: the gradient norm, sums and rounding. Vector and scalar loops,
// and all backends, must give the same bits, except for a GPU's gradient norm.
// tests/engine/optimizers covers the optimizers.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <vector>

#include "kernels/common/bf16.h"
#include "kernels/common/update_outcome.h"
#include "kernels/devices.h"
#include "tests/support/backends.h"
#include "tests/support/close.h"
#include "tests/support/op_runner.h"

namespace dpt::testing {
namespace {

/// Calls use(backend) for every backend.
void on_backends(const std::function<void(Backend&)>& use) {
  for (const std::string& name : backend_names()) {
    INFO(name);
    use(*make_backend(parse_device(name)));
  }
}

}  // namespace

TEST_CASE("The gradient norm is exact where double is, and clips as PyTorch does") {
  const auto norm_of = [](Backend& backend, const std::vector<float>& g, float max_norm,
                          std::size_t first = 0) {
    const OnDevice<float> grads(backend, g);
    StepScalars before;
    before.step = 3;
    before.max_norm = max_norm;
    before.grad_norm = before.clip = -1;
    const OnDevice<StepScalars> s(backend, {before});
    backend.grad_norm(grads.ptr() + first * sizeof(float),
                      static_cast<std::int64_t>(g.size() - first), s.ptr());
    const StepScalars after = s.get()[0];
    CHECK(after.step == 3);
    CHECK(after.max_norm == max_norm);
    return after;
  };
  on_backends([&](Backend& backend) {
    for (const std::int64_t n : {0, 1, 15, 16, 17, 1000, 4099, 70001}) {
      INFO("n = ", n);
      const std::vector<float> g = random_values(n, 3);
      double sum = 0;
      for (const float v : g) sum += static_cast<double>(v) * static_cast<double>(v);
      // The sum errs by less than n * 2^-53 of itself in any order, and is rounded to float once.
      const double norm = std::sqrt(sum);
      const StepScalars plain = norm_of(backend, g, 0);
      CHECK(static_cast<double>(plain.grad_norm) == doctest::Approx(norm).epsilon(1e-7));
      CHECK(plain.clip == 1.0F);
      const StepScalars clipped = norm_of(backend, g, 0.5F);
      CHECK(clipped.grad_norm == plain.grad_norm);
      const double clip = std::min(1.0, 0.5 / (norm + 1e-6));
      CHECK(static_cast<double>(clipped.clip) == doctest::Approx(clip).epsilon(1e-6));
      if (n < 2) continue;
      const double rest = std::sqrt(sum - static_cast<double>(g[0]) * static_cast<double>(g[0]));
      CHECK(static_cast<double>(norm_of(backend, g, 0, 1).grad_norm) ==
            doctest::Approx(rest).epsilon(1e-7));
    }
    const std::vector<float> bad(20, std::numeric_limits<float>::quiet_NaN());
    CHECK(std::isnan(norm_of(backend, bad, 1).clip));
    // `finite` distinguishes NaN and infinity from a norm that is only large.
    CHECK(norm_of(backend, bad, 1).finite == 0);
    std::vector<float> large(20, 3e38F);
    CHECK(norm_of(backend, large, 0).finite == 1);
    large[19] = -std::numeric_limits<float>::infinity();
    CHECK(norm_of(backend, large, 0).finite == 0);
  });
}

TEST_CASE("Clipping keeps what is in bounds, and NaNs") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  on_backends([&](Backend& backend) {
    for (const std::size_t skip : {0U, 1U}) {
      std::vector<float> values = {9, -9, 0.5F, -0.5F, 0.25F, -0.0F, inf, -inf, nan, 1e-30F, 7};
      const std::vector<float> want = {0.5F, -0.5F, 0.5F, -0.5F,  0.25F, -0.0F,
                                       0.5F, -0.5F, 0.0F, 1e-30F, 7};
      const OnDevice<float> on_device(backend, values);
      // The last value stays unclipped.
      backend.clip_values(on_device.ptr() + skip * sizeof(float), 0.5F,
                          static_cast<std::int64_t>(values.size() - 1 - skip));
      std::vector<float> got = on_device.get();
      CHECK(std::isnan(got[8]));
      got[8] = 0;
      if (skip == 1) {
        CHECK(got[0] == 9);
        got[0] = 0.5F;
      }
      CHECK(same_bits(got, want));
    }
  });
}

TEST_CASE("The norms of ranges have the same bits on all backends") {
  const std::int64_t n = 70'001;
  const std::vector<float> values = random_values(n, 11);
  // Sizes around a lane, a group of lanes, a block of lanes and a tile, from any offset, and an
  // empty range.
  const std::vector<Range> ranges = {{0, 1},           {3, 3},           {5, 36},
                                     {7, 40},          {40, 295},        {40, 297},
                                     {64, 64 + 16384}, {65, 65 + 16385}, {1, n}};
  std::vector<float> first;
  on_backends([&](Backend& backend) {
    const OnDevice<float> on_device(backend, values);
    const OnDevice<float> norms(backend, std::vector<float>(ranges.size() + 1, -1));
    const auto op = backend.range_norms(ranges);
    op->run(on_device.ptr(), norms.ptr());
    op->run(on_device.ptr(), norms.ptr());  // no state is left over from the first run
    const std::vector<float> got = norms.get();
    CHECK(got.back() == -1);
    for (std::size_t r = 0; r < ranges.size(); ++r) {
      CAPTURE(r);
      double sum = 0;
      for (std::int64_t i = ranges[r].begin; i < ranges[r].end; ++i) {
        const auto value = static_cast<double>(values[i]);
        sum += value * value;
      }
      CHECK(static_cast<double>(got[r]) == doctest::Approx(std::sqrt(sum)).epsilon(1e-7));
    }
    if (first.empty()) first = got;
    CHECK(same_bits(got, first));
    backend.range_norms({})->run(on_device.ptr(), norms.ptr());
    // Large values whose squares only fit into a double.
    const OnDevice<float> large(backend, {3e38F, 4e37F, 2e-38F, 2e-38F});
    backend.range_norms(std::vector<Range>{{0, 2}, {2, 4}})->run(large.ptr(), norms.ptr());
    CHECK(norms.get()[0] == doctest::Approx(3.0265e38).epsilon(1e-4));
    CHECK(norms.get()[1] == doctest::Approx(2.8284e-38).epsilon(1e-4));
  });
}

TEST_CASE("The norms of ranges are added up in the order that is written down") {
  // The norm is halfway between two floats. The small squares round it up. They would be lost if
  // they were added one by one to the lane or group of the large one.
  std::vector<float> values(384);
  values[0] = 1;
  values[32] = values[33] = 0x1p-12F;
  values[34] = 0x1p-24F;
  on_backends([&](Backend& backend) {
    const auto norm = [&] {
      const OnDevice<float> on_device(backend, values);
      const OnDevice<float> norms(backend, {0});
      backend.range_norms(std::vector<Range>{{0, 384}})->run(on_device.ptr(), norms.ptr());
      return norms.get()[0];
    };
    for (int i = 64; i < 384; ++i) values[i] = 0;
    CHECK(norm() == 1.0F);
    // The small squares are in lanes 64 to 127, first in a whole row of lanes, then in the
    // remaining row.
    for (const int first : {64, 320}) {
      CAPTURE(first);
      for (int i = 64; i < 384; ++i) {
        values[i] = i >= first && i < first + 64 ? 0x1p-27F : 0.0F;
      }
      CHECK(norm() == 1.0F + 0x1p-23F);
    }
    // Small squares in lane 0 are lost, one after the other.
    values.assign(values.size(), 0);
    values.resize(std::size_t{256} * 64);
    values[0] = 1;
    values[32] = values[33] = 0x1p-12F;
    values[34] = 0x1p-24F;
    for (std::size_t row = 1; row < 64; ++row) values[row * 256] = 0x1p-27F;
    const OnDevice<float> on_device(backend, values);
    const OnDevice<float> norms(backend, {0});
    backend.range_norms(std::vector<Range>{{0, 256 * 64}})->run(on_device.ptr(), norms.ptr());
    CHECK(norms.get()[0] == 1.0F);
    values.resize(384);
  });
}

TEST_CASE("The CPU's gradient norm has the same bits on every processor") {
  const auto backend = make_cpu_backend(1);
  for (const std::int64_t n : {1, 15, 16, 17, 1000, 4099}) {
    const std::vector<float> g = random_values(n, 3);
    const OnDevice<float> grads(*backend, g);
    const OnDevice<StepScalars> s(*backend, {StepScalars{}});
    backend->grad_norm(grads.ptr(), n, s.ptr());
    // Computes the same partial sums one element at a time, as a processor without vector
    // instructions does.
    double partial[16] = {};
    for (std::size_t i = 0; i < g.size(); ++i) {
      partial[i % 16] += static_cast<double>(g[i]) * static_cast<double>(g[i]);
    }
    for (int half = 8; half > 0; half /= 2) {
      for (int j = 0; j < half; ++j) partial[j] += partial[j + half];
    }
    CHECK(s.get()[0].grad_norm == static_cast<float>(std::sqrt(partial[0])));
  }
}

TEST_CASE("Flat addition, also in place and at odd addresses") {
  on_backends([](Backend& backend) {
    for (const std::size_t n : {0U, 1U, 8U, 29U, 5000U}) {
      for (const std::size_t skip : {0U, 1U}) {
        if (skip > n) continue;
        const std::vector<float> a = random_values(static_cast<std::int64_t>(n), 1);
        const std::vector<float> b = random_values(static_cast<std::int64_t>(n), 2);
        std::vector<float> want = a;
        for (std::size_t i = skip; i < n; ++i) want[i] = a[i] + b[i];
        const OnDevice<float> left(backend, a), right(backend, b), to(backend, a);
        const std::size_t bytes = skip * sizeof(float);
        const auto count = static_cast<std::int64_t>(n - skip);
        backend.add(to.ptr() + bytes, left.ptr() + bytes, right.ptr() + bytes, count);
        CHECK(same_bits(to.get(), want));
        backend.add(right.ptr() + bytes, left.ptr() + bytes, right.ptr() + bytes, count);
        backend.add(left.ptr() + bytes, left.ptr() + bytes, to.ptr() + bytes, 0);
        std::vector<float> in_place = b;
        std::copy(want.begin() + static_cast<std::ptrdiff_t>(skip), want.end(),
                  in_place.begin() + static_cast<std::ptrdiff_t>(skip));
        CHECK(same_bits(right.get(), in_place));
        CHECK(same_bits(left.get(), a));
      }
    }
  });
}

TEST_CASE("A tree sum adds in the order given, and writes every output") {
  // The numbers of parts and additions also exceed those of a single GPU kernel.
  for (const int parts : {1, 2, 3, 7, 32, 33, 70}) {
    for (const std::size_t n : {0U, 1U, 37U, 4099U}) {
      for (const std::size_t skip : {0U, 1U}) {
        if (skip > n) continue;
        INFO(parts, " parts of ", n, ", without ", skip);
        std::vector<std::vector<float>> values;
        for (int p = 0; p < parts; ++p) {
          values.push_back(random_values(static_cast<std::int64_t>(n), 20 + p));
        }
        // A clipped binary tree, then an order that no tree has: a part is used twice.
        std::vector<TreeAdd> additions;
        for (int step = 1; step < parts; step *= 2) {
          for (int left = 0; left + step < parts; left += 2 * step) {
            additions.push_back({left, left + step});
          }
        }
        if (parts > 2) additions.push_back({0, 2});
        std::vector<std::vector<float>> sums = values;
        for (const TreeAdd& add : additions) {
          for (std::size_t i = skip; i < n; ++i) {
            sums[add.left][i] += sums[add.right][i];
          }
        }
        on_backends([&](Backend& backend) {
          std::vector<OnDevice<float>> memory;
          for (const std::vector<float>& each : values) memory.emplace_back(backend, each);
          const OnDevice<float> out(backend, values[0]), other(backend, values[0]);
          std::vector<DevPtr> addresses;
          for (const OnDevice<float>& each : memory) {
            addresses.push_back(each.ptr() + skip * sizeof(float));
          }
          const DevPtr outs[] = {out.ptr() + skip * sizeof(float), addresses[0],
                                 other.ptr() + skip * sizeof(float)};
          backend.tree_sum(addresses, additions, outs, static_cast<std::int64_t>(n - skip));
          CHECK(same_bits(out.get(), sums[0]));
          CHECK(same_bits(other.get(), sums[0]));
          CHECK(same_bits(memory[0].get(), sums[0]));
        });
      }
    }
  }
}

TEST_CASE("A tree sum has zeros in place of denormal parts and sums, on every backend") {
  const float least = std::numeric_limits<float>::min(), denormal = least / 4;
  // Two denormals; a denormal and a number; numbers whose difference is denormal; a sum of normals.
  const std::vector<float> a = {denormal, -denormal, least * 1.5F, least, -0.0F};
  const std::vector<float> b = {denormal, 1.0F, -least, least, -denormal};
  const std::vector<float> want = {0.0F, 1.0F, 0.0F, 2 * least, -0.0F};
  on_backends([&](Backend& backend) {
    const OnDevice<float> left(backend, a), right(backend, b), out(backend, a);
    const DevPtr parts[] = {left.ptr(), right.ptr()}, outs[] = {out.ptr()};
    const TreeAdd additions[] = {{0, 1}};
    backend.tree_sum(parts, additions, outs, static_cast<std::int64_t>(a.size()));
    CHECK(same_bits(out.get(), want));
  });
}

TEST_CASE("Rounding to bf16 goes to the nearest, ties to even, and keeps NaNs and infinities") {
  const float inf = std::numeric_limits<float>::infinity();
  // 1 + 2^-7 is the first bf16 above 1.
  std::vector<float> values = {0.0F,
                               -0.0F,
                               1.0F,
                               1.0F + 0x1p-8F,
                               1.0F + 0x3p-8F,
                               1.0F + 0x1.8p-8F,
                               std::numeric_limits<float>::max(),
                               -inf,
                               0x1p-149F,
                               -3.1415927F};
  const std::vector<float> want = {0.0F,           -0.0F, 1.0F, 1.0F, 1.0F + 0x1p-6F,
                                   1.0F + 0x1p-7F, inf,   -inf, 0.0F, -3.140625F};
  const std::vector<float> more = random_values(3001, 1);
  std::vector<float> all = values;
  all.insert(all.end(), more.begin(), more.end());
  all.push_back(std::numeric_limits<float>::quiet_NaN());
  on_backends([&](Backend& backend) {
    for (const std::size_t skip : {0U, 1U}) {
      const OnDevice<float> from(backend, all);
      const OnDevice<Bf16> to(backend, std::vector<Bf16>(all.size()));
      backend.to_bf16(to.ptr() + skip * 2, from.ptr() + skip * 4,
                      static_cast<std::int64_t>(all.size() - skip));
      const std::vector<Bf16> got = to.get();
      for (std::size_t i = skip; i < want.size(); ++i) {
        CHECK(std::memcmp(&want[i], std::vector<float>{to_float(got[i])}.data(), 4) == 0);
      }
      for (std::size_t i = want.size(); i < all.size() - 1; ++i) {
        // Half a step, with 8 bits of mantissa including the leading one.
        CHECK(std::abs(to_float(got[i]) - all[i]) <= 0x1p-8F * std::abs(to_float(got[i])));
      }
      CHECK(std::isnan(to_float(got.back())));
    }
  });
}

TEST_CASE("Counts are exact in fp32 sums of any parts, in any order") {
  // There are as many parts as shards are allowed, and their low digits are as large as possible.
  constexpr std::size_t kParts = 65536;
  std::vector<SplitSum> parts(kParts);
  std::int64_t want = 0;
  for (std::size_t i = 0; i < kParts; ++i) {
    const auto count = static_cast<std::int64_t>(255 + 256 * (i % 250));
    parts[i].add_count(count);
    want += count;
  }
  CHECK(want > std::int64_t{1} << 30);
  const auto sum_of = [&](std::size_t stride) {
    SplitSum sum;
    for (std::size_t i = 0; i < kParts; ++i) {
      const SplitSum& part = parts[i * stride % kParts];
      sum.high += part.high;
      sum.low += part.low;
    }
    return sum.count();
  };
  CHECK(sum_of(1) == want);
  CHECK(sum_of(40503) == want);
  for (std::size_t half = kParts / 2; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) {
      parts[i].high += parts[i + half].high;
      parts[i].low += parts[i + half].low;
    }
  }
  CHECK(parts[0].count() == want);
  CHECK(parts[0].value() == static_cast<double>(want));
  // A sum of sums continues the count.
  parts[0].add_count(257);
  CHECK(parts[0].count() == want + 257);
  CHECK(parts[0].low < SplitSum::kDigit);

  SplitSum real;
  real.add(0.1);
  real.add(1e39);
  CHECK(real.value() == HUGE_VAL);
}

}  // namespace dpt::testing
