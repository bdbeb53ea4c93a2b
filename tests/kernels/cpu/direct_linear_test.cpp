// dpt's own linear layer in many sizes: results match the double-precision reference, and have
// equal bits on repetition and for a sample in any batch.
#include <doctest/doctest.h>

#include <cstring>

#include "kernels/cpu/direct_linear.h"
#include "kernels/reference/reference.h"
#include "tests/support/close.h"
#include "tests/support/op_runner.h"
#include "tests/support/skip.h"

namespace dpt::testing {
namespace {

LinearDesc linear_case(std::int64_t batch, std::int64_t in, std::int64_t out, bool relu,
                       bool bias = true) {
  LinearDesc d;
  d.batch = batch;
  d.in = in;
  d.out = out;
  d.relu = relu;
  d.bias = bias;
  return d;
}

void check(Backend& backend, const LinearDesc& d) {
  const auto op = make_direct_linear(d, CpuFeatures::detect());
  REQUIRE(op);
  INFO("linear ", d.in, " -> ", d.out, ", batch ", d.batch, ", relu ", d.relu, ", bias ", d.bias);
  const auto x = random_values(d.batch * d.in, 1), weight = random_values(d.in * d.out, 2);
  const auto bias = d.bias ? random_values(d.out, 3) : std::vector<float>();
  const auto dy = random_values(d.batch * d.out, 4);
  OpRunner runner(backend, *op, x, weight, bias, d.batch * d.out);
  check_close("y", runner.forward(),
              reference::linear(d, to_double(x), to_double(weight), to_double(bias)), 1e-5);
  auto want = reference::linear_backward(d, to_double(x), to_double(weight), to_double(bias),
                                         to_double(dy));
  const OpResult got = runner.backward(dy);
  check_close("dx", got.dx, want.x, 1e-5);
  check_close("dweight", got.dweight, want.weight, 1e-5);
  check_close("dbias", got.dbias, want.bias, 1e-5);
  const OpResult added = runner.backward(dy, GradWrite::add);
  CHECK(added.dx == got.dx);
  for (double& v : want.weight) v *= 2;
  for (double& v : want.bias) v *= 2;
  check_close("added dweight", added.dweight, want.weight, 1e-5);
  check_close("added dbias", added.dbias, want.bias, 1e-5);
  const OpResult third = runner.backward(dy);
  CHECK(third.dweight == got.dweight);
  CHECK(third.dbias == got.dbias);
}

}  // namespace

TEST_CASE("Direct linear layers of many sizes equal the reference") {
  if (!CpuFeatures::detect().avx2) {
    testing::skip_test("this processor has no AVX2");
    return;
  }
  const auto backend = make_cpu_backend(1);
  for (const std::int64_t batch : {1, 2, 3, 5, 8, 13, 130, 257}) {
    for (const std::int64_t in : {1, 7, 8, 33, 100}) {
      for (const std::int64_t out : {1, 2, 9, 10, 31}) {
        check(*backend, linear_case(batch, in, out, (batch + in + out) % 2 == 0, out != 9));
      }
    }
  }
  check(*backend, linear_case(9, 800, 128, true));
  check(*backend, linear_case(2, 5000, 3, false));
}

TEST_CASE("Direct linear layers give a sample the same bits in any batch") {
  if (!CpuFeatures::detect().avx2) return;
  const auto backend = make_cpu_backend(1);
  const std::int64_t in = 75, out = 26;
  const auto x = random_values(7 * in, 1), weight = random_values(in * out, 2);
  const auto bias = random_values(out, 3), dy = random_values(7 * out, 4);
  const auto seven = make_direct_linear(linear_case(7, in, out, true), CpuFeatures::detect());
  const auto single = make_direct_linear(linear_case(1, in, out, true), CpuFeatures::detect());
  OpRunner all(*backend, *seven, x, weight, bias, 7 * out);
  all.forward();
  const OpResult want = all.backward(dy);
  for (std::int64_t n = 0; n < 7; ++n) {
    OpRunner one(*backend, *single, {x.begin() + n * in, x.begin() + (n + 1) * in}, weight, bias,
                 out);
    const std::vector<float> y = one.forward();
    const OpResult got = one.backward({dy.begin() + n * out, dy.begin() + (n + 1) * out});
    CHECK(std::memcmp(y.data(), want.y.data() + n * out, y.size() * 4) == 0);
    CHECK(std::memcmp(got.dx.data(), want.dx.data() + n * in, got.dx.size() * 4) == 0);
  }
}

TEST_CASE("Descriptions that the direct linear layers leave to the library") {
  const CpuFeatures features = CpuFeatures::detect();
  const LinearDesc fine = linear_case(2, 3, 4, true);
  CHECK(static_cast<bool>(make_direct_linear(fine, features)) == features.avx2);
  CHECK(!make_direct_linear(fine, CpuFeatures{}));
  LinearDesc half = fine;
  half.type = DType::bf16;
  CHECK(!make_direct_linear(half, features));
  CHECK(!make_direct_linear(linear_case(0, 3, 4, true), features));
}

}  // namespace dpt::testing
