// Max and average pooling on a GPU: chooses the kernels of pool2d_kernels.cuh.
#include "kernels/cuda/ops.h"

#include <algorithm>

#include "kernels/cuda/description.h"
#include "kernels/cuda/pool2d_kernels.cuh"

namespace dpt {
namespace {

/// Maximum number of elements of one launch, so that indices fit into 32 bits (and Divider's 31).
/// Larger batches are split.
constexpr std::int64_t kMaxElements = (std::int64_t{1} << 31) - 1;

PoolAxis make_axis(std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride,
                   std::int64_t padding, std::int64_t dilation, bool adaptive) {
  const auto number = [](std::int64_t value) { return static_cast<int>(value); };
  return {number(in),       number(out),     number(kernel),    number(stride), number(padding),
          number(dilation), Divider(stride), Divider(dilation), adaptive};
}

template <class T>
class CudaPool : public Op {
 public:
  CudaPool(const CudaContext& context, const Pool2dDesc& desc, bool after_relu)
      : context_(context), d_(desc), after_relu_(after_relu) {
    const std::int64_t most = std::max(d_.in.elements(), d_.out.elements());
    samples_ = std::min(d_.batch, kMaxElements / most);
  }
  bool backward_needs_x() const override { return false; }
  bool backward_needs_y() const override { return false; }
  bool backward_keeps_dy() const override { return true; }
  std::string implementation() const override { return "own"; }

 protected:
  PoolGeometry geometry(int count) const {
    PoolGeometry g;
    g.h = make_axis(d_.in.h, d_.out.h, d_.kernel.h, d_.stride.h, d_.padding.h, d_.dilation.h,
                    d_.adaptive);
    g.w = make_axis(d_.in.w, d_.out.w, d_.kernel.w, d_.stride.w, d_.padding.w, d_.dilation.w,
                    d_.adaptive);
    g.groups = Divider(d_.in.c / count);
    g.in_w = Divider(d_.in.w);
    g.in_h = Divider(d_.in.h);
    g.out_w = Divider(d_.out.w);
    g.out_h = Divider(d_.out.h);
    g.in_packs = static_cast<unsigned>(d_.in.elements() / count);
    g.out_packs = static_cast<unsigned>(d_.out.elements() / count);
    return g;
  }

  /// Calls use(count) with the number of channels of a pack, as a constant.
  template <class Use>
  void with_packs(const Use& use) const {
    if (d_.in.c % 4 == 0) {
      use(std::integral_constant<int, 4>());
    } else if (d_.in.c % 2 == 0) {
      use(std::integral_constant<int, 2>());
    } else {
      use(std::integral_constant<int, 1>());
    }
  }

  /// Calls use(first sample, number of samples) for chunks of the batch that a launch can take.
  template <class Use>
  void for_chunks(const Use& use) const {
    for (std::int64_t n = 0; n < d_.batch; n += samples_) {
      use(n, std::min(samples_, d_.batch - n));
    }
  }

  /// Launches `kernel` with a thread per pack. The number of packs is the kernel's last argument.
  template <class Kernel, class... Args>
  void launch_packs(Kernel kernel, std::int64_t packs, Args... args) const {
    launch(kernel, blocks_for(packs, kPoolThreads, kMaxElements), kPoolThreads, 0, context_.stream,
           args..., static_cast<unsigned>(packs));
  }

  const CudaContext& context_;
  Pool2dDesc d_;
  bool after_relu_;
  std::int64_t samples_;  ///< samples per launch
};

template <class T, class Index>
class CudaMaxPool final : public CudaPool<T> {
 public:
  using CudaPool<T>::CudaPool;

  std::size_t saved_bytes() const override {
    if (!d_.training) return 0;
    return static_cast<std::size_t>(d_.batch * d_.out.elements()) * sizeof(Index);
  }

