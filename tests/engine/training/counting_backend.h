// A device that computes nothing and counts the requests, to measure the host's cost of a step.
#pragma once

#include <cstring>

#include "tests/support/host_backend.h"

namespace dpt::testing {

/// A backend that queues and captures, as a GPU does. Metrics are zeros.
class CountingBackend : public HostBackend {
 public:
  /// Numbers of calls that reach the device.
  struct Calls {
    int uploads = 0, launches = 0, downloads = 0;
    int singles = 0;  ///< kernels, copies and zero fills outside of graphs
    std::size_t uploaded_bytes = 0;
    bool operator==(const Calls&) const = default;
  };
  CountingBackend() { info_ = {"counting", "counts calls", "none", "none", 1, true}; }
  /// Returns the calls since the last call of this function.
  Calls take_calls() { return std::exchange(calls_, {}); }

  void upload(DevPtr to, const void* host, std::size_t bytes) override {
    std::memcpy(reinterpret_cast<void*>(to.address), host, bytes);
    ++calls_.uploads;
    calls_.uploaded_bytes += bytes;
  }
  void download(void* host, DevPtr, std::size_t bytes) override {
    std::memset(host, 0, bytes);
    ++calls_.downloads;
  }
  void copy(DevPtr, DevPtr, std::size_t) override { single(); }
  void zero(DevPtr, std::size_t) override { single(); }

  std::unique_ptr<CapturedGraph> capture(const std::function<void()>& work) override {
    capturing_ = true;
    work();
    capturing_ = false;
    return std::make_unique<CapturedGraph>();
  }
  void replay(CapturedGraph&) override { ++calls_.launches; }

  std::unique_ptr<Op> make(const OpDesc&) override { return std::make_unique<Layer>(*this); }
  std::unique_ptr<LossOp> make_loss(const LossOpDesc&) override {
    return std::make_unique<Loss>(*this);
  }
  std::unique_ptr<InputOp> make_input(const InputDesc&) override {
    return std::make_unique<Input>(*this);
  }
  void add(DevPtr, DevPtr, DevPtr, std::int64_t) override { single(); }
  void tree_sum(std::span<const DevPtr>, std::span<const TreeAdd>, std::span<const DevPtr>,
                std::int64_t) override {
    single();
  }
  void to_bf16(DevPtr, DevPtr, std::int64_t) override { single(); }
  void grad_norm(DevPtr, std::int64_t, DevPtr) override { single(); }
  void divide_by_weight(DevPtr, std::int64_t, DevPtr) override { single(); }
  void clip_values(DevPtr, float, std::int64_t) override { single(); }
  std::unique_ptr<OptimizerOp> optimizer(const OptimizerDesc&) override {
    return std::make_unique<Optimizer>(*this);
  }
  std::unique_ptr<RangeNormsOp> range_norms(std::span<const Range>) override {
    return std::make_unique<Norms>(*this);
  }

 private:
  struct Layer : Op {
    explicit Layer(CountingBackend& a_backend) : backend(a_backend) {}
    void forward(const OpArgs&) override { backend.single(); }
    void backward(const OpArgs&) override { backend.single(); }
    std::string implementation() const override { return "none"; }
    CountingBackend& backend;
  };
  struct Loss : LossOp {
    explicit Loss(CountingBackend& a_backend) : backend(a_backend) {}
    void run(const LossArgs&) override { backend.single(); }
    CountingBackend& backend;
  };
  struct Input : InputOp {
    explicit Input(CountingBackend& a_backend) : backend(a_backend) {}
    void run(const InputArgs&) override { backend.single(); }
    CountingBackend& backend;
  };
  struct Norms : RangeNormsOp {
    explicit Norms(CountingBackend& a_backend) : backend(a_backend) {}
    void run(DevPtr, DevPtr) override { backend.single(); }
    CountingBackend& backend;
  };
  struct Optimizer : OptimizerOp {
    explicit Optimizer(CountingBackend& a_backend) : backend(a_backend) {}
    void step(const OptimizerArgs&) override { backend.single(); }
    CountingBackend& backend;
  };
  void single() {
    if (!capturing_) ++calls_.singles;
  }

  Calls calls_;
  bool capturing_ = false;
};

}  // namespace dpt::testing
