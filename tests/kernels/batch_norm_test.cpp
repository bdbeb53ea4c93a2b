// Statistics that are computed in parts and merged equal those of the whole. Also tests the update
// of running statistics.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/common/batch_norm_math.h"
#include "kernels/common/bf16.h"
#include "kernels/devices.h"
#include "kernels/reference/reference.h"
#include "tests/support/backends.h"
#include "tests/support/close.h"
#include "tests/support/op_runner.h"

namespace dpt::testing {
namespace {

constexpr std::int64_t kChannels = 19;

BatchNormDesc description(std::int64_t batch, DType type = DType::f32) {
  BatchNormDesc desc;
  desc.batch = batch;
  desc.shape = {3, 2, kChannels};
  desc.type = type;
  return desc;
}

/// Returns the moments of samples [begin, end) as an operation computes them.
std::vector<float> moments_of(Backend& backend, const std::vector<float>& x, std::int64_t begin,
                              std::int64_t end) {
  const std::int64_t sample = 6 * kChannels;
  const std::unique_ptr<Op> op = backend.make(description(end - begin));
  OpRunner runner(backend, *op, {x.begin() + begin * sample, x.begin() + end * sample},
                  std::vector<float>(kChannels, 1.0F), std::vector<float>(kChannels), sample);
  const OnDevice<float> saved(backend, std::vector<float>(4 * kChannels));
  OpArgs args = runner.args();
  args.saved = saved.ptr();
  op->forward_statistics(args);
  std::vector<float> all = saved.get();
  all.resize(2 * kChannels);
  return all;
}

TEST_CASE("moments of pieces, merged in any tree, are those of all samples") {
  const std::vector<std::int64_t> cuts = {0, 5, 6, 6, 17, 30, 41};
  std::vector<float> x = random_values(41 * 6 * kChannels, 3);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] += static_cast<float>(100 * (i % kChannels));
  for (const std::string& name : backend_names()) {
    INFO(name);
    const std::unique_ptr<Backend> backend = make_backend(parse_device(name));
    const std::vector<float> whole = moments_of(*backend, x, 0, 41);
    for (std::int64_t c = 0; c < kChannels; ++c) {
      double mean = 0, squares = 0;
      for (std::int64_t i = c; i < 41 * 6 * kChannels; i += kChannels) mean += x[i] / (41.0 * 6);
      for (std::int64_t i = c; i < 41 * 6 * kChannels; i += kChannels) {
        squares += (x[i] - mean) * (x[i] - mean);
      }
      CHECK(whole[c] == doctest::Approx(mean).epsilon(1e-6));
      // Around a mean of 1800, floats are only precise to 1e-4.
      CHECK(whole[kChannels + c] == doctest::Approx(squares).epsilon(1e-3));
    }
    std::vector<OnDevice<float>> memory;
    std::vector<DevPtr> parts;
    std::vector<double> values;
    for (std::size_t k = 1; k < cuts.size(); ++k) {
      const bool empty = cuts[k] == cuts[k - 1];
      memory.emplace_back(*backend, empty ? std::vector<float>(2 * kChannels)
                                          : moments_of(*backend, x, cuts[k - 1], cuts[k]));
      values.push_back(static_cast<double>(6 * (cuts[k] - cuts[k - 1])));
    }
    memory.emplace_back(*backend, std::vector<float>(2 * kChannels, -1.0F));
    for (const OnDevice<float>& each : memory) parts.push_back(each.ptr());
    const DevPtr other = parts.back();
    parts.pop_back();
    std::vector<MomentMerge> merges;
    for (const auto& [left, right] : {std::pair{2, 3}, {0, 1}, {4, 5}, {0, 2}, {0, 4}}) {
      const auto l = static_cast<std::size_t>(left), r = static_cast<std::size_t>(right);
      merges.push_back(moment_merge(left, right, values[l], values[r]));
      values[l] += values[r];
    }
    CHECK(values[0] == 41 * 6);
    const std::vector<DevPtr> outs = {parts[0], other, parts[3]};
    backend->merge_moments(parts, merges, outs, kChannels);
    for (const std::size_t at : {0, 3, 6}) {
      const std::vector<float> merged = memory[at].get();
      for (std::int64_t c = 0; c < 2 * kChannels; ++c) {
        CHECK(merged[c] == doctest::Approx(whole[c]).epsilon(c < kChannels ? 1e-6 : 1e-3));
      }
    }
  }
}

TEST_CASE("batches of many rows have the statistics and gradients of the formulas") {
  for (const std::string& name : backend_names()) {
    INFO(name);
    const std::unique_ptr<Backend> backend = make_backend(parse_device(name));
    // Numbers of channels that backends process one by one, four or eight at a time, and in several
    // tiles.
    for (const std::int64_t channels : {3, 19, 24, 64, 520}) {
      CAPTURE(channels);
      BatchNormDesc d;
      d.batch = channels == 3 ? 200 : 50;
      d.shape = {7, 6, channels};
      d.relu = channels != 24;
      std::vector<float> x = random_values(d.batch * d.shape.elements(), 1);
      for (std::size_t i = 0; i < x.size(); ++i) x[i] += static_cast<float>(i % 5);
      const std::vector<float> dy = random_values(d.batch * d.shape.elements(), 2);
      const std::vector<float> weight = random_values(channels, 3);
      const std::vector<float> bias = random_values(channels, 4);
      const std::unique_ptr<Op> op = backend->make(d);
      OpRunner runner(*backend, *op, x, weight, bias, d.batch * d.shape.elements());
      const std::vector<float> y = runner.forward();
      const OpResult result = runner.backward(dy);
      check_close("y", y,
                  reference::batch_norm(d, to_double(x), to_double(weight), to_double(bias)));
      const reference::Gradients expected = reference::batch_norm_backward(
          d, to_double(x), to_double(weight), to_double(bias), to_double(dy));
      check_close("dx", result.dx, expected.x);
      check_close("dweight", result.dweight, expected.weight);
      check_close("dbias", result.dbias, expected.bias);
    }
  }
}

/// Runs backward on a complete gradient and on its parts, and checks that the bits are the same.
/// The complete gradient is in memory of its own or in that of a part. Every array starts `shift`
/// elements after an aligned address.
template <class T>
void check_parts(Backend& backend, BatchNormDesc d, std::size_t shift) {
  d.type = std::is_same_v<T, Bf16> ? DType::bf16 : DType::f32;
  const std::unique_ptr<Op> op = backend.make(d);
  CHECK(op->completes_dy() == (backend.info().queues && d.batch_statistics));
  if (!op->completes_dy()) return;
  const auto count = static_cast<std::size_t>(d.batch * d.shape.elements());
  const auto channels = static_cast<std::size_t>(d.shape.c);
  const auto stored = [&](const std::vector<float>& values) {
    std::vector<T> all(shift);
    for (const float value : values) store(all.emplace_back(), value);
    return all;
  };
  const auto random = [&](std::uint64_t seed) {
    return random_values(static_cast<std::int64_t>(count), seed);
  };
  const std::vector<T> first = stored(random(1)), second = stored(random(2)), x = stored(random(3));
  std::vector<float> gates = random(4);
  for (std::size_t i = 0; i < count; i += 5) gates[i] = 0;
  for (std::size_t i = 0; i < count; i += 7) gates[i] = NAN;
  const std::vector<T> gate = stored(gates);
  struct Results {
    std::vector<float> dweight, dbias, saved;
    std::vector<T> dy, dx;
  };
  enum class At : std::uint8_t { own, over_first, over_second };
  const auto run = [&](const std::vector<T>& complete, bool sums, bool gated, At at) {
    const OnDevice<T> a(backend, first), b(backend, second), g(backend, gate), in(backend, x),
        dy(backend, complete.empty() ? std::vector<T>(first.size()) : complete),
        dx(backend, std::vector<T>(first.size())), y(backend, std::vector<T>(first.size()));
    const OnDevice<float> weight(backend, random_values(d.shape.c, 5)),
        bias(backend, random_values(d.shape.c, 6)), dweight(backend, std::vector<float>(channels)),
        dbias(backend, std::vector<float>(channels)),
        saved(backend, std::vector<float>(op->saved_bytes() / 4)),
        scratch(backend, std::vector<float>(op->scratch_bytes() / 4));
    const auto in_array = [&](const OnDevice<T>& array) { return array.ptr() + shift * sizeof(T); };
    OpArgs args;
    args.x = in_array(in);
    args.y = in_array(y);
    args.params[BatchNormDesc::kWeight] = {weight.ptr(), {}, dweight.ptr()};
    args.params[BatchNormDesc::kBias] = {bias.ptr(), {}, dbias.ptr()};
    args.saved = saved.ptr();
    args.scratch = scratch.ptr();
    args.values = static_cast<double>(count / channels);
    op->forward_statistics(args);
    op->forward(args);
    const OnDevice<T>& dy_array = at == At::own ? dy : at == At::over_first ? a : b;
    args.dy = in_array(dy_array);
    args.dx = in_array(dx);
    if (complete.empty()) {
      args.dy_parts.first = in_array(a);
      if (sums) args.dy_parts.second = in_array(b);
      if (gated) args.dy_parts.gate = in_array(g);
    }
    op->backward_statistics(args);
    op->backward(args);
    return Results{dweight.get(), dbias.get(), saved.get(), dy_array.get(), dx.get()};
  };
  const auto same = [&](const auto& one, const auto& other) {
    return std::memcmp(one.data(), other.data(), one.size() * sizeof one[0]) == 0;
  };
  for (const auto& [sums, gated] : {std::pair{true, true}, {true, false}, {false, true}}) {
    CAPTURE(sums);
    CAPTURE(gated);
    std::vector<T> complete = first;
    for (std::size_t i = shift; i < complete.size(); ++i) {
      if (sums) store(complete[i], to_float(first[i]) + to_float(second[i]));
      if (gated && to_float(gate[i]) <= 0) complete[i] = T{};
    }
    const Results want = run(complete, sums, gated, At::own);
    for (const At at : {At::own, At::over_first, At::over_second}) {
      if (at == At::over_second && !sums) continue;
      const Results have = run({}, sums, gated, at);
      CHECK(std::memcmp(have.dy.data() + shift, complete.data() + shift, count * sizeof(T)) == 0);
      CHECK(same(have.dx, want.dx));
      CHECK(same(have.dweight, want.dweight));
      CHECK(same(have.dbias, want.dbias));
      CHECK(same(have.saved, want.saved));
    }
  }
}

TEST_CASE("a gradient completed from its parts gives the bits of a complete one") {
  for (const std::string& name : backend_names()) {
    INFO(name);
    const std::unique_ptr<Backend> backend = make_backend(parse_device(name));
    for (const std::int64_t channels : {3, 19, 24, 64}) {
      for (const bool relu : {false, true}) {
        for (const std::size_t shift : {0, 1}) {
          CAPTURE(channels);
          CAPTURE(relu);
          CAPTURE(shift);
          BatchNormDesc d;
          d.batch = channels == 24 ? 60 : 5;  // in several chunks of rows and in one
          d.shape = {4, 3, channels};
          d.relu = relu;
          check_parts<float>(*backend, d, shift);
          check_parts<Bf16>(*backend, d, shift);
        }
      }
    }
    BatchNormDesc frozen;
    frozen.batch = 2;
    frozen.shape = {4, 3, 8};
    frozen.batch_statistics = false;
    check_parts<float>(*backend, frozen, 0);
  }
}

TEST_CASE("more pieces than one kernel merges") {
  for (const std::string& name : backend_names()) {
    INFO(name);
    const std::unique_ptr<Backend> backend = make_backend(parse_device(name));
    std::vector<OnDevice<float>> memory;
    std::vector<DevPtr> parts;
    std::vector<MomentMerge> merges;
    for (int k = 0; k < 70; ++k) {
      // One value per part: 0, 1, 2, ...; their mean is 34.5, and the sum of squares is known.
      memory.emplace_back(*backend, std::vector<float>{static_cast<float>(k), 0.0F});
      if (k > 0) merges.push_back(moment_merge(0, k, k, 1));
    }
    for (const OnDevice<float>& each : memory) parts.push_back(each.ptr());
    backend->merge_moments(parts, merges, parts, 1);
    for (const OnDevice<float>& each : memory) {
      CHECK(each.get()[0] == doctest::Approx(34.5));
      CHECK(each.get()[1] == doctest::Approx(70.0 * (70 * 70 - 1) / 12));
    }
  }
}

TEST_CASE("running statistics follow PyTorch's rule, and only an applied step") {
  for (const std::string& name : backend_names()) {
    INFO(name);
    const std::unique_ptr<Backend> backend = make_backend(parse_device(name));
    // Two statistics with momentum 0.1, two with 0.25, and two that average, followed by counters.
    const std::vector<float> start = {
        1, 2, 3, 4, 5, 6, UpdateCounter::bits(0), UpdateCounter::bits(9)};
    const std::vector<float> sums = {40, 80, 120, 160, 200, 240, 0, 0};
    const std::vector<RunningRange> ranges = {
        {0, 2, 0.1F, 6}, {2, 4, 0.25F, 6}, {4, 5, -1.0F, 6}, {5, 6, -1.0F, 7}};
    for (const auto outcome : {UpdateOutcome::applied, UpdateOutcome::refused,
                               UpdateOutcome::broken, UpdateOutcome::withheld}) {
      StepMetrics metrics;
      metrics.count.add_count(8);
      metrics.outcome = static_cast<float>(outcome);
      const OnDevice<float> params(*backend, start), gradients(*backend, sums);
      const OnDevice<StepMetrics> on_device(*backend, {metrics});
      backend->update_running(ranges, {6, 8}, {params.ptr(), gradients.ptr(), on_device.ptr()});
      const std::vector<float> now = params.get();
      if (outcome != UpdateOutcome::applied) {
        CHECK(now == start);
        continue;
      }
      const double want[] = {
          0.9 * 1 + 0.1 * 5, 0.9 * 2 + 0.1 * 10, 0.75 * 3 + 0.25 * 15, 0.75 * 4 + 0.25 * 20, 25,
          0.9 * 6 + 0.1 * 30};
      for (std::size_t i = 0; i < 6; ++i) CHECK(now[i] == doctest::Approx(want[i]));
      CHECK(UpdateCounter::count(now[6]) == 1);
      CHECK(UpdateCounter::count(now[7]) == 10);
    }
  }
}

TEST_CASE("updates are counted beyond what fp32 counts, and stop at the largest finite bits") {
  constexpr std::int32_t kMany = 1 << 24;
  for (const std::string& name : backend_names()) {
    INFO(name);
    const std::unique_ptr<Backend> backend = make_backend(parse_device(name));
    StepMetrics metrics;
    metrics.count.add_count(1);
    const OnDevice<float> params(
        *backend, {1, UpdateCounter::bits(kMany), UpdateCounter::bits(UpdateCounter::kMax)});
    const OnDevice<float> sums(*backend, std::vector<float>(3, 0.0F));
    const OnDevice<StepMetrics> on_device(*backend, {metrics});
    const std::vector<RunningRange> ranges = {{0, 1, -1.0F, 1}};
    backend->update_running(ranges, {1, 3}, {params.ptr(), sums.ptr(), on_device.ptr()});
    const std::vector<float> now = params.get();
    CHECK(now[0] == 1.0F - 1.0F / static_cast<float>(kMany + 1));
    CHECK(UpdateCounter::count(now[1]) == kMany + 1);
    CHECK(UpdateCounter::count(now[2]) == UpdateCounter::kMax);
  }
  CHECK(UpdateCounter::count(UpdateCounter::bits(-1)) == 0);
  CHECK(UpdateCounter::count(UpdateCounter::bits(std::int64_t{1} << 40)) == UpdateCounter::kMax);
  CHECK(std::isfinite(UpdateCounter::bits(UpdateCounter::kMax)));
}

TEST_CASE("the first running statistic that an update would make non-finite is found before it") {
  constexpr float kHuge = 3e38F;
  for (const std::string& name : backend_names()) {
    INFO(name);
    const std::unique_ptr<Backend> backend = make_backend(parse_device(name));
    // 1,000 statistics with momentum 0.1 from index 16 on, then one that averages, then its
    // counter.
    const std::vector<RunningRange> ranges = {{16, 1016, 0.1F, 1017}, {1016, 1017, -1.0F, 1017}};
    const auto found = [&](std::vector<std::pair<std::size_t, float>> sums, float start = 1) {
      std::vector<float> all(1018, 0.0F);
      for (const auto& [place, sum] : sums) all[place] = sum;
      StepMetrics metrics;
      metrics.count.add_count(8);
      std::vector<float> values(1018, start);
      values[1017] = UpdateCounter::bits(0);
      const OnDevice<float> params(*backend, values), gradients(*backend, all);
      const OnDevice<StepMetrics> on_device(*backend, {metrics});
      const RunningArgs args = {params.ptr(), gradients.ptr(), on_device.ptr()};
      backend->check_running(ranges, args);
      const std::uint32_t bad = on_device.get()[0].bad_statistic;
      backend->update_running(ranges, {1017, 1018}, args);
      CHECK((params.get() == values) == (bad != 0));
      return bad == 0 ? -1 : std::int64_t{StepMetrics::kFirstStatistic - bad};
    };
    CHECK(found({}) == -1);
    CHECK(found({{16, kHuge}, {1016, -kHuge}}) == -1);
    // Values other than running statistics are not checked.
    CHECK(found({{15, INFINITY}, {1017, NAN}}) == -1);
    CHECK(found({{16, INFINITY}}) == 0);
    CHECK(found({{1015, NAN}, {700, -INFINITY}, {1016, NAN}}) == 684);
    CHECK(found({{1016, NAN}}) == 1000);
    CHECK(found({}, INFINITY) == 0);
  }
}

TEST_CASE("a folded batch norm is that of the sums of the layer before it") {
  constexpr double kEps = 1e-3;
  for (const std::string& name : backend_names()) {
    INFO(name);
    const std::unique_ptr<Backend> backend = make_backend(parse_device(name));
    // Three channels with five weights each, followed by bias, gamma, beta, mean and variance.
    std::vector<float> flat = random_values(15 + 5 * 3, 11);
    for (std::size_t i = 27; i < 30; ++i) flat[i] = std::abs(flat[i]) + 0.1F;
    NormFold all{3, 5, 0, 24, 27, 15, 18, 21, 2, 20, static_cast<float>(kEps)};
    NormFold none = all;  // without the optional parameters
    none.bias = none.gamma = none.beta = NormFold::kNone;
    none.to_weight = 23;
    none.to_bias = 38;
    const OnDevice<float> params(*backend, flat), folded(*backend, std::vector<float>(43, -7.0F));
    backend->fold_norms(std::vector<NormFold>{all, none}, params.ptr(), folded.ptr());
    const std::vector<float> now = folded.get();
    CHECK(params.get() == flat);
    std::size_t written = 0;
    for (const NormFold& fold : {all, none}) {
      for (std::int64_t c = 0; c < 3; ++c) {
        const auto of = [&](std::int64_t place, double otherwise) {
          return place < 0 ? otherwise : flat[place + c];
        };
        const double scale = of(fold.gamma, 1) / std::sqrt(of(fold.running_var, 0) + kEps);
        for (std::int64_t k = 0; k < 5; ++k, ++written) {
          const auto at = static_cast<std::size_t>(c * 5 + k);
          CHECK(now[static_cast<std::size_t>(fold.to_weight) + at] ==
                doctest::Approx(flat[at] * scale).epsilon(1e-6));
        }
        const double bias =
            (of(fold.bias, 0) - of(fold.running_mean, 0)) * scale + of(fold.beta, 0);
        CHECK(now[fold.to_bias + c] == doctest::Approx(bias).epsilon(1e-5));
        ++written;
      }
    }
    CHECK(std::count(now.begin(), now.end(), -7.0F) ==
          static_cast<std::ptrdiff_t>(now.size() - written));
  }
}

TEST_CASE("batch normalisation in bf16 reads and rounds, and keeps its statistics in fp32") {
  const std::vector<float> x = random_values(7 * 6 * kChannels, 5);
  std::vector<Bf16> halves;
  std::vector<float> rounded;
  for (const float value : x) {
    halves.push_back(to_bf16(value));
    rounded.push_back(to_float(halves.back()));
  }
  for (const std::string& name : backend_names()) {
    INFO(name);
    const std::unique_ptr<Backend> backend = make_backend(parse_device(name));
    const std::unique_ptr<Op> op = backend->make(description(7, DType::bf16));
    const OnDevice<Bf16> x16(*backend, halves), y16(*backend, std::vector<Bf16>(x.size()));
    const OnDevice<float> weight(*backend, std::vector<float>(kChannels, 1.5F));
    const OnDevice<float> bias(*backend, std::vector<float>(kChannels, 0.25F));
    const OnDevice<float> saved(*backend, std::vector<float>(4 * kChannels));
    const OnDevice<float> scratch(*backend, std::vector<float>(op->scratch_bytes() / 4));
    OpArgs args;
    args.x = x16.ptr();
    args.y = y16.ptr();
    args.params[BatchNormDesc::kWeight].f32 = weight.ptr();
    args.params[BatchNormDesc::kBias].f32 = bias.ptr();
    args.saved = saved.ptr();
    args.scratch = scratch.ptr();
    args.values = 42;
    op->forward_statistics(args);
    op->forward(args);
    const std::vector<float> want = moments_of(*backend, rounded, 0, 7);
    const std::vector<float> have = saved.get();
    for (std::size_t c = 0; c < 2 * kChannels; ++c) {
      CHECK(have[c] == doctest::Approx(want[c]).epsilon(1e-5));
    }
    const std::vector<Bf16> y = y16.get();
    for (std::size_t i = 0; i < y.size(); ++i) {
      const std::size_t c = i % kChannels;
      const double inverse = 1 / std::sqrt(want[kChannels + c] / 42.0 + 1e-5);
      const double exact = (rounded[i] - want[c]) * inverse * 1.5 + 0.25;
      CHECK(std::abs(to_float(y[i]) - exact) <= std::abs(exact) / 256 + 1e-5);
    }
  }
}

}  // namespace
}  // namespace dpt::testing
