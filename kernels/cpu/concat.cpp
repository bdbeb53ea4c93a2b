#include "kernels/cpu/concat.h"

#include <cassert>
#include <cstring>
#include <vector>

#include "kernels/cpu/check.h"
#include "kernels/cpu/parallel.h"

namespace dpt {
namespace {

class CpuConcat final : public Op {
 public:
  CpuConcat(const ConcatDesc& desc, int threads) : desc_(desc), threads_(threads) {
    std::int64_t channel = 0;
    for (const SampleShape& in : desc.in) {
      const auto bytes = [&](std::int64_t channels) {
        return static_cast<std::size_t>(channels) * size_of(desc.type);
      };
      parts_.push_back({bytes(channel), bytes(in.c)});
      channel += in.c;
    }
    pixel_bytes_ = static_cast<std::size_t>(channel) * size_of(desc.type);
  }
  bool backward_needs_x() const override { return false; }
  bool backward_needs_y() const override { return false; }
  bool backward_keeps_dy() const override { return true; }
  bool separate_gradients() const override { return true; }

  void forward(const OpArgs& args) override {
    std::byte* y = host<std::byte>(args.y);
    for_rows([&](std::int64_t first, std::int64_t end) {
      for (std::size_t k = 0; k < parts_.size(); ++k) {
        const Part& part = parts_[k];
        const std::byte* x = host<const std::byte>(k == 0 ? args.x : args.more_x[k - 1]);
        for (std::int64_t row = first; row < end; ++row) {
          const auto at = static_cast<std::size_t>(row);
          std::memcpy(y + at * pixel_bytes_ + part.offset, x + at * part.bytes, part.bytes);
        }
      }
    });
  }

  void backward(const OpArgs& args) override {
    const std::byte* dy = host<const std::byte>(args.dy);
    for_rows([&](std::int64_t first, std::int64_t end) {
      for (std::size_t k = 0; k < parts_.size(); ++k) {
        const Part& part = parts_[k];
        std::byte* dx = host<std::byte>(k == 0 ? args.dx : args.more_dx[k - 1]);
        if (!dx) continue;
        for (std::int64_t row = first; row < end; ++row) {
          const auto at = static_cast<std::size_t>(row);
          std::memcpy(dx + at * part.bytes, dy + at * pixel_bytes_ + part.offset, part.bytes);
        }
      }
    });
  }
  std::string implementation() const override { return "own"; }

 private:
  /// Where an input's channels lie in a pixel of y.
  struct Part {
    std::size_t offset, bytes;
  };

  template <class Body>
  void for_rows(const Body& body) const {
    const std::int64_t rows = desc_.batch * desc_.out.h * desc_.out.w;
    constexpr std::int64_t kRows = 64;
    parallel_for(threads_, ceil_div(rows, kRows), [&](std::int64_t block) {
      body(block * kRows, std::min(rows, (block + 1) * kRows));
    });
  }

  ConcatDesc desc_;
  int threads_;
  std::vector<Part> parts_;
  std::size_t pixel_bytes_ = 0;
};

}  // namespace

std::unique_ptr<Op> make_cpu_concat(const ConcatDesc& desc, int threads) {
  check_cpu_desc("concat", desc.type, desc.batch);
  assert(desc.in.size() >= 2 && desc.in.size() <= static_cast<std::size_t>(kMaxInputs));
  return std::make_unique<CpuConcat>(desc, threads);
}

}  // namespace dpt
