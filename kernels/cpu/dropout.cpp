// Dropout on the CPU. The masks are not stored: forward and backward both draw them.
#include "kernels/cpu/ops.h"

#include <algorithm>
#include <cstring>

#include "kernels/base/divide.h"
#include "kernels/common/bf16.h"
#include "kernels/common/dropout.h"
#include "kernels/cpu/check.h"
#include "kernels/cpu/parallel.h"

namespace dpt {
namespace {

/// Number of elements that one iteration of the parallel loop handles; a multiple of kGroup.
constexpr std::int64_t kDropoutBlock = 4096;

template <class T>
class CpuDropout final : public Op {
 public:
  CpuDropout(const DropoutDesc& desc, int threads)
      : desc_(desc),
        threads_(threads),
        is_identity_(!desc.training || desc.p == 0),
        masks_(dropout::masks(desc.seed, desc.stream, desc.p)) {}
  /// Returns the size of one factor for each channel of each sample.
  std::size_t scratch_bytes() const override {
    if (is_identity_ || !desc_.channels) return 0;
    return static_cast<std::size_t>(desc_.batch * desc_.shape.c) * sizeof(float);
  }
  bool in_place() const override { return true; }
  bool backward_needs_x() const override { return false; }
  bool backward_needs_y() const override { return false; }
  bool backward_keeps_dy() const override { return true; }
  bool passes_dy() const override { return is_identity_; }
  void forward(const OpArgs& args) override { run(args, args.y, args.x); }
  void backward(const OpArgs& args) override { run(args, args.dx, args.dy); }
  std::string implementation() const override { return "own"; }

 private:
  void run(const OpArgs& args, DevPtr to_at, DevPtr from_at) const {
    T* to = host<T>(to_at);
    const T* from = host<const T>(from_at);
    const std::int64_t size = desc_.shape.elements();
    if (is_identity_) {
      if (to != from)
        std::memcpy(to, from, static_cast<std::size_t>(desc_.batch * size) * sizeof(T));
      return;
    }
    const std::int64_t* ids = host<const std::int64_t>(args.ids);
    const std::int64_t step = *host<const std::int64_t>(args.step);
    if (desc_.channels) {
      run_channels(to, from, ids, step, host(args.scratch));
      return;
    }
    const std::int64_t blocks = ceil_div(size, kDropoutBlock);
    parallel_for(threads_, desc_.batch * blocks, [&](std::int64_t i) {
      const std::int64_t sample = i / blocks, first = i % blocks * kDropoutBlock;
      const std::int64_t end = std::min(first + kDropoutBlock, size);
      for (std::int64_t at = first; at < end; at += dropout::kGroup) {
        const dropout::Factors factors =
            dropout::factors(masks_, step, ids[sample], at / dropout::kGroup);
        const std::int64_t here = std::min(dropout::kGroup, end - at);
        for (std::int64_t k = 0; k < here; ++k) {
          const std::int64_t element = sample * size + at + k;
          store(to[element], to_float(from[element]) * factors.v[k]);
        }
      }
    });
  }

  void run_channels(T* to, const T* from, const std::int64_t* ids, std::int64_t step,
                    float* factors) const {
    const std::int64_t channels = desc_.shape.c, pixels = desc_.shape.h * desc_.shape.w;
    parallel_for(threads_, desc_.batch, [&](std::int64_t sample) {
      float* own = factors + sample * channels;
      for (std::int64_t first = 0; first < channels; first += dropout::kGroup) {
        const dropout::Factors drawn =
            dropout::factors(masks_, step, ids[sample], first / dropout::kGroup);
        std::copy_n(drawn.v, std::min(dropout::kGroup, channels - first), own + first);
      }
      for (std::int64_t pixel = 0; pixel < pixels; ++pixel) {
        const std::int64_t at = (sample * pixels + pixel) * channels;
        for (std::int64_t c = 0; c < channels; ++c) {
          store(to[at + c], to_float(from[at + c]) * own[c]);
        }
      }
    });
  }

  DropoutDesc desc_;
  int threads_;
  bool is_identity_;
  dropout::Masks masks_;
};

}  // namespace

std::unique_ptr<Op> make_cpu_op(const DropoutDesc& desc, const CpuTarget& target) {
  check_cpu_desc("dropout", desc.type, desc.batch);
  if (!(desc.p >= 0 && desc.p < 1) || desc.shape.elements() >= dropout::kMaxUnits) {
    fail(ErrorKind::device,
         "cpu: dropout needs a probability from 0 to below 1 and fewer than {} elements in a "
         "sample, found {} and {}",
         dropout::kMaxUnits, desc.p, desc.shape.elements());
  }
  if (desc.type == DType::bf16) return std::make_unique<CpuDropout<Bf16>>(desc, target.threads);
  return std::make_unique<CpuDropout<float>>(desc, target.threads);
}

}  // namespace dpt
