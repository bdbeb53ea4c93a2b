// Flat fp32 kernels on a GPU: sums, norm, optimizer step, rounding to bf16. The optimizers'
// formulas stand in kernels/common/optimizer_math.h; the results have the CPU's bits, but for the
// norm, whose sum goes another way.
#include "kernels/cuda/flat.h"

#include <algorithm>

#include "kernels/common/optimizer_math.h"
#include "kernels/cuda/conv/pack.h"
#include "kernels/cuda/runtime/is_last_block.h"

namespace dpt {
namespace {

/// Floats that a thread loads at once.
constexpr int kWidth = 4;
constexpr std::size_t kWidthBytes = kWidth * sizeof(float);

struct AddBody {
  float* to;
  const float* a;
  const float* b;

  template <int kCount>
  __device__ void at(std::int64_t i) const {
    auto sum = load_pack<kCount>(a + i);
    const auto other = load_pack<kCount>(b + i);
    for (int k = 0; k < kCount; ++k) sum.v[k] += other.v[k];
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

// ---- Sums over a tree --------------------------------------------------------------------------

/// What one kernel of a tree sum can take.
constexpr int kMostParts = 32, kMostAdditions = 64;

/// A tree sum as kernel parameters.
struct Tree {
  float* parts[kMostParts];
  float* outs[kMostParts];
  struct {
    std::uint8_t left, right;
  } additions[kMostAdditions];
  int part_count, out_count, addition_count;
};

/// The sum of one place over all parts. The values wait in `mine`, each `stride` from the next,
/// because the additions name them by number, which registers have none of.
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
    for (int k = 0; k < kCount; ++k) left.v[k] += right.v[k];
  }
  for (int o = 0; o < tree.out_count; ++o) store_pack<kCount>(tree.outs[o] + i, mine[0]);
}

template <int kCount>
__global__ void __launch_bounds__(256) tree_sum_kernel(Tree tree, std::int64_t count) {
  // Each thread has a column of the shared memory to itself: no barrier is needed.
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
  // 32 KiB of shared memory a block at most.
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
constexpr std::int64_t kMostNormBlocks = 512;

/// The sum over the threads of a block, in a fixed order; valid in thread 0.
__device__ inline double block_sum(double value) {
  __shared__ double sums[kNormThreads / 32];
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    value += __shfl_down_sync(0xffffffffU, value, static_cast<unsigned>(lanes));
  }
  __syncthreads();
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = value;
  __syncthreads();
  double sum = 0;
  if (threadIdx.x == 0) {
    for (const double part : sums) sum += part;
  }
  return sum;
}

/// The number of blocks follows from `count` alone, and with it the order of the sum.
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
  sum = block_sum(sum);
  if (gridDim.x > 1) {
    if (threadIdx.x == 0) partials[blockIdx.x] = sum;
    if (!is_last_block(counter, gridDim.x)) return;
    sum = 0;
    for (unsigned b = threadIdx.x; b < gridDim.x; b += kNormThreads) sum += __ldcg(partials + b);
    sum = block_sum(sum);
  }
  if (threadIdx.x == 0) set_norm_and_clip(*scalars, sum);
}

// ---- Optimizers --------------------------------------------------------------------------------

struct SgdRule {
  static constexpr int kStates = 0;
  SgdStep step;
  __device__ SgdRule(const OptimizerDesc& desc, const StepScalars& now)
      : step(sgd_step(desc, now)) {}
  __device__ void update(float& param, float grad, float*) const { sgd_update(step, param, grad); }
};

struct SgdMomentumRule {
  static constexpr int kStates = 1;
  SgdStep step;
  bool first;
  __device__ SgdMomentumRule(const OptimizerDesc& desc, const StepScalars& now)
      : step(sgd_step(desc, now)), first(now.first_step != 0) {}
  __device__ void update(float& param, float grad, float* states) const {
    sgd_momentum_update(step, first, param, grad, states[0]);
  }
};

template <bool kAmsgrad>
struct AdamRule {
  static constexpr int kStates = kAmsgrad ? 3 : 2;
  AdamStep step;
  __device__ AdamRule(const OptimizerDesc& desc, const StepScalars& now)
      : step(adam_step(desc, now)) {}
  __device__ void update(float& param, float grad, float* states) const {
    adam_update(step, param, grad, states[0], states[1], kAmsgrad ? states + 2 : nullptr);
  }
};

struct OptimizerBuffers {
  float* params;
  const float* grads;
  float* states[3];
  Bf16* params16;        ///< or null
  StepMetrics* metrics;  ///< null, as `guard`, when nothing is checked
  UpdateGuard* guard;
};

/// Whether all that it wrote is finite.
template <class Rule, int kCount>
__device__ inline bool update_pack(const Rule& rule, const OptimizerBuffers& buffers,
                                   std::int64_t i) {
  auto params = load_pack<kCount>(buffers.params + i);
  const auto grads = load_pack<kCount>(buffers.grads + i);
  Pack<float, kCount> states[3];
  bool finite = true;
#pragma unroll
  for (int s = 0; s < Rule::kStates; ++s) states[s] = load_pack<kCount>(buffers.states[s] + i);
#pragma unroll
  for (int k = 0; k < kCount; ++k) {
    float of_one[3] = {};
#pragma unroll
    for (int s = 0; s < Rule::kStates; ++s) of_one[s] = states[s].v[k];
    rule.update(params.v[k], grads.v[k], of_one);
#pragma unroll
    for (int s = 0; s < Rule::kStates; ++s) {
      states[s].v[k] = of_one[s];
      finite = finite && is_finite(of_one[s]);
    }
    finite = finite && is_finite(params.v[k]);
  }
  store_pack<kCount>(buffers.params + i, params);
#pragma unroll
  for (int s = 0; s < Rule::kStates; ++s) store_pack<kCount>(buffers.states[s] + i, states[s]);
  if (buffers.params16) ToBf16Body{buffers.params16, buffers.params}.template at<kCount>(i);
  return finite;
}

template <class Rule, int kCount>
__global__ void __launch_bounds__(256)
    optimizer_kernel(OptimizerDesc desc, const StepScalars* scalars, OptimizerBuffers buffers,
                     std::int64_t count) {
  if (buffers.guard) {
    const UpdateOutcome outcome = decide_update(*scalars, *buffers.metrics, *buffers.guard);
    if (outcome != UpdateOutcome::applied) {
      if (global_thread() == 0) {
        report_outcome(outcome, *scalars, *buffers.metrics, *buffers.guard);
      }
      return;
    }
  }
  const Rule rule(desc, *scalars);
  bool finite = true;
  for (std::int64_t i = global_thread() * kCount; i < count; i += grid_threads() * kCount) {
    if (i + kCount <= count) {
      finite = update_pack<Rule, kCount>(rule, buffers, i) && finite;
    } else {
      for (std::int64_t k = i; k < count; ++k) {
        finite = update_pack<Rule, 1>(rule, buffers, k) && finite;
      }
    }
  }
  if (buffers.guard && !finite) {
    report_outcome(UpdateOutcome::broken, *scalars, *buffers.metrics, *buffers.guard);
  }
}

template <class Rule>
void launch_optimizer(const CudaContext& context, const OptimizerDesc& desc,
                      const OptimizerArgs& args) {
  const DevPtr states[3] = {args.state1, args.state2, args.state3};
  OptimizerBuffers buffers = {device<float>(args.params),
                              device<const float>(args.grads),
                              {},
                              device<Bf16>(args.params16),
                              device<StepMetrics>(args.metrics),
                              device<UpdateGuard>(args.guard)};
  bool aligned = aligned_to(kWidthBytes, args.params, args.grads) &&
                 aligned_to(kWidth * sizeof(Bf16), args.params16);
  for (int s = 0; s < Rule::kStates; ++s) {
    buffers.states[s] = device<float>(states[s]);
    aligned = aligned && aligned_to(kWidthBytes, states[s]);
  }
  const auto kernel = aligned ? optimizer_kernel<Rule, kWidth> : optimizer_kernel<Rule, 1>;
  const std::int64_t packs = aligned ? ceil_div(args.count, kWidth) : args.count;
  launch(kernel, blocks_for(packs, 256, std::int64_t{8} * context.multiprocessors), 256, 0,
         context.stream, desc, device<const StepScalars>(args.scalars), buffers, args.count);
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
  if (parts.size() > kMostParts || additions.size() > kMostAdditions || outs.size() > kMostParts) {
    for (const TreeAdd& add : additions) {
      const DevPtr left = parts[static_cast<std::size_t>(add.left)];
      cuda_add(context, left, left, parts[static_cast<std::size_t>(add.right)], count);
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

void cuda_grad_norm(const CudaContext& context, DevPtr grads, std::int64_t count, DevPtr scalars) {
  const auto kernel =
      aligned_to(kWidthBytes, grads) ? grad_norm_kernel<kWidth> : grad_norm_kernel<1>;
  // Some packs a thread before blocks share the work: the handover costs as much as they do.
  const unsigned blocks = blocks_for(ceil_div(count, kWidth), 4 * kNormThreads, kMostNormBlocks);
  launch(kernel, blocks, kNormThreads, 0, context.stream, device<const float>(grads), count,
         device<StepScalars>(scalars), partial_sums<double>(context, kMostNormBlocks),
         block_counters(context));
}

void cuda_optimizer_step(const CudaContext& context, const OptimizerDesc& desc,
                         const OptimizerArgs& args) {
  if (args.count < 1) return;
  if (desc.kind == OptimizerKind::sgd) {
    if (desc.momentum == 0) {
      launch_optimizer<SgdRule>(context, desc, args);
    } else {
      launch_optimizer<SgdMomentumRule>(context, desc, args);
    }
  } else if (desc.amsgrad) {
    launch_optimizer<AdamRule<true>>(context, desc, args);
  } else {
    launch_optimizer<AdamRule<false>>(context, desc, args);
  }
}

}  // namespace dpt
