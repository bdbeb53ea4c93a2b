// The check of one operation: right kernels pass on every backend, and wrong ones are found.
#include <doctest/doctest.h>

#include <map>
#include <set>

#include "engine/self_check/operation_check.h"
#include "engine/self_check/operation_text.h"
#include "engine/self_check/self_check.h"
#include "kernels/devices.h"
#include "tests/support/backends.h"
#include "tests/support/reference_backend.h"

namespace dpt::testing {
namespace {

Conv2dDesc convolution() {
  Conv2dDesc d;
  d.batch = 5;
  d.in = {9, 7, 6};
  d.conv_out = d.out = {9, 7, 10};
  d.kernel = {3, 3};
  d.padding = {1, 1};
  return d;
}

Conv2dDesc convolution_with_pool(PoolKind kind) {
  Conv2dDesc d = convolution();
  d.relu = true;
  d.out = {4, 3, 10};
  d.pool = Pool2dDesc{};
  d.pool->kind = kind;
  d.pool->in = d.conv_out;
  d.pool->out = d.out;
  d.pool->batch = d.batch;
  return d;
}

/// Returns a convolution whose reference would take too long with dense inputs.
Conv2dDesc large_convolution() {
  Conv2dDesc d;
  d.batch = 3;
  d.in = {14, 14, 128};
  d.conv_out = d.out = {14, 14, 128};
  d.kernel = {3, 3};
  d.padding = {1, 1};
  d.relu = true;
  return d;
}

LinearDesc linear() {
  LinearDesc d;
  d.batch = 7;
  d.in = 33;
  d.out = 12;
  d.relu = true;
  return d;
}

BatchNormDesc batch_norm() {
  BatchNormDesc d;
  d.batch = 4;
  d.shape = {5, 6, 19};
  d.relu = true;
  return d;
}

/// Returns at least one operation of each kind.
std::vector<OpDesc> operations() {
  std::vector<OpDesc> all = {convolution(),
                             convolution_with_pool(PoolKind::max),
                             convolution_with_pool(PoolKind::average),
                             large_convolution(),
                             linear(),
                             batch_norm()};
  Conv2dDesc first = convolution();
  first.input_gradient = false;
  first.bias = false;
  first.relu = true;
  all.emplace_back(first);
  Conv2dDesc strided = convolution();
  strided.conv_out = strided.out = {5, 4, 10};
  strided.stride = {2, 2};
  strided.groups = 2;
  all.emplace_back(strided);
  ConvTranspose2dDesc transposed;
  transposed.batch = 3;
  transposed.in = {4, 5, 6};
  transposed.out = {8, 10, 4};
  transposed.kernel = transposed.stride = {2, 2};
  all.emplace_back(transposed);
  BatchNormDesc frozen = batch_norm();
  frozen.batch_statistics = false;
  all.emplace_back(frozen);
  BatchNormDesc plain = batch_norm();
  plain.relu = plain.affine = false;
  all.emplace_back(plain);
  const SampleShape shape = {6, 5, 8};
  Pool2dDesc pool;
  pool.batch = 3;
  pool.in = shape;
  pool.out = {3, 2, 8};
  all.emplace_back(pool);
  pool.input_gradient = false;  // training does not run its backward
  all.emplace_back(pool);
  Conv2dDesc overlapping = convolution_with_pool(PoolKind::max);
  overlapping.pool->kernel = {3, 3};
  overlapping.pool->stride = {1, 1};
  overlapping.out = overlapping.pool->out = {7, 5, 10};
  all.emplace_back(overlapping);
  for (const std::int64_t channels : {5, 10, 60, 64}) {  // two values for each statistic
    BatchNormDesc vector = batch_norm();
    vector.batch = 2;
    vector.shape = {1, 1, channels};
    all.emplace_back(vector);
    GroupNormDesc small;
    small.batch = 2;
    small.shape = {1, 1, 2 * channels};
    small.groups = channels;
    all.emplace_back(small);
  }
  all.emplace_back(ReluDesc{3, shape});
  all.emplace_back(ActivationDesc{activations::Gelu{}, 3, shape});
  for (const SampleShape& large : {SampleShape{28, 28, 6}, SampleShape{1, 1, 64}}) {
    all.emplace_back(ActivationDesc{activations::Tanh{}, 32, large});
    all.emplace_back(ActivationDesc{activations::Sigmoid{}, 32, large});
  }
  for (const std::int64_t size : {3, 8}) {
    ConvTranspose2dDesc decoder;
    decoder.batch = 32;
    decoder.in = {size, size, 64};
    decoder.out = {2 * size, 2 * size, 32};
    decoder.kernel = decoder.stride = {2, 2};
    all.emplace_back(decoder);
  }
  DropoutDesc dropout;
  dropout.batch = 3;
  dropout.shape = shape;
  all.emplace_back(dropout);
  SumDesc sum{3, shape};
  sum.relu = true;
  all.emplace_back(sum);
  all.emplace_back(ConcatDesc{3, {shape, {6, 5, 3}}, false, {6, 5, 11}});
  all.emplace_back(ProductDesc{3, {shape, SampleShape{1, 1, 8}}, shape});
  all.emplace_back(PixelMapDesc{3, shape, {12, 10, 8}, {2, 2}});
  GroupNormDesc group;
  group.batch = 3;
  group.shape = shape;
  group.groups = 2;
  all.emplace_back(group);
  ChannelScaleDesc scale;
  scale.batch = 3;
  scale.shape = shape;
  scale.negative_only = true;
  all.emplace_back(scale);
  return all;
}

/// Sets the type of activations.
OpDesc as_bf16(OpDesc desc) {
  std::visit([](auto& d) { d.type = DType::bf16; }, desc);
  if (auto* conv = std::get_if<Conv2dDesc>(&desc); conv && conv->pool) {
    conv->pool->type = DType::bf16;
  }
  return desc;
}

TEST_CASE("every operation passes its check on every backend, in fp32 and bf16") {
  for (const bool exact : {false, true}) {
    for (const std::string& name : backend_names()) {
      INFO(name);
      BackendOptions options;
      options.exact = exact;
      const std::unique_ptr<Backend> backend = make_backend(parse_device(name), options);
      for (const OpDesc& desc : operations()) {
        const OperationCheck check = check_operation(*backend, desc, exact);
        INFO(check.operation, " (", check.implementation, ")");
        INFO(check.problem);
        CHECK(check.problem.empty());
        CHECK(!check.implementation.empty());
        if (!backend->info().queues && !cpu_info().bf16) continue;
        CHECK(check_operation(*backend, as_bf16(desc), exact).problem == "");
      }
    }
  }
}

TEST_CASE("a CPU runs the kernels that the whole batch has") {
  const std::unique_ptr<Backend> backend = make_backend(parse_device("cpu"));
  Conv2dDesc d = large_convolution();
  d.batch = 32;
  d.in = d.conv_out = d.out = {8, 8, 256};
  d.conv_out.c = d.out.c = 256;
  const OperationCheck check = check_operation(*backend, d, true);
  CHECK(check.problem == "");
  CHECK(check.implementation == backend->make(d)->implementation());
}

TEST_CASE("a CPU avoids kernels, down to those that nothing can replace") {
  std::vector<OpDesc> descs = {large_convolution(), convolution(), linear(), batch_norm()};
  if (cpu_info().bf16) {
    Conv2dDesc conv = convolution();
    conv.type = DType::bf16;
    if (conv.pool) conv.pool->type = DType::bf16;
    BatchNormDesc norm = batch_norm();
    norm.type = DType::bf16;
    descs.insert(descs.end(), {conv, norm});
  }
  for (const OpDesc& desc : descs) {
    const std::unique_ptr<Backend> backend = make_backend(parse_device("cpu"));
    std::set<std::string> avoided;
    for (;;) {
      const std::unique_ptr<Op> op = backend->make(desc);
      const OperationCheck check = check_operation(*backend, desc, true);
      INFO(check.operation, " (", check.implementation, ")");
      CHECK(check.problem == "");
      const std::string kernel = op->replaceable_kernel(Pass::forward);
      if (kernel.empty()) break;
      CHECK(op->implementation().find(kernel) != std::string::npos);
      REQUIRE(avoided.insert(kernel).second);
      backend->avoid(avoided);
    }
  }
}

/// Changes the memory of an operation after one direction has run.
struct Fault {
  std::string name;
  bool backward = false;
  std::function<void(const OpArgs&)> change;
};

/// An operation of the reference backend with a fault.
class BrokenOp final : public Op {
 public:
  BrokenOp(std::unique_ptr<Op> op, const Fault& fault) : op_(std::move(op)), fault_(fault) {}
  std::size_t scratch_bytes() const override { return op_->scratch_bytes(); }
  std::size_t saved_bytes() const override { return op_->saved_bytes(); }
  bool backward_needs_x() const override { return op_->backward_needs_x(); }
  bool backward_needs_y() const override { return op_->backward_needs_y(); }
  bool backward_keeps_dy() const override { return op_->backward_keeps_dy(); }
  bool completes_dy() const override { return op_->completes_dy(); }
  std::int64_t coupled_channels() const override { return op_->coupled_channels(); }
  void forward_statistics(const OpArgs& args) override { op_->forward_statistics(args); }
  void backward_statistics(const OpArgs& args) override { op_->backward_statistics(args); }
  void forward(const OpArgs& args) override {
    op_->forward(args);
    if (!fault_.backward) fault_.change(args);
  }
  void backward(const OpArgs& args) override {
    op_->backward(args);
    if (fault_.backward) fault_.change(args);
  }
  std::string implementation() const override { return "broken"; }

