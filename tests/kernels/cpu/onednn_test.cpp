// oneDNN must have fast implementations for ordinary layers.
#include "kernels/cpu/onednn.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/common/bf16.h"
#include "kernels/cpu/ops.h"
#include "kernels/devices.h"
#include "kernels/reference/reference.h"
#include "tests/kernels/cases.h"
#include "tests/support/close.h"
#include "tests/support/op_runner.h"

namespace dpt::testing {
namespace {

constexpr Pass kPasses[] = {Pass::forward, Pass::backward_data, Pass::backward_weights};

/// Returns the convolutions of LeNet, ResNet-20 and ResNet-18 with a CIFAR stem.
std::vector<Conv2dDesc> ordinary_convolutions() {
  std::vector<Conv2dDesc> cases;
  for (const std::int64_t batch : {1, 32, 256}) {
    cases.push_back(conv_case(batch, {28, 28, 1}, 20, {3, 3}));
    cases.push_back(conv_case(batch, {28, 28, 1}, 6, {5, 5}, {1, 1}, {2, 2}));
    cases.push_back(conv_case(batch, {8, 8, 1}, 16, {3, 3}, {1, 1}, {1, 1}));
    cases.push_back(conv_case(batch, {13, 13, 20}, 50, {5, 5}));
    cases.push_back(conv_case(batch, {14, 14, 6}, 16, {5, 5}));
    cases.push_back(conv_case(batch, {32, 32, 3}, 16, {3, 3}, {1, 1}, {1, 1}));
    cases.push_back(conv_case(batch, {32, 32, 16}, 16, {3, 3}, {1, 1}, {1, 1}));
    cases.push_back(conv_case(batch, {32, 32, 16}, 32, {3, 3}, {2, 2}, {1, 1}));
    cases.push_back(conv_case(batch, {32, 32, 16}, 32, {1, 1}, {2, 2}));
    cases.push_back(conv_case(batch, {16, 16, 32}, 64, {3, 3}, {2, 2}, {1, 1}));
    cases.push_back(conv_case(batch, {8, 8, 64}, 64, {3, 3}, {1, 1}, {1, 1}));
    cases.push_back(conv_case(batch, {8, 8, 64}, 64, {1, 1}));
  }
  cases.push_back(conv_case(8, {32, 32, 3}, 64, {3, 3}, {1, 1}, {1, 1}));
  cases.push_back(conv_case(8, {4, 4, 512}, 512, {3, 3}, {1, 1}, {1, 1}));
  cases.push_back(conv_case(8, {224, 224, 3}, 64, {7, 7}, {2, 2}, {3, 3}));
  return cases;
}

TEST_CASE("oneDNN runs no ordinary convolution by a reference implementation") {
  for (const Conv2dDesc& d : ordinary_convolutions()) {
    for (const Pass pass : kPasses) {
      for (const int threads : {1, 2}) {
        const onednn::Primitive p =
            onednn::make_convolution(d, pass, pass == Pass::forward, threads);
        INFO(text(d), " pass ", static_cast<int>(pass), " threads ", threads, ": ",
             p.implementation());
        CHECK(!p.is_reference());
      }
    }
  }
}

TEST_CASE("oneDNN runs no linear layer by a reference implementation") {
  const std::int64_t shapes[][2] = {{800, 128}, {128, 10}, {64, 10}, {1, 1}, {512, 1000}};
  for (const std::int64_t batch : {1, 7, 256}) {
    for (const auto& shape : shapes) {
      LinearDesc d;
      d.batch = batch;
      d.in = shape[0];
      d.out = shape[1];
      for (const Pass pass : kPasses) {
        const onednn::Primitive p = onednn::make_linear(d, pass, pass == Pass::forward, 1);
        INFO("linear ", d.in, " -> ", d.out, " batch ", batch, " pass ", static_cast<int>(pass),
             ": ", p.implementation());
        CHECK(!p.is_reference());
      }
    }
  }
}

TEST_CASE("strided 1x1 convolutions stay in their scratch memory") {
  for (const int threads : {1, 2, 4}) {
    const auto backend = make_cpu_backend(threads);
    for (const std::int64_t channels : {8, 16, 24}) {
      const Conv2dDesc d = conv_case(4, {56, 56, channels}, 8, {1, 1}, {2, 2});
      const auto op = make_cpu_op(d, CpuTarget{threads, {}});
      INFO(text(d), " by ", op->implementation(), " on ", threads, " threads");
      const auto x = random_values(d.batch * d.in.elements(), 1);
      const auto weight = random_values(weight_count(d), 2), bias = random_values(d.out.c, 3);
      const auto dy = random_values(d.batch * d.out.elements(), 4);
      OpRunner runner(*backend, *op, x, weight, bias, d.batch * d.out.elements());
      runner.forward();
      const OpResult got = runner.backward(dy);
      const auto want = reference::conv2d_backward(d, to_double(x), to_double(weight),
                                                   to_double(bias), to_double(dy));
      check_close("dweight", got.dweight, want.weight, 1e-5);
    }
  }
}

TEST_CASE("the gradient of a large linear layer is written completely") {
  const std::unique_ptr<Backend> backend = make_cpu_backend(2);
  const std::int64_t shapes[][2] = {{6160, 80}, {6272, 100}, {8192, 65}, {8192, 144}, {6144, 80}};
  for (const auto& shape : shapes) {
    for (const auto& [type, bias] : {std::pair(DType::f32, true), std::pair(DType::f32, false),
                                     std::pair(DType::bf16, true), std::pair(DType::bf16, false)}) {
      if (type == DType::bf16 && !cpu_info().bf16) continue;
      LinearDesc d;
      d.bias = bias;
      d.batch = 3;
      d.in = shape[0];
      d.out = shape[1];
      d.type = type;
      const auto outputs = static_cast<std::size_t>(d.out);
      const auto weights = static_cast<std::size_t>(d.in) * outputs;
      const std::size_t count = static_cast<std::size_t>(d.batch * (d.in + d.out));
      onednn::Primitive p = onednn::make_linear(d, Pass::backward_weights, false, 2);
      INFO("linear ", d.in, " -> ", d.out, ", ", name_of(type), ": ", p.implementation());
      CHECK(!p.is_reference());
      // All x and dy are 1, so every gradient is the batch.
      const OnDevice<float> ones(*backend, std::vector<float>(count, 1.0F));
      const OnDevice<Bf16> halves(*backend, std::vector<Bf16>(count, to_bf16(1.0F)));
      const OnDevice<float> dweight(*backend, std::vector<float>(weights, NAN)),
          dbias(*backend, std::vector<float>(outputs, NAN)),
          scratch(*backend, std::vector<float>(p.scratch_bytes() / sizeof(float) + 1));
      const DevPtr x = type == DType::bf16 ? halves.ptr() : ones.ptr();
      p.run({x, x, dweight.ptr(), dbias.ptr(), scratch.ptr()});
      const std::vector<float> got = dweight.get();
      CHECK(std::count(got.begin(), got.end(), 3.0F) == static_cast<std::ptrdiff_t>(weights));
    }
  }
}

}  // namespace
}  // namespace dpt::testing
