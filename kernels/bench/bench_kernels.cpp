// bench_kernels [batch ...]: compares our direct kernels with oneDNN's primitives, layer by layer,
// on one thread. Times are the minimum of many runs, to reduce the effect of other work on the
// machine. GFLOP/s count the multiply-adds that the results need. oneDNN's times exclude the ReLU,
// mask and pooling passes that the direct kernels have fused.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "kernels/base/philox.h"
#include "kernels/common/optimizers/formulas.h"
#include "kernels/cpu/direct_conv2d.h"
#include "kernels/cpu/direct_linear.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/optimizer.h"

namespace dpt {
namespace {

/// Memory initialised with random values in [-1, 1).
class Buffer {
 public:
  explicit Buffer(std::size_t floats) : values_(floats + 32) {
    for (std::size_t i = 0; i < values_.size(); ++i) {
      values_[i] = philox::uniform(philox::block(1, philox::Use::init, i, floats).v[0]) * 2 - 1;
    }
  }
  float* data() {
    const auto address = reinterpret_cast<std::uintptr_t>(values_.data());
    return reinterpret_cast<float*>((address + 63) / 64 * 64);
  }
  DevPtr ptr() { return {reinterpret_cast<std::uintptr_t>(data())}; }

 private:
  std::vector<float> values_;
};

/// Returns the minimum time of `run` in microseconds, measured for about a third of a second.
double min_us(const std::function<void()>& run) {
  using Clock = std::chrono::steady_clock;
  run();
  double minimum = 1e30;
  const auto start = Clock::now();
  for (int i = 0; i < 5 || Clock::now() - start < std::chrono::milliseconds(300); ++i) {
    const auto begin = Clock::now();
    run();
    const std::chrono::duration<double, std::micro> time = Clock::now() - begin;
    minimum = std::min(minimum, time.count());
  }
  return minimum;
}

/// A layer to measure: our Op (null if no direct kernel applies) and oneDNN's three passes.
struct Layer {
  std::string name;
  double mflop;  ///< millions of floating-point operations of one pass
  std::int64_t x, y, full_y, weights, outputs;
  std::unique_ptr<Op> op, no_dx;
  std::function<onednn::Primitive(Pass)> library;
  bool input_gradient;
};

void print_row(const std::string& name, const char* pass, double mflop, double ours,
               double theirs) {
  const auto rate = [mflop](double us) { return us > 0 ? mflop / us * 1e3 : 0; };
  fmt::print("{:<28} {:<9} {:>9.1f} us {:>6.1f} GFLOP/s | {:>9.1f} us {:>6.1f} GFLOP/s | {:.2f}\n",
             name, pass, ours, rate(ours), theirs, rate(theirs), theirs / ours);
}

void bench(Layer& layer) {
  Buffer x(layer.x), y(layer.full_y), dy(layer.full_y), dx(layer.x), weight(layer.weights);
  Buffer bias(layer.outputs), dweight(layer.weights), dbias(layer.outputs);
  std::size_t bytes = 64;
  for (const Pass pass : {Pass::forward, Pass::backward_weights, Pass::backward_data}) {
    bytes = std::max(bytes, layer.library(pass).scratch_bytes());
  }
  if (layer.op) bytes = std::max(bytes, layer.op->scratch_bytes());
  Buffer scratch(bytes / 4 + 1), saved(layer.op ? layer.op->saved_bytes() / 4 + 1 : 1);
  const auto library = [&](Pass pass) {
    onednn::Primitive primitive = layer.library(pass);
    const bool forward = pass == Pass::forward;
    const bool data = pass == Pass::backward_data;
    const bool weights = pass == Pass::backward_weights;
    return min_us([&] {
      primitive.run({data ? dx.ptr() : x.ptr(), forward ? y.ptr() : dy.ptr(),
                     weights ? dweight.ptr() : weight.ptr(),
                     data ? DevPtr{} : (weights ? dbias.ptr() : bias.ptr()), scratch.ptr()});
    });
  };
  OpArgs args;
  args.x = x.ptr();
  args.y = y.ptr();
  args.params[WeightAndBias::kWeight] = {weight.ptr(), {}, dweight.ptr()};
  args.params[WeightAndBias::kBias] = {bias.ptr(), {}, dbias.ptr()};
  args.dy = dy.ptr();
  args.dx = dx.ptr();
  args.saved = saved.ptr();
  args.scratch = scratch.ptr();
  const double forward = library(Pass::forward);
  const double weights = library(Pass::backward_weights);
  const double data = layer.input_gradient ? library(Pass::backward_data) : 0;
  if (!layer.op) {
    print_row(layer.name, "forward", layer.mflop, 0, forward);
    print_row(layer.name, "backward", layer.mflop * 2, 0, weights + data);
    return;
  }
  print_row(layer.name, "forward", layer.mflop, min_us([&] { layer.op->forward(args); }), forward);
  const double ours_weights = min_us([&] { layer.no_dx->backward(args); });
  print_row(layer.name, "weights", layer.mflop, ours_weights, weights);
  if (layer.input_gradient) {
    const double ours = min_us([&] { layer.op->backward(args); });
    print_row(layer.name, "data", layer.mflop, ours - ours_weights, data);
  }
}

struct ConvShape {
  const char* name;
  SampleShape in;
  std::int64_t channels, kernel, padding, stride;
  bool pool, first;
};

void bench_conv(const ConvShape& s, std::int64_t batch) {
  Conv2dDesc d;
  d.batch = batch;
  d.in = s.in;
  d.kernel = {s.kernel, s.kernel};
  d.padding = {s.padding, s.padding};
  d.stride = {s.stride, s.stride};
  d.conv_out = {(s.in.h + 2 * s.padding - s.kernel) / s.stride + 1,
                (s.in.w + 2 * s.padding - s.kernel) / s.stride + 1, s.channels};
  d.out = d.conv_out;
  d.relu = true;
  d.input_gradient = !s.first;
  if (s.pool) {
    d.out = {d.conv_out.h / 2, d.conv_out.w / 2, s.channels};
    Pool2dDesc pool;
    pool.kind = PoolKind::average;
    pool.batch = batch;
    pool.in = d.conv_out;
    pool.out = d.out;
    d.pool = pool;
  }
  const std::int64_t pixels = d.out.h * d.out.w * (s.pool ? 4 : 1);
  Layer layer;
  layer.name = fmt::format("{} batch {}", s.name, batch);
  layer.mflop =
      2e-6 * static_cast<double>(batch * pixels * s.kernel * s.kernel * s.in.c * s.channels);
  layer.x = batch * s.in.elements();
  layer.y = batch * d.out.elements();
  layer.full_y = batch * d.conv_out.elements();
  layer.weights = s.channels * s.kernel * s.kernel * s.in.c;
  layer.outputs = s.channels;
  layer.input_gradient = d.input_gradient;
  layer.library = [d](Pass pass) { return onednn::make_convolution(d, pass, true, 1); };
  layer.op = make_direct_conv2d(d, CpuTarget{1, CpuFeatures::detect()}, Prefer::ours);
  d.input_gradient = false;
  layer.no_dx = make_direct_conv2d(d, CpuTarget{1, CpuFeatures::detect()}, Prefer::ours);
  bench(layer);
}

void bench_linear(std::int64_t batch, std::int64_t in, std::int64_t out, bool relu) {
  LinearDesc d;
  d.batch = batch;
  d.in = in;
  d.out = out;
  d.relu = relu;
  Layer layer;
  layer.name = fmt::format("linear {}->{} batch {}", in, out, batch);
  layer.mflop = 2e-6 * static_cast<double>(batch * in * out);
  layer.x = batch * in;
  layer.y = layer.full_y = batch * out;
  layer.weights = in * out;
  layer.outputs = out;
  layer.input_gradient = true;
  layer.library = [d](Pass pass) { return onednn::make_linear(d, pass, d.relu, 1); };
  layer.op = make_direct_linear(d, CpuFeatures::detect());
  d.input_gradient = false;
  layer.no_dx = make_direct_linear(d, CpuFeatures::detect());
  bench(layer);
}

void bench_optimizer(std::int64_t count) {
  Buffer params(count), grads(count), momentum(count);
  const auto sgd = make_cpu_optimizer({formula_index<SgdFormula<true>>(), {{0, count, 0}}});
  FormulaStep<SgdFormula<true>> step;
  step.step.lr = 1e-6F;
  step.step.momentum = step.step.keep = 0.9F;
  UpdateStep block = {};
  std::memcpy(&block, &step, sizeof(step));
  const StepScalars now;
  OptimizerArgs args;
  args.params = params.ptr();
  args.grads = grads.ptr();
  args.states[0] = momentum.ptr();
  args.scalars = {reinterpret_cast<std::uintptr_t>(&now)};
  args.steps = {reinterpret_cast<std::uintptr_t>(&block)};
  const double us = min_us([&] { sgd->step(args); });
  fmt::print("SGD with momentum, {} parameters: {:.1f} us\n", count, us);
}

int run(const std::vector<std::int64_t>& batches) {
  const ConvShape shapes[] = {
      {"LeNet conv1 3x3 1->20 pool", {28, 28, 1}, 20, 3, 0, 1, true, true},
      {"LeNet conv2 5x5 20->50 pool", {13, 13, 20}, 50, 5, 0, 1, true, false},
      {"3x3 3->16 32x32", {32, 32, 3}, 16, 3, 1, 1, false, true},
      {"3x3 16->16 32x32", {32, 32, 16}, 16, 3, 1, 1, false, false},
      {"3x3 16->32 /2 32x32", {32, 32, 16}, 32, 3, 1, 2, false, false},
      {"1x1 16->32 /2 32x32", {32, 32, 16}, 32, 1, 0, 2, false, false},
      {"3x3 32->32 16x16", {16, 16, 32}, 32, 3, 1, 1, false, false},
      {"3x3 64->64 8x8", {8, 8, 64}, 64, 3, 1, 1, false, false},
  };
  fmt::print("{:<28} {:<9} {:>28} | {:>28} | ratio\n", "layer", "pass", "direct", "oneDNN");
  for (const std::int64_t batch : batches) {
    for (const ConvShape& shape : shapes) bench_conv(shape, batch);
    bench_linear(batch, 800, 128, true);
    bench_linear(batch, 128, 10, false);
  }
  bench_optimizer(129068);
  return 0;
}

}  // namespace
}  // namespace dpt

int main(int argc, char** argv) {
  std::vector<std::int64_t> batches;
  for (int i = 1; i < argc; ++i) batches.push_back(std::max(1L, std::atol(argv[i])));
  if (batches.empty()) batches = {32, 1};
  return dpt::run(batches);
}