  void forward(const OpArgs& args) override {
    if constexpr (sizeof(Index) == 1) {
      if (d_.kernel == Size2{2, 2}) return run_forward<2>(args);
      if (d_.kernel == Size2{3, 3}) return run_forward<3>(args);
    }
    run_forward<0>(args);
  }

  void backward(const OpArgs& args) override {
    if constexpr (sizeof(Index) == 1) {
      const bool tiled =
          d_.stride == d_.kernel && d_.padding == Size2{0, 0} && d_.dilation == Size2{1, 1};
      if (tiled && d_.kernel == Size2{2, 2}) return run_backward_tiles<2>(args);
      if (tiled && d_.kernel == Size2{3, 3}) return run_backward_tiles<3>(args);
    }
    this->with_packs([&](auto count) {
      const PoolGeometry g = this->geometry(count);
      this->for_chunks([&](std::int64_t n, std::int64_t samples) {
        const std::int64_t to = n * d_.in.elements(), from = n * d_.out.elements();
        this->launch_packs(max_backward<T, Index, count>, samples * g.in_packs, g,
                           device<const T>(args.dy) + from, device<T>(args.dx) + to,
                           device<const Index>(args.saved) + from);
      });
    });
  }

 private:
  using CudaPool<T>::d_;

  template <int kKernel>
  void run_forward(const OpArgs& args) const {
    this->with_packs([&](auto count) {
      const PoolGeometry g = this->geometry(count);
      this->for_chunks([&](std::int64_t n, std::int64_t samples) {
        const std::int64_t from = n * d_.in.elements(), to = n * d_.out.elements();
        this->launch_packs(max_forward<T, Index, count, kKernel>, samples * g.out_packs, g,
                           device<const T>(args.x) + from, device<T>(args.y) + to,
                           d_.training ? device<Index>(args.saved) + to : nullptr,
                           this->after_relu_);
      });
    });
  }

  template <int kKernel>
  void run_backward_tiles(const OpArgs& args) const {
    const std::int64_t tiles_h = ceil_div(d_.in.h, kKernel);
    const std::int64_t tiles_w = ceil_div(d_.in.w, kKernel);
    this->with_packs([&](auto count) {
      const PoolGeometry g = this->geometry(count);
      this->for_chunks([&](std::int64_t n, std::int64_t samples) {
        const std::int64_t to = n * d_.in.elements(), from = n * d_.out.elements();
        this->launch_packs(max_backward_tiles<T, count, kKernel>,
                           samples * tiles_h * tiles_w * (d_.in.c / count), g, Divider(tiles_w),
                           Divider(tiles_h), device<const T>(args.dy) + from,
                           device<T>(args.dx) + to, device<const std::uint8_t>(args.saved) + from);
      });
    });
  }
};

template <class T>
class CudaAveragePool final : public CudaPool<T> {
 public:
  using CudaPool<T>::CudaPool;

  /// Returns the size of closed_bits, one bit per input element; 0 if no ReLU needs them.
  std::size_t saved_bytes() const override {
    return keeps_bits() ? static_cast<std::size_t>((in_elements() + 31) / 32) * 4 : 0;
  }

  void forward(const OpArgs& args) override {
    if (keeps_bits()) {
      launch(
          closed_bits<T>,
          blocks_for(in_elements(), kPoolThreads, std::int64_t{8} * this->context_.multiprocessors),
          kPoolThreads, 0, this->context_.stream, device<const T>(args.x),
          device<unsigned>(args.saved), in_elements());
    }
    this->with_packs([&](auto count) {
      const PoolGeometry g = this->geometry(count);
      this->for_chunks([&](std::int64_t n, std::int64_t samples) {
        this->launch_packs(average_forward<T, count>, samples * g.out_packs, g, average(),
                           device<const T>(args.x) + n * d_.in.elements(),
                           device<T>(args.y) + n * d_.out.elements());
      });
    });
  }

