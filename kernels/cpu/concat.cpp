#include "kernels/cpu/ops.h"

#include <cassert>
#include <cstring>
#include <vector>

#include "kernels/common/bf16.h"
#include "kernels/cpu/check.h"
#include "kernels/cpu/parallel.h"

namespace dpt {
namespace {

/// Transposes `from` (rows, columns): turns an image from (H,W,C) into (C,H,W), or back.
template <class T>
void transpose(T* to, const T* from, std::int64_t rows, std::int64_t columns) {
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t column = 0; column < columns; ++column) {
      to[column * rows + row] = from[row * columns + column];
    }
  }
}

class CpuConcat final : public Op {
 public:
  CpuConcat(const ConcatDesc& desc, int threads)
      : desc_(desc), threads_(threads), rows_(desc.batch * desc.out.h * desc.out.w) {
    for (const SampleShape& in : desc.in) {
      const std::int64_t elements = desc.flatten ? in.elements() : in.c;
      const std::size_t bytes = static_cast<std::size_t>(elements) * size_of(desc.type);
      parts_.push_back({row_bytes_, bytes, elements / in.c, in.c});
      row_bytes_ += bytes;
    }
  }
  bool backward_needs_x() const override { return false; }
  bool backward_needs_y() const override { return false; }
  bool backward_keeps_dy() const override { return true; }
  bool separate_gradients() const override { return true; }

  void forward(const OpArgs& args) override {
    std::byte* y = host<std::byte>(args.y);
    for_rows([&](const Part& part, std::size_t k, std::size_t row) {
      const std::byte* x = host<const std::byte>(k == 0 ? args.x : args.more_x[k - 1]);
      copy(y + row * row_bytes_ + part.offset, x + row * part.bytes, part, part.pixels,
           part.channels);
    });
  }

  void backward(const OpArgs& args) override {
    const std::byte* dy = host<const std::byte>(args.dy);
    for_rows([&](const Part& part, std::size_t k, std::size_t row) {
      std::byte* dx = host<std::byte>(k == 0 ? args.dx : args.more_dx[k - 1]);
      if (!dx) return;
      copy(dx + row * part.bytes, dy + row * row_bytes_ + part.offset, part, part.channels,
           part.pixels);
    });
  }
  std::string implementation() const override { return "own"; }

 private:
  /// Position of an input in a row of y. A row is a pixel or, with `flatten`, a sample.
  struct Part {
    std::size_t offset, bytes;
    std::int64_t pixels, channels;  ///< per row
  };

  void copy(std::byte* to, const std::byte* from, const Part& part, std::int64_t rows,
            std::int64_t columns) const {
    if (part.pixels == 1 || part.channels == 1) {
      std::memcpy(to, from, part.bytes);
    } else if (desc_.type == DType::f32) {
      transpose(reinterpret_cast<float*>(to), reinterpret_cast<const float*>(from), rows, columns);
    } else {
      transpose(reinterpret_cast<Bf16*>(to), reinterpret_cast<const Bf16*>(from), rows, columns);
    }
  }

  /// Calls body(part, its index, row) for all parts of all rows.
  template <class Body>
  void for_rows(const Body& body) const {
    constexpr std::int64_t kRows = 64;
    parallel_for(threads_, ceil_div(rows_, kRows), [&](std::int64_t block) {
      for (std::size_t k = 0; k < parts_.size(); ++k) {
        for (std::int64_t row = block * kRows; row < std::min(rows_, (block + 1) * kRows); ++row) {
          body(parts_[k], k, static_cast<std::size_t>(row));
        }
      }
    });
  }

  ConcatDesc desc_;
  int threads_;
  std::int64_t rows_;
  std::vector<Part> parts_;
  std::size_t row_bytes_ = 0;
};

}  // namespace

std::unique_ptr<Op> make_cpu_op(const ConcatDesc& desc, const CpuTarget& target) {
  check_cpu_desc("concat", desc.type, desc.batch);
  assert(desc.in.size() >= 2 && desc.in.size() <= static_cast<std::size_t>(kMaxInputs));
  return std::make_unique<CpuConcat>(desc, target.threads);
}

}  // namespace dpt
