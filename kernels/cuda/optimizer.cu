// Optimizers on a GPU: one kernel for every formula of kernels/common/optimizers, whose results
// have the CPU's bits.
#include "kernels/cuda/optimizer.h"

#include <algorithm>
#include <cassert>

#include "kernels/common/optimizers/formulas.h"
#include "kernels/common/update_outcome.h"
#include "kernels/cuda/conv/pack.h"

namespace dpt {
namespace {

constexpr int kThreads = 256;
/// Floats that a thread loads at once.
constexpr int kWidth = 4;
constexpr std::size_t kWidthBytes = kWidth * sizeof(float);
/// Elements of a tile: some packs for each thread of a block.
constexpr std::int64_t kTile = std::int64_t{8} * kThreads * kWidth;

struct Buffers {
  float* params;
  const float* grads;
  float* states[kMostOptimizerStates];
  Bf16* params16;  ///< or null
  const UpdateStep* steps;
  const StepScalars* scalars;
  StepMetrics* metrics;  ///< null, as `guard`, when nothing is checked
  UpdateGuard* guard;
};

/// What a launch works on: one range that the whole grid shares, or tiles of ranges, each of which
/// is for one block at a time.
struct Work {
  UpdateRange range;         ///< where there are no tiles
  const UpdateRange* tiles;  ///< in device memory, or null
  int tile_count;
  bool aligned;  ///< packs of kWidth may be loaded from wherever a range begins
};

/// Whether all that it wrote is finite.
template <class Formula, int kCount>
__device__ inline bool update_pack(const typename Formula::Step& step, float scale,
                                   const Buffers& buffers, std::int64_t i) {
  auto params = load_pack<kCount>(buffers.params + i);
  const auto grads = load_pack<kCount>(buffers.grads + i);
  Pack<float, kCount> states[kMostOptimizerStates];
  bool finite = true;
#pragma unroll
  for (int s = 0; s < Formula::kStates; ++s) states[s] = load_pack<kCount>(buffers.states[s] + i);
#pragma unroll
  for (int k = 0; k < kCount; ++k) {
    float of_one[kMostOptimizerStates] = {};
#pragma unroll
    for (int s = 0; s < Formula::kStates; ++s) of_one[s] = states[s].v[k];
    Formula::update(step, params.v[k], grads.v[k] * scale, of_one);
#pragma unroll
    for (int s = 0; s < Formula::kStates; ++s) {
      states[s].v[k] = of_one[s];
      finite = finite && is_finite(of_one[s]);
    }
    finite = finite && is_finite(params.v[k]);
  }
  store_pack<kCount>(buffers.params + i, params);
#pragma unroll
  for (int s = 0; s < Formula::kStates; ++s) store_pack<kCount>(buffers.states[s] + i, states[s]);
  if (buffers.params16) {
    Pack<Bf16, kCount> rounded;
    for (int k = 0; k < kCount; ++k) rounded.v[k] = to_bf16(params.v[k]);
    store_pack<kCount>(buffers.params16 + i, rounded);
  }
  return finite;
}

/// Updates a range together with `threads` - 1 other threads.
template <class Formula>
__device__ inline bool update_range(const Buffers& buffers, const UpdateRange& range, bool aligned,
                                    std::int64_t thread, std::int64_t threads) {
  const auto& now = *reinterpret_cast<const FormulaStep<Formula>*>(buffers.steps + range.group);
  const typename Formula::Step step = now.step;
  const float scale = now.gradient_sign * buffers.scalars->clip;
  const std::int64_t end = range.begin + range.count;
  bool finite = true;
  for (std::int64_t i = range.begin + thread * kWidth; i < end; i += threads * kWidth) {
    if (aligned && i + kWidth <= end) {
      finite = update_pack<Formula, kWidth>(step, scale, buffers, i) && finite;
    } else {
      for (std::int64_t k = i; k < end && k < i + kWidth; ++k) {
        finite = update_pack<Formula, 1>(step, scale, buffers, k) && finite;
      }
    }
  }
  return finite;
}

/// Whether the update is to be written.
__device__ inline bool is_applied(const Buffers& buffers) {
  if (!buffers.guard) return true;
  const UpdateOutcome outcome = decide_update(*buffers.scalars, *buffers.metrics, *buffers.guard);
  if (outcome == UpdateOutcome::applied) return true;
  if (global_thread() == 0) {
    report_outcome(outcome, *buffers.scalars, *buffers.metrics, *buffers.guard);
  }
  return false;
}

__device__ inline void report_broken(const Buffers& buffers, bool finite) {
  if (buffers.guard && !finite) {
    report_outcome(UpdateOutcome::broken, *buffers.scalars, *buffers.metrics, *buffers.guard);
  }
}

template <class Formula>
__global__ void __launch_bounds__(kThreads) update_kernel(Buffers buffers, Work work) {
  if (!is_applied(buffers)) return;
  bool finite = true;
  if (!work.tiles) {
    finite =
        update_range<Formula>(buffers, work.range, work.aligned, global_thread(), grid_threads());
  } else {
    for (int t = static_cast<int>(blockIdx.x); t < work.tile_count;
         t += static_cast<int>(gridDim.x)) {
      finite =
          update_range<Formula>(buffers, work.tiles[t], work.aligned, threadIdx.x, blockDim.x) &&
          finite;
    }
  }
  report_broken(buffers, finite);
}

using UpdateKernel = void (*)(Buffers, Work);

template <class... Formulas>
UpdateKernel kernel_of(int formula, FormulaList<Formulas...>) {
  constexpr UpdateKernel kKernels[] = {&update_kernel<Formulas>...};
  return kKernels[formula];
}

template <class... Formulas>
int states_of(int formula, FormulaList<Formulas...>) {
  constexpr int kStates[] = {Formulas::kStates...};
  return kStates[formula];
}

std::vector<UpdateRange> tiles_of(const std::vector<UpdateRange>& ranges) {
  std::vector<UpdateRange> tiles;
  for (const UpdateRange& range : ranges) {
    for (std::int64_t done = 0; done < range.count; done += kTile) {
      tiles.push_back({range.begin + done, std::min(kTile, range.count - done), range.group});
    }
  }
  return tiles;
}

class CudaOptimizer final : public OptimizerOp {
 public:
  CudaOptimizer(DeviceQueue& queue, const CudaContext& context, const OptimizerDesc& desc)
      : context_(context),
        kernel_(kernel_of(desc.formula, OptimizerFormulas{})),
        states_(states_of(desc.formula, OptimizerFormulas{})) {
    aligned_ranges_ =
        std::all_of(desc.ranges.begin(), desc.ranges.end(),
                    [](const UpdateRange& range) { return range.begin % kWidth == 0; });
    if (desc.ranges.size() == 1) {
      range_ = desc.ranges.front();
      blocks_ = blocks_for(ceil_div(range_.count, kWidth), kThreads, most_blocks());
      if (range_.count < 1) blocks_ = 0;
      return;
    }
    const std::vector<UpdateRange> tiles = tiles_of(desc.ranges);
    if (tiles.empty()) return;
    tile_count_ = static_cast<int>(tiles.size());
    blocks_ = static_cast<unsigned>(std::min<std::int64_t>(tile_count_, most_blocks()));
    const std::size_t bytes = tiles.size() * sizeof(UpdateRange);
    tiles_ = queue.allocate(bytes, "the optimizer's ranges");
    queue.upload(tiles_.ptr(), tiles.data(), bytes);
    queue.synchronize();  // for `tiles`
  }

