// A backend with the laziest queue that the contract allows: nothing runs before synchronize().
// A communicator that forgets where results are read shows it at once. Memory, copies and `add`
// only.
#pragma once

#include <cstring>
#include <functional>
#include <stdexcept>
#include <vector>

#include "kernels/backend.h"

namespace dpt {

class QueuedBackend : public Backend {
 public:
  const DeviceInfo& info() const override { return info_; }

  DeviceMemory allocate(std::size_t bytes, const std::string&) override {
    auto* memory = ::operator new (bytes, std::align_val_t{64});
    std::memset(memory, 0xFF, bytes);
    return DeviceMemory(
        {reinterpret_cast<std::uintptr_t>(memory)}, bytes, [](DevPtr ptr, std::size_t) {
          ::operator delete (reinterpret_cast<void*>(ptr.address), std::align_val_t{64});
        });
  }
  void upload(DevPtr to, const void* host, std::size_t bytes) override {
    later([=] { std::memcpy(at(to), host, bytes); });
  }
  void download(void* host, DevPtr from, std::size_t bytes) override {
    later([=] { std::memcpy(host, at(from), bytes); });
  }
  void copy(DevPtr to, DevPtr from, std::size_t bytes) override {
    later([=] { std::memcpy(at(to), at(from), bytes); });
  }
  void zero(DevPtr to, std::size_t bytes) override {
    later([=] { std::memset(at(to), 0, bytes); });
  }
  void add(DevPtr to, DevPtr a, DevPtr b, std::int64_t count) override {
    if (fail_at_add > 0 && --fail_at_add == 0) throw std::runtime_error("the device is lost");
    later([=] {
      for (std::int64_t i = 0; i < count; ++i) at(to)[i] = at(a)[i] + at(b)[i];
    });
  }
  std::uint64_t record() override { return 0; }
  void wait(std::uint64_t) override { synchronize(); }
  void synchronize() override {
    for (const auto& job : queue_) job();
    queue_.clear();
  }

  DeviceMemory make_resident(std::span<const std::byte>, const std::string&) override { no(); }
  std::unique_ptr<Op> conv2d(const Conv2dDesc&) override { no(); }
  std::unique_ptr<Op> linear(const LinearDesc&) override { no(); }
  std::unique_ptr<Op> pool2d(const Pool2dDesc&) override { no(); }
  std::unique_ptr<Op> relu(const ReluDesc&) override { no(); }
  std::unique_ptr<CrossEntropyOp> cross_entropy(const CrossEntropyDesc&) override { no(); }
  std::unique_ptr<InputOp> input(const InputDesc&) override { no(); }
  void grad_norm(DevPtr, std::int64_t, DevPtr) override { no(); }
  void optimizer_step(const OptimizerDesc&, const OptimizerArgs&) override { no(); }

  int fail_at_add = 0;  ///< the n-th add from now throws; 0 = none

 private:
  static float* at(DevPtr ptr) { return reinterpret_cast<float*>(ptr.address); }
  void later(std::function<void()> job) { queue_.push_back(std::move(job)); }
  [[noreturn]] static void no() { throw std::logic_error("not in this backend"); }

  DeviceInfo info_;
  std::vector<std::function<void()>> queue_;
};

}  // namespace dpt
