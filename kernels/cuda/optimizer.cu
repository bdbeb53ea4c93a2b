// Optimizers on a GPU: one kernel per formula of kernels/common/optimizers, with the CPU's bits.
#include "kernels/cuda/optimizer.h"

#include <algorithm>
#include <cassert>

#include "kernels/common/optimizers/formulas.h"
#include "kernels/common/update_outcome.h"
#include "kernels/cuda/runtime/block_sum.h"
#include "kernels/cuda/runtime/pack.h"

namespace dpt {
namespace {

constexpr int kThreads = 256;
/// Number of floats that a thread loads at once.
constexpr int kWidth = 4;
constexpr std::size_t kWidthBytes = kWidth * sizeof(float);
/// Number of elements of a tile: eight packs for each thread of a block.
constexpr std::int64_t kTile = std::int64_t{8} * kThreads * kWidth;

struct Buffers {
  float* params;
  const float* grads;
  float* states[kMaxOptimizerStates];
  Bf16* params16;  ///< or null
  const UpdateStep* steps;
  const StepScalars* scalars;
  StepMetrics* metrics;  ///< null, like `guard`, if nothing is checked
  UpdateGuard* guard;
};

/// Sums of the squares of the values that a layer-wise formula prepares.
struct LayerSums {
  double a, b;
};
/// Indices of the tiles of one range.
struct TilesOfRange {
  int first, count;
};

/// Work of a launch: either one range that the whole grid shares, or tiles of ranges. A block
/// processes one tile at a time.
struct Work {
  UpdateRange range;         ///< used if there are no tiles
  const UpdateRange* tiles;  ///< in device memory, or null
  int tile_count;
  // One per tile, for layer-wise formulas.
  const TilesOfRange* siblings;
  LayerSums* sums;
  bool aligned;  ///< true if packs of kWidth may be loaded from the start of every range
};

/// The constants of an update of one range.
template <class Formula>
struct Now {
  typename Formula::Step step;
  float scale;
  float ratio = 1;
  __device__ Now(const Buffers& buffers, int group)
      : step(of(buffers, group).step),
        scale(of(buffers, group).gradient_sign * buffers.scalars->clip) {}
  __device__ static const FormulaStep<Formula>& of(const Buffers& buffers, int group) {
    return *reinterpret_cast<const FormulaStep<Formula>*>(buffers.steps + group);
  }
};

/// Parameters, gradients and states that a thread processes at once.
template <class Formula, int kCount>
struct Elements {
  Pack<float, kCount> params, grads;
  Pack<float, kCount> states[kMaxOptimizerStates];

  __device__ Elements(const Buffers& buffers, std::int64_t i)
      : params(load_pack<kCount>(buffers.params + i)), grads(load_pack<kCount>(buffers.grads + i)) {
#pragma unroll
    for (int s = 0; s < Formula::kStates; ++s) {
      states[s] = load_pack<kCount>(buffers.states[s] + i);
    }
  }

  /// Calls use(k, states of element k) for each element.
  template <class Use>
  __device__ void each(const Use& use) {
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
      float of_one[kMaxOptimizerStates] = {};
#pragma unroll
      for (int s = 0; s < Formula::kStates; ++s) of_one[s] = states[s].v[k];
      use(k, of_one);
#pragma unroll
      for (int s = 0; s < Formula::kStates; ++s) states[s].v[k] = of_one[s];
    }
  }