  void backward(const OpArgs& args) override {
    this->with_packs([&](auto count) {
      const PoolGeometry g = this->geometry(count);
      this->for_chunks([&](std::int64_t n, std::int64_t samples) {
        const std::int64_t first = n * d_.in.elements();
        this->launch_packs(average_backward<T, count>, samples * g.in_packs, g, average(),
                           device<const T>(args.dy) + n * d_.out.elements(),
                           device<T>(args.dx) + first,
                           keeps_bits() ? device<const unsigned>(args.saved) : nullptr, first);
      });
    });
  }

 private:
  using CudaPool<T>::d_;

  std::int64_t in_elements() const { return d_.batch * d_.in.elements(); }
  bool keeps_bits() const { return this->after_relu_ && d_.training; }
  AverageWeights average() const {
    const auto divisor = static_cast<float>(d_.divisor_override);
    return {d_.count_include_pad, d_.divisor_override == 0 ? 0.0F : 1.0F / divisor};
  }
};

template <class T>
std::unique_ptr<Op> make(const CudaContext& context, const Pool2dDesc& desc, bool after_relu) {
  if (desc.kind == PoolKind::average) {
    return std::make_unique<CudaAveragePool<T>>(context, desc, after_relu);
  }
  // Choose the smallest type for a window's positions and kNoPosition.
  const std::int64_t positions = desc.kernel.h * desc.kernel.w;
  if (positions <= 0xff) {
    return std::make_unique<CudaMaxPool<T, std::uint8_t>>(context, desc, after_relu);
  }
  if (positions <= 0xffff) {
    return std::make_unique<CudaMaxPool<T, std::uint16_t>>(context, desc, after_relu);
  }
  return std::make_unique<CudaMaxPool<T, std::uint32_t>>(context, desc, after_relu);
}

/// Returns true if all numbers of an axis, and of the windows along it, fit into 32 bits.
bool fits(std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride,
          std::int64_t padding, std::int64_t dilation) {
  constexpr std::int64_t kMax = std::int64_t{1} << 29;
  const auto small = [](std::int64_t value) { return value <= kMax; };
  return small(in) && small(out) && small(kernel) && small(stride) && small(padding) &&
         small(dilation) && small(out * stride) && small(kernel * dilation);
}

std::unique_ptr<Op> make_checked(const CudaContext& context, const Pool2dDesc& desc,
                                 bool after_relu) {
  check_cuda_desc(context, "pooling", desc.type, desc.batch);
  if (desc.kind == PoolKind::average && desc.dilation != Size2{1, 1}) {
    fail(ErrorKind::device, "{}: average pooling does not support dilation, found ({}, {})",
         context.name, desc.dilation.h, desc.dilation.w);
  }
  if (desc.in.elements() > kMaxElements || desc.out.elements() > kMaxElements ||
      !fits(desc.in.h, desc.out.h, desc.kernel.h, desc.stride.h, desc.padding.h, desc.dilation.h) ||
      !fits(desc.in.w, desc.out.w, desc.kernel.w, desc.stride.w, desc.padding.w, desc.dilation.w)) {
    fail(ErrorKind::device,
         "{}: pooling {}x{}x{} to {}x{}x{} (height, width, channels) is too large: a sample may "
         "have at most {} elements",
         context.name, desc.in.h, desc.in.w, desc.in.c, desc.out.h, desc.out.w, desc.out.c,
         kMaxElements);
  }
  if (desc.type == DType::bf16) return make<Bf16>(context, desc, after_relu);
  return make<float>(context, desc, after_relu);
}

}  // namespace

std::unique_ptr<Op> make_cuda_op(const CudaContext& context, const Pool2dDesc& desc) {
  return make_checked(context, desc, false);
}

std::unique_ptr<Op> make_cuda_pool_after_relu(const CudaContext& context, const Pool2dDesc& desc) {
  return make_checked(context, desc, true);
}

}  // namespace dpt
