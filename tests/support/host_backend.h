// The part that test backends share: device memory is host memory, and nothing runs concurrently.
#pragma once

#include <cstring>
#include <new>
#include <stdexcept>

#include "kernels/backend.h"

namespace dpt::testing {

class HostBackend : public Backend {
 public:
  const DeviceInfo& info() const override { return info_; }

  DeviceMemory allocate(std::size_t bytes, const std::string&) override {
    void* memory = ::operator new (bytes + 1, std::align_val_t{64});
    std::memset(memory, 0xFF, bytes);  // NaN
    return {{reinterpret_cast<std::uintptr_t>(memory)}, bytes, [](DevPtr ptr, std::size_t) {
              ::operator delete (reinterpret_cast<void*>(ptr.address), std::align_val_t{64});
            }};
  }
  DeviceMemory make_resident(std::span<const std::byte> host, const std::string&) override {
    return {{reinterpret_cast<std::uintptr_t>(host.data())}, host.size(), nullptr};
  }
  HostMemory allocate_host(std::size_t bytes, const std::string&) override {
    return {new std::byte[bytes], [](std::byte* memory) { delete[] memory; }};
  }
  std::uint64_t free_bytes() override { return std::uint64_t{1} << 40; }
  bool can_use_memory_of(const Backend&) override { return true; }

  // No test reads this backend's phase times.
  void begin_phases(DevPtr times) override {
    *reinterpret_cast<PhaseTimes*>(times.address) = PhaseTimes{};
  }
  void end_phase(DevPtr, StepPhase) override {}
  std::uint64_t record() override { return 0; }
  void wait(std::uint64_t) override { synchronize(); }
  void synchronize() override {}
  std::unique_ptr<Event> make_event() override { return std::make_unique<Event>(); }
  void record(Event&) override { synchronize(); }
  void wait_for(const Event&) override {}
  void upload_overlapped(DevPtr to, const void* host, std::size_t bytes, const Event&,
                         Event&) override {
    upload(to, host, bytes);
  }
  std::unique_ptr<CapturedGraph> capture(const std::function<void()>&) override { return nullptr; }
  void replay(CapturedGraph&) override { no(); }

  void tree_sum(std::span<const DevPtr> parts, std::span<const TreeAdd> additions,
                std::span<const DevPtr> outs, std::int64_t count) override {
    for (const TreeAdd& each : additions) {
      const DevPtr left = parts[each.left];
      add(left, left, parts[each.right], count);
    }
    for (const DevPtr out : outs) {
      if (!(out == parts[0])) copy(out, parts[0], static_cast<std::size_t>(count) * sizeof(float));
    }
  }
  void merge_moments(std::span<const DevPtr>, std::span<const MomentMerge>, std::span<const DevPtr>,
                     std::int64_t) override {
    no();
  }
  void check_running(std::span<const RunningRange>, const RunningArgs&) override { no(); }
  void update_running(std::span<const RunningRange>, Range, const RunningArgs&) override { no(); }
  void fold_norms(std::span<const NormFold>, DevPtr, DevPtr) override { no(); }
  void to_bf16(DevPtr, DevPtr, std::int64_t) override { no(); }
  void grad_norm(DevPtr, std::int64_t, DevPtr) override { no(); }
  void divide_by_weight(DevPtr, std::int64_t, DevPtr) override { no(); }
  void clip_values(DevPtr, float, std::int64_t) override { no(); }
  std::unique_ptr<OptimizerOp> optimizer(const OptimizerDesc&) override { no(); }
  std::unique_ptr<RangeNormsOp> range_norms(std::span<const Range>) override { no(); }

 protected:
  [[noreturn]] static void no() { throw std::logic_error("not in this backend"); }

  DeviceInfo info_;
};

}  // namespace dpt::testing