  /// Writes the states; returns true if all are finite.
  __device__ bool store_states(const Buffers& buffers, std::int64_t i) const {
    bool finite = true;
#pragma unroll
    for (int s = 0; s < Formula::kStates; ++s) {
      store_pack<kCount>(buffers.states[s] + i, states[s]);
      for (const float value : states[s].v) finite = finite && is_finite(value);
    }
    return finite;
  }
};

/// Updates a pack; returns true if all written values are finite.
template <class Formula, int kCount>
__device__ inline bool update_pack(const Now<Formula>& now, const Buffers& buffers,
                                   std::int64_t i) {
  Elements<Formula, kCount> at(buffers, i);
  at.each([&](int k, float* state) {
    apply_formula<Formula>(now.step, now.ratio, at.params.v[k], at.grads.v[k] * now.scale, state);
  });
  bool finite = true;
  for (const float value : at.params.v) finite = finite && is_finite(value);
  store_pack<kCount>(buffers.params + i, at.params);
  if (updates_states<Formula>()) finite = at.store_states(buffers, i) && finite;
  if (buffers.params16) {
    Pack<Bf16, kCount> rounded;
    for (int k = 0; k < kCount; ++k) rounded.v[k] = to_bf16(at.params.v[k]);
    store_pack<kCount>(buffers.params16 + i, rounded);
  }
  return finite;
}

/// Runs `prepare` and adds the squares of the prepared values to `sums`. Returns true if all
/// written values are finite.
template <class Formula, int kCount>
__device__ inline bool prepare_pack(const Now<Formula>& now, const Buffers& buffers, std::int64_t i,
                                    LayerSums& sums) {
  Elements<Formula, kCount> at(buffers, i);
  at.each([&](int k, float* state) {
    float a = 0, b = 0;
    Formula::prepare(now.step, at.params.v[k], at.grads.v[k] * now.scale, state, a, b);
    sums.a += static_cast<double>(a) * static_cast<double>(a);
    sums.b += static_cast<double>(b) * static_cast<double>(b);
  });
  return !Formula::kPreparesStates || at.store_states(buffers, i);
}

/// Calls packs(i) for whole packs of a range and single(i) for other elements. `threads` threads
/// share the range, and `thread` is the index of this one. Returns true if all calls returned true.
template <class Packs, class Single>
__device__ inline bool for_range(const UpdateRange& range, bool aligned, std::int64_t thread,
                                 std::int64_t threads, const Packs& packs, const Single& single) {
  const std::int64_t end = range.begin + range.count;
  bool all = true;
  for (std::int64_t i = range.begin + thread * kWidth; i < end; i += threads * kWidth) {
    if (aligned && i + kWidth <= end) {
      all = packs(i) && all;
    } else {
      for (std::int64_t k = i; k < end && k < i + kWidth; ++k) all = single(k) && all;
    }
  }
  return all;
}

template <class Formula>
__device__ inline bool update_range(const Now<Formula>& now, const Buffers& buffers,
                                    const UpdateRange& range, bool aligned, std::int64_t thread,
                                    std::int64_t threads) {
  return for_range(
      range, aligned, thread, threads,
      [&](std::int64_t i) { return update_pack<Formula, kWidth>(now, buffers, i); },
      [&](std::int64_t i) { return update_pack<Formula, 1>(now, buffers, i); });
}

/// Returns true if the update is to be written.
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

/// Runs the first pass of layer-wise formulas, which computes a sum for each tile.
template <class Formula>
__global__ void __launch_bounds__(kThreads) prepare_kernel(Buffers buffers, Work work) {
  if (!is_applied(buffers)) return;
  bool finite = true;
  for (int t = static_cast<int>(blockIdx.x); t < work.tile_count;
       t += static_cast<int>(gridDim.x)) {
    const UpdateRange tile = work.tiles[t];
    const Now<Formula> now(buffers, tile.group);
    LayerSums sums = {};
    finite =
        for_range(
            tile, work.aligned, threadIdx.x, blockDim.x,
            [&](std::int64_t i) { return prepare_pack<Formula, kWidth>(now, buffers, i, sums); },
            [&](std::int64_t i) { return prepare_pack<Formula, 1>(now, buffers, i, sums); }) &&
        finite;
    const double a = block_sum<kThreads>(sums.a), b = block_sum<kThreads>(sums.b);
    if (threadIdx.x == 0) work.sums[t] = {a, b};
  }
  report_broken(buffers, finite);
}

/// Returns the ratio of the range to which a tile belongs, in all threads of the block. Each block
/// adds up the tiles' sums in the same order.
template <class Formula>
__device__ inline float ratio_of(const typename Formula::Step& step, const Work& work, int tile) {
  __shared__ float ratio;
  const TilesOfRange of = work.siblings[tile];
  LayerSums sums = {};
  for (int t = static_cast<int>(threadIdx.x); t < of.count; t += kThreads) {
    sums.a += work.sums[of.first + t].a;
    sums.b += work.sums[of.first + t].b;
  }
  const double a = block_sum<kThreads>(sums.a), b = block_sum<kThreads>(sums.b);
  if (threadIdx.x == 0) ratio = Formula::ratio(step, a, b);
  __syncthreads();
  return ratio;
}

template <class Formula>
__global__ void __launch_bounds__(kThreads) update_kernel(Buffers buffers, Work work) {
  if (!is_applied(buffers)) return;
  bool finite = true;
  if (!work.tiles) {
    finite = update_range(Now<Formula>(buffers, work.range.group), buffers, work.range,
                          work.aligned, global_thread(), grid_threads());
  } else {
    for (int t = static_cast<int>(blockIdx.x); t < work.tile_count;
         t += static_cast<int>(gridDim.x)) {
      const UpdateRange tile = work.tiles[t];
      Now<Formula> now(buffers, tile.group);
      if constexpr (LayerwiseFormula<Formula>) now.ratio = ratio_of<Formula>(now.step, work, t);
      finite = update_range(now, buffers, tile, work.aligned, threadIdx.x, blockDim.x) && finite;
    }
  }
  report_broken(buffers, finite);
}

/// Passes of a formula; `second` is null for a formula with one pass.
struct Kernels {
  void (*first)(Buffers, Work);
  void (*second)(Buffers, Work);
};

template <class Formula>
Kernels kernels() {
  if constexpr (LayerwiseFormula<Formula>) {
    return {&prepare_kernel<Formula>, &update_kernel<Formula>};
  } else {
    return {&update_kernel<Formula>, nullptr};
  }
}
template <class... Formulas>
Kernels kernels_of(int formula, FormulaList<Formulas...>) {
  const Kernels all[] = {kernels<Formulas>()...};
  return all[formula];
}

template <class... Formulas>
int states_of(int formula, FormulaList<Formulas...>) {
  constexpr int kStates[] = {Formulas::kStates...};
  return kStates[formula];
}

/// Tiles of all ranges. `siblings` has, for each tile, the tiles of its range.
struct Tiles {
  std::vector<UpdateRange> tiles;
  std::vector<TilesOfRange> siblings;

