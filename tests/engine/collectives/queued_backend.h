// A backend with the laziest queue that the contract allows: nothing runs before synchronize().
// This exposes a communicator that reads results too early or omits an event. It supports only
// memory, copies and `add`.
#pragma once

#include <cstring>
#include <functional>
#include <stdexcept>
#include <vector>

#include "tests/support/host_backend.h"

namespace dpt {

class QueuedBackend : public testing::HostBackend {
 public:
  void upload(DevPtr to, const void* host, std::size_t bytes) override {
    if (bytes > 0) later([=] { std::memcpy(at(to), host, bytes); });
  }
  void download(void* host, DevPtr from, std::size_t bytes) override {
    if (bytes > 0) later([=] { std::memcpy(host, at(from), bytes); });
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
  bool can_use_memory_of(const Backend& other) override { return reaches_others || &other == this; }
  void record(Event& event) override {
    recorded.push_back(&event);
    HostBackend::record(event);
  }
  using HostBackend::record;
  void wait_for(const Event& event) override { waited_for.push_back(&event); }
  void synchronize() override {
    for (const auto& job : queue_) job();
    queue_.clear();
  }

  std::unique_ptr<Op> make(const OpDesc&) override { no(); }
  std::unique_ptr<LossOp> make_loss(const LossOpDesc&) override { no(); }
  std::unique_ptr<InputOp> make_input(const InputDesc&) override { no(); }

  int fail_at_add = 0;         ///< the n-th add from now throws; 0 = none
  bool reaches_others = true;  ///< true if it can use the memory of other backends
  std::vector<const Event*> recorded, waited_for;

 private:
  static float* at(DevPtr ptr) { return reinterpret_cast<float*>(ptr.address); }
  void later(std::function<void()> job) { queue_.push_back(std::move(job)); }

  std::vector<std::function<void()>> queue_;
};

}  // namespace dpt