  void step(const OptimizerArgs& args) override {
    if (blocks_ == 0) return;
    Buffers buffers = {device<float>(args.params),
                       device<const float>(args.grads),
                       {},
                       device<Bf16>(args.params16),
                       device<const UpdateStep>(args.steps),
                       device<const StepScalars>(args.scalars),
                       device<StepMetrics>(args.metrics),
                       device<UpdateGuard>(args.guard)};
    bool aligned = aligned_ranges_ && aligned_to(kWidthBytes, args.params, args.grads) &&
                   aligned_to(kWidth * sizeof(Bf16), args.params16);
    for (int s = 0; s < states_; ++s) {
      const DevPtr state = args.states[static_cast<std::size_t>(s)];
      buffers.states[s] = device<float>(state);
      aligned = aligned && aligned_to(kWidthBytes, state);
    }
    const Work work = {range_, device<const UpdateRange>(tiles_.ptr()), tile_count_, aligned};
    launch(kernel_, blocks_, kThreads, 0, context_.stream, buffers, work);
  }

 private:
  /// Eight blocks fill a multiprocessor of any architecture.
  std::int64_t most_blocks() const { return std::int64_t{8} * context_.multiprocessors; }

  const CudaContext& context_;
  UpdateKernel kernel_;
  int states_;
  bool aligned_ranges_ = true;
  UpdateRange range_;
  DeviceMemory tiles_;
  int tile_count_ = 0;
  unsigned blocks_ = 0;
};

}  // namespace

std::unique_ptr<OptimizerOp> make_cuda_optimizer(DeviceQueue& queue, const CudaContext& context,
                                                 const OptimizerDesc& desc) {
  assert(desc.formula >= 0 && desc.formula < OptimizerFormulas::kCount);
  return std::make_unique<CudaOptimizer>(queue, context, desc);
}

}  // namespace dpt