  explicit Tiles(const std::vector<UpdateRange>& ranges) {
    for (const UpdateRange& range : ranges) {
      const TilesOfRange of = {static_cast<int>(tiles.size()),
                               static_cast<int>(ceil_div(range.count, kTile))};
      for (std::int64_t done = 0; done < range.count; done += kTile) {
        tiles.push_back({range.begin + done, std::min(kTile, range.count - done), range.group});
        siblings.push_back(of);
      }
    }
  }
};

class CudaOptimizer final : public OptimizerOp {
 public:
  CudaOptimizer(DeviceQueue& queue, const CudaContext& context, const OptimizerDesc& desc)
      : context_(context),
        kernels_(kernels_of(desc.formula, OptimizerFormulas{})),
        states_(states_of(desc.formula, OptimizerFormulas{})) {
    aligned_ranges_ =
        std::all_of(desc.ranges.begin(), desc.ranges.end(),
                    [](const UpdateRange& range) { return range.begin % kWidth == 0; });
    // Eight blocks fill a multiprocessor of any architecture.
    const std::int64_t most_blocks = std::int64_t{8} * context.multiprocessors;
    const bool is_layerwise = kernels_.second != nullptr;
    if (desc.ranges.size() == 1 && !is_layerwise) {
      work_.range = desc.ranges.front();
      if (work_.range.count < 1) return;
      blocks_ = blocks_for(ceil_div(work_.range.count, kWidth), kThreads, most_blocks);
      return;
    }
    const Tiles made(desc.ranges);
    if (made.tiles.empty()) return;
    work_.tile_count = static_cast<int>(made.tiles.size());
    blocks_ = static_cast<unsigned>(std::min<std::int64_t>(work_.tile_count, most_blocks));
    work_.tiles = uploaded(queue, tiles_, made.tiles);
    if (is_layerwise) {
      work_.siblings = uploaded(queue, siblings_, made.siblings);
      sums_ = queue.allocate(made.tiles.size() * sizeof(LayerSums), "the optimizer's norms");
      work_.sums = device<LayerSums>(sums_.ptr());
    }
    queue.synchronize();  // `made` must outlive the copies
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
    Work work = work_;
    work.aligned = aligned_ranges_ && aligned_to(kWidthBytes, args.params, args.grads) &&
                   aligned_to(kWidth * sizeof(Bf16), args.params16);
    for (int s = 0; s < states_; ++s) {
      const DevPtr state = args.states[s];
      buffers.states[s] = device<float>(state);
      work.aligned = work.aligned && aligned_to(kWidthBytes, state);
    }
    launch(kernels_.first, blocks_, kThreads, 0, context_.stream, buffers, work);
    if (kernels_.second) {
      launch(kernels_.second, blocks_, kThreads, 0, context_.stream, buffers, work);
    }
  }

 private:
  template <class T>
  static const T* uploaded(DeviceQueue& queue, DeviceMemory& memory, const std::vector<T>& values) {
    memory = queue.allocate(values.size() * sizeof(T), "the optimizer's ranges");
    queue.upload(memory.ptr(), values.data(), memory.bytes());
    return device<const T>(memory.ptr());
  }

  const CudaContext& context_;
  Kernels kernels_;
  int states_;
  bool aligned_ranges_ = true;
  DeviceMemory tiles_, siblings_, sums_;
  Work work_ = {};
  unsigned blocks_ = 0;
};

}  // namespace

std::unique_ptr<OptimizerOp> make_cuda_optimizer(DeviceQueue& queue, const CudaContext& context,
                                                 const OptimizerDesc& desc) {
  assert(desc.formula >= 0 && desc.formula < OptimizerFormulas::kCount);
  return std::make_unique<CudaOptimizer>(queue, context, desc);
}

}  // namespace dpt
