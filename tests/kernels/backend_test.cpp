// Memory and ordering of a backend, and guarantees that concern all of its kernels.
#include "kernels/backend.h"

#include <doctest/doctest.h>

#include <chrono>
#include <cstring>
#include <limits>
#include <numeric>

#include "kernels/base/error.h"
#include "kernels/base/host.h"
#include "kernels/cpu/onednn.h"
#include "kernels/devices.h"
#include "tests/kernels/cases.h"
#include "tests/support/backends.h"
#include "tests/support/op_runner.h"

namespace dpt::testing {
namespace {

TEST_CASE("memory is aligned, copied both ways and zeroed") {
  for (const std::string& name : backend_names()) {
    const auto backend = make_backend(parse_device(name));
    CHECK(backend->info().name == name);
    CHECK(!backend->info().instruction_set.empty());
    std::vector<std::byte> host(1001);
    for (std::size_t i = 0; i < host.size(); ++i) host[i] = static_cast<std::byte>(i);
    const DeviceMemory a = backend->allocate(host.size(), "a");
    const DeviceMemory b = backend->allocate(host.size(), "b");
    CHECK(a.ptr().address % 64 == 0);
    CHECK(a.bytes() == host.size());
    CHECK(!(a.ptr() == b.ptr()));
    backend->upload(a.ptr(), host.data(), host.size());
    backend->copy(b.ptr(), a.ptr(), host.size());
    backend->zero(b.ptr() + 10, 5);
    std::vector<std::byte> back(host.size());
    backend->download(back.data(), b.ptr(), back.size());
    backend->wait(backend->record());
    std::fill_n(host.begin() + 10, 5, std::byte{0});
    CHECK(back == host);
    CHECK(!backend->allocate(0, "nothing").ptr());

    const DeviceMemory resident = backend->make_resident(host, "data");
    backend->download(back.data(), resident.ptr(), back.size());
    backend->synchronize();
    CHECK(back == host);
  }
}

TEST_CASE("the phases of a step are timed in the order of the queue, a captured graph's too") {
  for (const std::string& name : backend_names()) {
    CAPTURE(name);
    const auto backend = make_backend(parse_device(name));
    const DeviceMemory memory = backend->allocate(sizeof(PhaseTimes), "times of a step");
    const DeviceMemory work = backend->allocate(std::size_t{4} << 20, "work");
    const auto step = [&] {
      backend->begin_phases(memory.ptr());
      backend->zero(work.ptr(), work.bytes());
      backend->end_phase(memory.ptr(), StepPhase::forward);
      backend->end_phase(memory.ptr(), StepPhase::sum);
      backend->zero(work.ptr(), work.bytes());
      backend->end_phase(memory.ptr(), StepPhase::forward);
    };
    PhaseTimes first, second;
    const auto begun = std::chrono::steady_clock::now();
    step();
    backend->download(&first, memory.ptr(), sizeof(PhaseTimes));
    backend->synchronize();
    const auto passed = static_cast<std::uint64_t>(
        std::chrono::nanoseconds(std::chrono::steady_clock::now() - begun).count());
    if (const auto graph = backend->capture(step)) {
      backend->replay(*graph);
    } else {
      step();
    }
    backend->download(&second, memory.ptr(), sizeof(PhaseTimes));
    backend->synchronize();
    for (const PhaseTimes& times : {first, second}) {
      CHECK(times.spent[0] > 0);
      CHECK(times.spent[1] == 0);  // the phase did not end
      CHECK(times.spent[3] == 0);
    }
    // A clock that advances in steps of a microsecond may be one step ahead at each end.
    CHECK(first.spent[0] + first.spent[2] <= passed + 4000);
    CHECK(second.last > first.last);
  }
}

TEST_CASE("a CPU says what it is") {
  for (const int threads : {1, 3}) {
    const DeviceInfo info = make_cpu_backend(threads)->info();
    CHECK(info.name == (threads == 1 ? "cpu" : "cpu:3"));
    CHECK(info.description == host_system::processor_model());
    CHECK(info.instruction_set == cpu_info().instruction_set);
    CHECK(info.library == onednn::version());
    CHECK(info.threads == threads);
    CHECK_FALSE(info.queues);
  }
}

TEST_CASE("device memory moves and is freed once") {
  static int freed = 0;
  {
    DeviceMemory a({64}, 8, [](DevPtr, std::size_t) { ++freed; });
    DeviceMemory b = std::move(a);
    CHECK(b.ptr().address == 64);
    DeviceMemory c;
    c = std::move(b);
    CHECK(freed == 0);
    c = DeviceMemory();
    CHECK(freed == 1);
  }
  CHECK(freed == 1);
}

TEST_CASE("too large a request names what, how much and what is free") {
  for (const std::string& name : backend_names()) {
    const auto backend = make_backend(parse_device(name));
    for (const std::size_t bytes :
         {std::size_t{1} << 50, std::numeric_limits<std::size_t>::max()}) {
      try {
        backend->allocate(bytes, "the activations of 4096 samples");
        FAIL("nothing was thrown");
      } catch (const Error& error) {
        INFO(error.what());
        CHECK(error.kind() == ErrorKind::device);
        const std::string text = error.what();
        CHECK(text.find("the activations of 4096 samples") != std::string::npos);
        CHECK(text.find(" are free") != std::string::npos);
        if (bytes == std::size_t{1} << 50)
          CHECK(text.find("1073741824.0 MiB") != std::string::npos);
      }
    }
  }
}

TEST_CASE("a request that Linux would grant and kill for later is refused") {
  const auto backend = make_cpu_backend(1);
  const host_system::Memory memory = host_system::memory();
  CHECK_THROWS_AS(backend->allocate(memory.free / 2 + memory.total / 2, "too much"), Error);
}

TEST_CASE("descriptions that the CPU cannot run are refused when the kernel is made") {
  const auto backend = make_cpu_backend(1);
  Conv2dDesc conv = conv_case(2, {4, 4, 1}, 1, {3, 3});
  conv.type = DType::i32;
  CHECK(refused([&] { backend->make(conv); }) ==
        "cpu: a convolution in i32 is not available: this backend computes in fp32 and bf16");
  LinearDesc linear;
  linear.batch = 0;
  linear.in = linear.out = 1;
  CHECK(refused([&] { backend->make(linear); }) ==
        "cpu: a linear layer needs a batch of at least 1, not 0");
  Pool2dDesc pool = pool_case(PoolKind::average, 1, {4, 4, 1}, {2, 2}, {1, 1}, {0, 0}, {2, 2});
  CHECK(refused([&] { backend->make(pool); }) ==
        "cpu: average pooling does not support dilation, found (2, 2)");
  CrossEntropyDesc loss;
  loss.batch = 1;
  CHECK(refused([&] { backend->make_loss(loss); }) ==
        "cpu: cross-entropy needs at least 1 class, not 0");
  CHECK(refused([] { make_cpu_backend(0); }) == "cpu: needs at least 1 thread, not 0");
}

/// Checks the basis of exact mode: identical samples in one batch get identical rows, and a
/// sample's row does not depend on its position in the batch.
TEST_CASE("a sample's activations do not depend on its place in the batch") {
  for (const std::string& name : backend_names()) {
    const auto backend = make_backend(parse_device(name));
    constexpr std::int64_t kBatch = 5;
    Conv2dDesc d = conv_case(kBatch, {13, 13, 20}, 50, {5, 5});
    d.relu = true;
    for (const Conv2dDesc& c : {d, with_pool(d, PoolKind::average, {2, 2}, {2, 2}),
                                with_pool(d, PoolKind::max, {2, 2}, {2, 2})}) {
      const std::vector<float> sample = random_values(c.in.elements(), 1);
      std::vector<float> x;
      for (std::int64_t k = 0; k < kBatch; ++k) x.insert(x.end(), sample.begin(), sample.end());
      const auto op = backend->make(c);
      OpRunner runner(*backend, *op, x, random_values(weight_count(c), 2),
                      random_values(c.conv_out.c, 3), kBatch * c.out.elements());
      const std::vector<float> y = runner.forward();
      const auto row = static_cast<std::size_t>(c.out.elements());
      INFO(name, ": ", text(c), " by ", op->implementation());
      for (std::size_t k = 1; k < kBatch; ++k) {
        CHECK(std::memcmp(y.data(), y.data() + k * row, row * sizeof(float)) == 0);
      }
    }
  }
}

/// Compares a fused description with its parts: the same outputs, and nearly the same gradients.
TEST_CASE("fused equals unfused") {
  for (const std::string& name : backend_names()) {
    const auto backend = make_backend(parse_device(name));
    Conv2dDesc conv = conv_case(3, {12, 12, 8}, 16, {3, 3});
    const std::vector<float> x = random_values(conv.batch * conv.in.elements(), 1);
    const std::vector<float> weight = random_values(weight_count(conv), 2);
    const std::vector<float> bias = random_values(conv.conv_out.c, 3);
    for (const PoolKind kind : {PoolKind::max, PoolKind::average}) {
      Conv2dDesc fused = with_pool(conv, kind, {2, 2}, {2, 2});
      fused.relu = true;
      const auto whole = backend->make(fused);
      OpRunner fused_runner(*backend, *whole, x, weight, bias, conv.batch * fused.out.elements());
      const std::vector<float> y = fused_runner.forward();
      const std::vector<float> dy = random_values(static_cast<std::int64_t>(y.size()), 4);
      const OpResult want = fused_runner.backward(dy);

      const auto conv_op = backend->make(conv);
      ReluDesc relu_desc;
      relu_desc.batch = conv.batch;
      relu_desc.shape = conv.conv_out;
      const auto relu_op = backend->make(relu_desc);
      const auto pool_op = backend->make(*fused.pool);
      const std::int64_t z_count = conv.batch * conv.conv_out.elements();
      OpRunner conv_runner(*backend, *conv_op, x, weight, bias, z_count);
      OpRunner relu_runner(*backend, *relu_op, conv_runner.forward(), {}, {}, z_count);
      OpRunner pool_runner(*backend, *pool_op, relu_runner.forward(), {}, {},
                           conv.batch * fused.out.elements());
      const std::vector<float> parts = pool_runner.forward();
      INFO(name, ": ", text(fused), " by ", whole->implementation());
      REQUIRE(parts.size() == y.size());
      const auto close = [](const std::vector<float>& a, const std::vector<float>& b) {
        for (std::size_t i = 0; i < a.size(); ++i) {
          if (std::abs(a[i] - b[i]) > 2e-5F * (1 + std::abs(b[i]))) return false;
        }
        return a.size() == b.size();
      };
      CHECK(close(y, parts));
      const OpResult got =
          conv_runner.backward(relu_runner.backward(pool_runner.backward(dy).dx).dx);
      CHECK(close(got.dx, want.dx));
      CHECK(close(got.dbias, want.dbias));
      CHECK(close(got.dweight, want.dweight));
    }
  }
}

}  // namespace
}  // namespace dpt::testing
