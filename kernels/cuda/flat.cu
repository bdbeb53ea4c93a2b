// Flat fp32 kernels on a GPU: sums, norm, rounding to bf16. The results have the CPU's bits, except
// for the norm, which is summed in another order.
#include "kernels/cuda/flat.h"

#include <algorithm>

#include "kernels/common/update_outcome.h"
#include "kernels/cuda/runtime/block_sum.h"
#include "kernels/cuda/runtime/is_last_block.h"
#include "kernels/cuda/runtime/pack.h"

namespace dpt {
namespace {

/// Number of floats that a thread loads at once.
constexpr int kWidth = 4;
constexpr std::size_t kWidthBytes = kWidth * sizeof(float);

/// Returns a + b, where zeros of the same sign replace denormal operands and results. CPUs add in
/// this way after flush_denormals, so a sum of gradients has the same bits on a GPU, on the host
/// and between processes.
__device__ inline float add_flushed(float a, float b) {
  constexpr float kSmallestNormal = 0x1p-126F;
  const auto flushed = [](float x) { return fabsf(x) < kSmallestNormal ? copysignf(0.0F, x) : x; };
  return flushed(flushed(a) + flushed(b));
}

struct AddBody {
  float* to;
  const float* a;
  const float* b;

  template <int kCount>
  __device__ void at(std::int64_t i) const {
    auto sum = load_pack<kCount>(a + i);
    const auto other = load_pack<kCount>(b + i);
    for (int k = 0; k < kCount; ++k) sum.v[k] = add_flushed(sum.v[k], other.v[k]);
    store_pack<kCount>(to + i, sum);
  }
};

struct ToBf16Body {
  Bf16* to;
  const float* from;

  template <int kCount>
  __device__ void at(std::int64_t i) const {
    const auto values = load_pack<kCount>(from + i);
    Pack<Bf16, kCount> rounded;
    for (int k = 0; k < kCount; ++k) rounded.v[k] = to_bf16(values.v[k]);
    store_pack<kCount>(to + i, rounded);
  }
};

struct ClipBody {
  float* values;
  float limit;

  template <int kCount>
  __device__ void at(std::int64_t i) const {
    auto pack = load_pack<kCount>(values + i);
    for (int k = 0; k < kCount; ++k) pack.v[k] = clipped(pack.v[k], limit);
    store_pack<kCount>(values + i, pack);
  }
};

struct DivideBody {
  float* values;
  const StepMetrics* metrics;