 private:
  std::unique_ptr<Op> op_;
  const Fault& fault_;
};

class BrokenBackend final : public ReferenceBackend {
 public:
  explicit BrokenBackend(const Fault& fault) : ReferenceBackend(Keep::saved), fault_(fault) {}
  std::unique_ptr<Op> make(const OpDesc& desc) override {
    return std::make_unique<BrokenOp>(ReferenceBackend::make(desc), fault_);
  }

 private:
  const Fault& fault_;
};

/// Returns the problem that the check of `desc` finds with a fault.
std::string found(const OpDesc& desc, const Fault& fault) {
  BrokenBackend backend(fault);
  return check_operation(backend, desc, true).problem;
}

TEST_CASE("a kernel that is wrong at one place is found, with the place") {
  const Conv2dDesc d = convolution();
  const auto y_count = static_cast<std::size_t>(2 * d.out.elements());
  const auto x_count = static_cast<std::size_t>(2 * d.in.elements());
  const std::size_t weights = 10 * 9 * 6;
  // The errors are those of a product that is missing or counted twice, and of one bit of a
  // mantissa.
  for (const float error : {0.02F, -0.02F, 0.001F}) {
    for (const std::size_t at : {std::size_t{0}, y_count / 2, y_count - 1}) {
      const Fault fault{"output", false, [&](const OpArgs& args) { host(args.y)[at] += error; }};
      const std::string problem = found(d, fault);
      CHECK(problem.find("output, element " + std::to_string(at) + " of ") == 0);
    }
    for (const std::size_t at : {std::size_t{0}, x_count - 1}) {
      const Fault fault{"dx", true, [&](const OpArgs& args) { host(args.dx)[at] += error; }};
      CHECK(found(d, fault).find("gradient of the input, element " + std::to_string(at)) == 0);
    }
    for (const std::size_t at : {std::size_t{0}, weights / 2, weights - 1}) {
      const Fault fault{"weight", true, [&](const OpArgs& args) {
                          host(args.params[d.kWeight].gradient)[at] += error;
                        }};
      CHECK(found(d, fault).find("gradient of weight, element " + std::to_string(at)) == 0);
    }
    const Fault fault{"bias", true,
                      [&](const OpArgs& args) { host(args.params[d.kBias].gradient)[9] += error; }};
    CHECK(found(d, fault).find("gradient of bias, element 9 of 10: ") == 0);
  }
}

TEST_CASE("faults of whole rows, signs, writes and repetitions are found") {
  const Conv2dDesc d = convolution();
  const auto y_count = static_cast<std::size_t>(2 * d.out.elements());
  const auto x_count = static_cast<std::size_t>(2 * d.in.elements());
  int calls = 0;
  const std::vector<Fault> faults = {
      {"the second sample is that of the first", false,
       [&](const OpArgs& a) {
         std::memcpy(host(a.y) + y_count / 2, host(a.y), y_count / 2 * sizeof(float));
       }},
      {"the last row is not written", false,
       [&](const OpArgs& a) { std::fill_n(host(a.y) + y_count - 70, 70, NAN); }},
      {"two channels are exchanged", false,
       [&](const OpArgs& a) {
         for (std::size_t i = 0; i < y_count; i += 10) std::swap(host(a.y)[i], host(a.y)[i + 1]);
       }},
      {"a write past the end", false, [&](const OpArgs& a) { host(a.y)[y_count] = 0; }},
      {"a write past the end of a gradient", true,
       [&](const OpArgs& a) { host(a.params[1].gradient)[10] = 0; }},
      {"the border of dx is 0", true,
       [&](const OpArgs& a) { std::fill_n(host(a.dx), 7 * 6, 0.0F); }},
      {"dx has the wrong sign", true,
       [&](const OpArgs& a) {
         for (std::size_t i = 0; i < x_count; ++i) host(a.dx)[i] *= -1;
       }},
      {"the last tap is missing", true,
       [&](const OpArgs& a) {
         for (std::size_t o = 0; o < 10; ++o) {
           std::fill_n(host(a.params[0].gradient) + o * 54 + 48, 6, 0.0F);
         }
       }},
      {"added gradients overwrite", true,
       [&](const OpArgs& a) {
         if (a.write == GradWrite::add) host(a.params[1].gradient)[3] /= 2;
       }},
      {"a bit flips now and then", false,
       [&](const OpArgs& a) {
         if (++calls % 2 == 0) host(a.y)[5] = std::nextafter(host(a.y)[5], 10.0F);
       }},
      {"infinity", true, [&](const OpArgs& a) { host(a.dx)[3] = INFINITY; }}};
  for (const Fault& fault : faults) {
    INFO(fault.name);
    CHECK(!found(d, fault).empty());
  }
}

TEST_CASE("faults of a gradient that backward completes are found") {
  const Fault none{"none", true, [](const OpArgs&) {}};
  CHECK(found(batch_norm(), none).empty());
  const Fault ungated{"no gate", true, [](const OpArgs& args) {
                        if (args.dy_parts.gate) host(args.dy)[5] = 3;
                      }};
  CHECK(found(batch_norm(), ungated) ==
        "when backward completes the gradient of the output: gradient of the output, which "
        "backward must keep, element 5 of 1140: 3; expected 0, tolerance 9.9e-06");
  const Fault dx{"dx", true, [](const OpArgs& args) {
                   if (args.dy_parts.second) host(args.dx)[7] += 0.01F;
                 }};
  CHECK(found(batch_norm(), dx)
            .find("when backward completes the gradient of the output: gradient "
                  "of the input, element 7") == 0);
}

TEST_CASE("faults of sparse checks are found: wrong taps and channels of a large convolution") {
  // The reference backend reads a shifted or exchanged weight.
  const Conv2dDesc d = large_convolution();
  class Shifted final : public ReferenceBackend {
   public:
    Shifted(std::size_t from, std::size_t to) : from_(from), to_(to) {}
    std::unique_ptr<Op> make(const OpDesc& desc) override {
      class Swapped final : public ReferenceOp {
       public:
        Swapped(const OpDesc& desc, std::size_t from, std::size_t to)
            : ReferenceOp(reference::maths_of(desc), Keep::activations), from_(from), to_(to) {}
        void forward(const OpArgs& args) override {
          float* weight = host(args.params[0].f32);
          std::swap(weight[from_], weight[to_]);
          ReferenceOp::forward(args);
          std::swap(weight[from_], weight[to_]);
        }
        void backward(const OpArgs&) override {}

       private:
        std::size_t from_, to_;
      };
      return std::make_unique<Swapped>(desc, from_, to_);
    }

   private:
    std::size_t from_, to_;
  };
  const std::size_t taps = 9, in = 128;
  for (const auto& [from, to] : std::vector<std::pair<std::size_t, std::size_t>>{
           {0, in}, {4 * in, 5 * in}, {127 * taps * in + 8 * in + 127, 127 * taps * in + 126}}) {
    Shifted backend(from, to);
    CHECK(check_operation(backend, d, true).problem.find("output, element ") == 0);
  }
}

TEST_CASE("operations that a backend may compute by other kernels have other texts") {
  std::map<std::string, int> texts;
  for (const OpDesc& desc : operations()) {
    ++texts[operation_text(desc)];
    ++texts[operation_text(as_bf16(desc))];
  }
  for (const auto& [text, count] : texts) {
    INFO(text);
    CHECK(count == 1);
  }
  CHECK(operation_text(convolution_with_pool(PoolKind::max)) ==
        "Conv2d 3x3 of 5 x 9x7x6 to 4x3x10, padding 1x1, bias, ReLU, then MaxPool2d 2x2 of "
        "9x7x10, fp32");
}

TEST_CASE("the error about wrong kernels names the ways out") {
  const OperationCheck fp32 = {operation_text(linear()), "dnnl", "output, element 3 of 84", {}, 0};
  LinearDesc d = linear();
  d.type = DType::bf16;
  const OperationCheck bf16 = {operation_text(d), "direct", "output, element 5 of 84", {}, 0};
  const std::string way_out =
      "nothing was trained. `train.precision=fp32` trains without these kernels";
  const auto offers = [&](const std::vector<OperationCheck>& wrong, bool on_cpu) {
    const std::string text = wrong_kernels_text(wrong, on_cpu);
    CHECK(
        text.ends_with("`train.self_check=never` trains with these kernels, and so perhaps with "
                       "wrong values"));
    return text.find(way_out) != std::string::npos;
  };
  CHECK(offers({bf16}, true));
  CHECK_FALSE(offers({bf16}, false));
  CHECK_FALSE(offers({bf16, fp32}, true));
  CHECK(wrong_kernels_text(std::vector<OperationCheck>(10, fp32), true)
            .find("\n  and 2 more\nnothing was trained. If a second") != std::string::npos);
}

}  // namespace
}  // namespace dpt::testing