  template <int kCount>
  __device__ void at(std::int64_t i) const {
    const float factor = metrics->inverse_weight();
    auto pack = load_pack<kCount>(values + i);
    for (int k = 0; k < kCount; ++k) pack.v[k] *= factor;
    store_pack<kCount>(values + i, pack);
  }
};

// ---- Sums over a tree --------------------------------------------------------------------------

/// Maximum numbers of parts and additions of one kernel of a tree sum.
constexpr int kMaxParts = 32, kMaxAdditions = 64;

/// A tree sum as kernel parameters.
struct Tree {
  float* parts[kMaxParts];
  float* outs[kMaxParts];
  struct {
    std::uint8_t left, right;
  } additions[kMaxAdditions];
  int part_count, out_count, addition_count;
};

/// Adds the elements at `i` of all parts in the order of the tree, and stores the sum in all outs.
/// The additions access the values by index, which is impossible in registers, so the values are in
/// `mine`, `stride` apart.
template <int kCount>
__device__ inline void sum_place(const Tree& tree, std::int64_t i, Pack<float, kCount>* mine,
                                 unsigned stride) {
#pragma unroll 4
  for (int p = 0; p < tree.part_count; ++p) {
    mine[static_cast<unsigned>(p) * stride] = load_pack<kCount>(tree.parts[p] + i);
  }
  for (int a = 0; a < tree.addition_count; ++a) {
    Pack<float, kCount>& left = mine[tree.additions[a].left * stride];
    const Pack<float, kCount> right = mine[tree.additions[a].right * stride];
    for (int k = 0; k < kCount; ++k) left.v[k] = add_flushed(left.v[k], right.v[k]);
  }
  for (int o = 0; o < tree.out_count; ++o) store_pack<kCount>(tree.outs[o] + i, mine[0]);
}

template <int kCount>
__global__ void __launch_bounds__(256) tree_sum_kernel(Tree tree, std::int64_t count) {
  // Each thread uses only its column of the shared memory, so no barrier is needed.
  auto* mine = dynamic_shared<Pack<float, kCount>>() + threadIdx.x;
  for (std::int64_t i = global_thread() * kCount; i < count; i += grid_threads() * kCount) {
    if (i + kCount <= count) {
      sum_place<kCount>(tree, i, mine, blockDim.x);
    } else {
      auto* single = reinterpret_cast<Pack<float, 1>*>(mine);
      for (std::int64_t k = i; k < count; ++k) {
        sum_place<1>(tree, k, single, blockDim.x * kCount);
      }
    }
  }
}

template <int kCount>
void launch_tree_sum(const CudaContext& context, const Tree& tree, std::int64_t count) {
  // Use at most 32 KiB of shared memory per block.
  const int threads = std::clamp(2048 / tree.part_count / 32 * 32, 64, 256);
  const std::size_t shared = static_cast<std::size_t>(tree.part_count) * kCount * sizeof(float) *
                             static_cast<std::size_t>(threads);
  const std::int64_t packs = ceil_div(count, kCount);
  launch(tree_sum_kernel<kCount>,
         blocks_for(packs, threads, std::int64_t{8} * context.multiprocessors),
         static_cast<unsigned>(threads), shared, context.stream, tree, count);
}

// ---- Gradient norm -----------------------------------------------------------------------------

constexpr int kNormThreads = 256;
constexpr std::int64_t kMaxNormBlocks = 512;

/// Computes the gradient norm. The number of blocks, and with it the order of the sum, depends only
/// on `count`.
template <int kCount>
__global__ void __launch_bounds__(kNormThreads)
    grad_norm_kernel(const float* grads, std::int64_t count, StepScalars* scalars, double* partials,
                     unsigned* counter) {
  double sum = 0;
  const auto add = [&](float g) { sum += static_cast<double>(g) * static_cast<double>(g); };
  for (std::int64_t i = global_thread() * kWidth; i < count; i += grid_threads() * kWidth) {
    if (kCount == kWidth && i + kWidth <= count) {
      const auto values = load_pack<kCount>(grads + i);
      for (const float g : values.v) add(g);
    } else {
      for (std::int64_t k = i; k < count && k < i + kWidth; ++k) add(grads[k]);
    }
  }
  sum = block_sum<kNormThreads>(sum);
  if (gridDim.x > 1) {
    if (threadIdx.x == 0) partials[blockIdx.x] = sum;
    if (!is_last_block(counter, gridDim.x)) return;
    sum = 0;
    for (unsigned b = threadIdx.x; b < gridDim.x; b += kNormThreads) sum += __ldcg(partials + b);
    sum = block_sum<kNormThreads>(sum);
  }
  if (threadIdx.x == 0) set_norm_and_clip(*scalars, sum);
}

}  // namespace

void cuda_add(const CudaContext& context, DevPtr to, DevPtr a, DevPtr b, std::int64_t count) {
  for_each_pack<kWidth>(context, count, aligned_to(kWidthBytes, to, a, b),
                        AddBody{device<float>(to), device<const float>(a), device<const float>(b)});
}

void cuda_tree_sum(const CudaContext& context, std::span<const DevPtr> parts,
                   std::span<const TreeAdd> additions, std::span<const DevPtr> outs,
                   std::int64_t count) {
  if (count < 1) return;
  if (parts.size() > kMaxParts || additions.size() > kMaxAdditions || outs.size() > kMaxParts) {
    for (const TreeAdd& add : additions) {
      const DevPtr left = parts[add.left];
      cuda_add(context, left, left, parts[add.right], count);
    }
    for (const DevPtr& out : outs) {
      if (out == parts[0]) continue;
      cuda_check(cudaMemcpyAsync(device<void>(out), device<const void>(parts[0]),
                                 static_cast<std::size_t>(count) * sizeof(float), cudaMemcpyDefault,
                                 context.stream),
                 "cudaMemcpyAsync");
    }
    return;
  }
  Tree tree = {};
  tree.part_count = static_cast<int>(parts.size());
  tree.out_count = static_cast<int>(outs.size());
  tree.addition_count = static_cast<int>(additions.size());
  bool aligned = true;
  for (std::size_t p = 0; p < parts.size(); ++p) {
    tree.parts[p] = device<float>(parts[p]);
    aligned = aligned && aligned_to(kWidthBytes, parts[p]);
  }
  for (std::size_t o = 0; o < outs.size(); ++o) {
    tree.outs[o] = device<float>(outs[o]);
    aligned = aligned && aligned_to(kWidthBytes, outs[o]);
  }
  for (std::size_t a = 0; a < additions.size(); ++a) {
    tree.additions[a] = {static_cast<std::uint8_t>(additions[a].left),
                         static_cast<std::uint8_t>(additions[a].right)};
  }
  if (aligned) {
    launch_tree_sum<kWidth>(context, tree, count);
  } else {
    launch_tree_sum<1>(context, tree, count);
  }
}

void cuda_to_bf16(const CudaContext& context, DevPtr to, DevPtr from, std::int64_t count) {
  for_each_pack<kWidth>(context, count,
                        aligned_to(kWidthBytes, from) && aligned_to(kWidth * sizeof(Bf16), to),
                        ToBf16Body{device<Bf16>(to), device<const float>(from)});
}

void cuda_divide_by_weight(const CudaContext& context, DevPtr grads, std::int64_t count,
                           DevPtr metrics) {
  for_each_pack<kWidth>(context, count, aligned_to(kWidthBytes, grads),
                        DivideBody{device<float>(grads), device<const StepMetrics>(metrics)});
}

void cuda_clip_values(const CudaContext& context, DevPtr values, float limit, std::int64_t count) {
  for_each_pack<kWidth>(context, count, aligned_to(kWidthBytes, values),
                        ClipBody{device<float>(values), limit});
}

void cuda_grad_norm(const CudaContext& context, DevPtr grads, std::int64_t count, DevPtr scalars) {
  const auto kernel =
      aligned_to(kWidthBytes, grads) ? grad_norm_kernel<kWidth> : grad_norm_kernel<1>;
  // Give each thread several packs before adding blocks, because handing over a block's sum costs
  // as much as several packs.
  const unsigned blocks = blocks_for(ceil_div(count, kWidth), 4 * kNormThreads, kMaxNormBlocks);
  launch(kernel, blocks, kNormThreads, 0, context.stream, device<const float>(grads), count,
         device<StepScalars>(scalars), partial_sums<double>(context, kMaxNormBlocks),
         block_counters(context));
}

}  // namespace dpt
